//===- common/tail.cuh - Tail rows that hold a mean in two halves -----------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "common/types.cuh"

namespace lathe::device {

/// What the low half of a mean is multiplied by before it is rounded.
template <class Element> __device__ constexpr float lowScale();
template <> __device__ constexpr float lowScale<float>() {
  return 1.0f;
}
template <> __device__ constexpr float lowScale<bf16>() {
  return 256.0f;
}
template <> __device__ constexpr float lowScale<fp16>() {
  return 2048.0f;
}

/// The part of `value` that the matrix products see exactly.
template <class Element, bool kTf32> __device__ __forceinline__ float roundedHigh(float value) {
  if constexpr (kTf32) return __uint_as_float(__float_as_uint(value) & 0xffffe000u);
  return toFloat(fromFloat<Element>(value));
}

/// Whether tail row `index` is the low half of a mean.
__device__ __forceinline__ bool isLowHalf(int index) {
  return index % 2 == 1;
}

} // namespace lathe::device
