//===- common/math.cuh - Scalar functions and reductions ------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "common/types.cuh"

namespace lathe::device {

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

__device__ __forceinline__ float negativeInfinity() {
  return __uint_as_float(0xff800000u);
}
__device__ __forceinline__ float quietNan() {
  return __uint_as_float(0x7fffffffu);
}

/// 2^x by the hardware: relative error below 2^-22.
__device__ __forceinline__ float exp2Fast(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// The same value, which the compiler takes for a new one.
__device__ __forceinline__ float opaque(float value) {
  asm volatile("" : "+f"(value));
  return value;
}
__device__ __forceinline__ int opaque(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

/// c * tanh(z / c) as c - 2c / (exp(2z / c) + 1): without a branch, absolute error below c * 2^-21.
__device__ __forceinline__ float softCap(float z, float c) {
  return c - __fdividef(2.0f * c, exp2Fast(2.0f * kLog2E / c * z) + 1.0f);
}

constexpr __device__ int ceilDiv(int value, int divisor) {
  return (value + divisor - 1) / divisor;
}

struct Maximum {
  template <class T> __device__ __forceinline__ T operator()(T a, T b) const { return a > b ? a : b; }
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct Sum {
  template <class T> __device__ __forceinline__ T operator()(T a, T b) const { return a + b; }
};

/// Combines `value` over groups of `kLanes` adjacent lanes (a power of two); every lane gets the result. The tree is
/// fixed, so sums are the same in every run.
template <int kLanes, class T, class Combine> __device__ __forceinline__ T reduceLanes(T value, Combine combine) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2)
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
  return value;
}

/// Combines `value` over a block of `kThreads` (a multiple of 32); every thread gets the result. `scratch` holds
/// kThreads / 32 values and may be reused after the call.
template <int kThreads, class T, class Combine>
__device__ __forceinline__ T reduceBlock(T value, T* scratch, Combine combine) {
  value = reduceLanes<32>(value, combine);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  T result = scratch[0];
  for (int i = 1; i < kThreads / 32; ++i) result = combine(result, scratch[i]);
  __syncthreads();
  return result;
}

} // namespace lathe::device
