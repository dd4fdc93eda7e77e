//===- steps/grad_scale.cuh - Scale the per-slot coefficients ---------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Multiplies the coefficients by the upstream gradient and by a power of two that brings the largest close to
/// kGradLimit, so that the gradients of the logits neither overflow nor vanish in 16 bits. The matrix products divide
/// it out of their fp32 sums, exactly. One block.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "common/math.cuh"
#include "common/rows.cuh"

namespace lathe::device {

template <class Config> __device__ void gradScale(const GradScaleArguments& arguments) {
  constexpr int kThreads = Config::kThreads;
  __shared__ float scratch[kThreads / 32];
  const PairTables& pairs = arguments.pairs;
  const float upstream = arguments.upstreamScale * (arguments.upstream != nullptr ? *arguments.upstream : 1.0f);

  float largest = 0.0f;
  for (int slot = arguments.slotBegin + int(threadIdx.x); slot < arguments.slotEnd; slot += kThreads)
    largest = fmaxf(largest, fabsf(pairs.slotCoefficient[slot] * upstream));
  largest = reduceBlock<kThreads>(largest, scratch, Maximum());

  // Exponent e with largest < 2^e; kept in a range where both the scale and its inverse are normal numbers.
  int exponent = int(__float_as_uint(largest) >> 23) - 126;
  exponent = min(max(exponent, -100), 100);
  const bool usable = largest > 0.0f && largest < __uint_as_float(0x7f800000u);
  const float scale =
      usable ? ElementTraits<typename Config::Element>::kGradLimit * __uint_as_float(u32(127 - exponent) << 23) : 1.0f;

  for (int slot = arguments.slotBegin + int(threadIdx.x); slot < arguments.slotEnd; slot += kThreads)
    pairs.slotFactor[slot] = pairs.slotCoefficient[slot] * upstream * scale;
  if (threadIdx.x == 0) {
    arguments.tables.state->gradScale = scale;
    arguments.tables.state->inverseGradScale = 1.0f / scale;
  }
}

} // namespace lathe::device
