//===- common/grad_scale.cuh - Scale that gradients are kept in -------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// The gradients of the logits are kept times a power of two that brings the largest coefficient close to kGradLimit,
/// so that they neither overflow nor vanish in 16 bits. The matrix products divide it out of their fp32 sums, exactly.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "common/arguments.cuh"
#include "common/types.cuh"

namespace lathe::device {

template <class Element> struct GradScale {
  /// What a slot's coefficient is multiplied by: the upstream gradient and the power of two.
  float factor;
  /// One over the power of two.
  float inverse;

  __device__ __forceinline__ GradScale(const RunState& state, const Upstream& upstream) {
    const float gradient = upstream.scale * (upstream.factor != nullptr ? *upstream.factor : 1.0f);
    const float largest = fabsf(state.largestCoefficient * gradient);
    // Exponent e with largest < 2^e; kept in a range where both the scale and its inverse are normal numbers.
    const int exponent = min(max(int(__float_as_uint(largest) >> 23) - 126, -100), 100);
    const bool usable = largest > 0.0f && largest < __uint_as_float(0x7f800000u);
    const float scale = usable ? ElementTraits<Element>::kGradLimit * __uint_as_float(u32(127 - exponent) << 23) : 1.0f;
    factor = gradient * scale;
    inverse = 1.0f / scale;
  }
};

} // namespace lathe::device
