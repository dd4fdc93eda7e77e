//===- common/types.cuh - Element types and their conversions -------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// 16-bit element types and conversions without any header of the CUDA toolkit.
///
//===----------------------------------------------------------------------===//
#pragma once

namespace lathe::device {

using i64 = long long;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

struct bf16 {
  u16 bits;
};
struct fp16 {
  u16 bits;
};

/// The widest access to memory.
struct alignas(16) Vector16 {
  u32 word[4];
};

/// Facts of an element type.
/// `kPanel`: elements in 128 bytes, the width of all shared-memory tiles and of the panels of E.
/// `kExponentialScale`: E = exp(z - maximum) is stored times this, so that small values stay normal numbers.
/// `kGradLimit`: the largest magnitude that scaled gradients of the logits should reach.
template <class T> struct ElementTraits;
template <> struct ElementTraits<float> {
  static constexpr int kPanel = 32;
  static constexpr float kExponentialScale = 1.0f;
  static constexpr float kGradLimit = 1.0f;
};
template <> struct ElementTraits<bf16> {
  static constexpr int kPanel = 64;
  static constexpr float kExponentialScale = 1.0f;
  static constexpr float kGradLimit = 1.0f;
};
template <> struct ElementTraits<fp16> {
  static constexpr int kPanel = 64;
  static constexpr float kExponentialScale = 16384.0f;
  static constexpr float kGradLimit = 16384.0f;
};

__device__ __forceinline__ float toFloat(float value) {
  return value;
}
__device__ __forceinline__ float toFloat(bf16 value) {
  return __uint_as_float(u32(value.bits) << 16);
}
__device__ __forceinline__ float toFloat(fp16 value) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
}

/// Rounds to nearest even.
template <class T> __device__ __forceinline__ T fromFloat(float value);
template <> __device__ __forceinline__ float fromFloat<float>(float value) {
  return value;
}
template <> __device__ __forceinline__ fp16 fromFloat<fp16>(float value) {
  fp16 result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
}
template <> __device__ __forceinline__ bf16 fromFloat<bf16>(float value) {
  bf16 result;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
#else
  const u32 bits = __float_as_uint(value);
  const u32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  result.bits = value != value ? u16(0x7fff) : u16(rounded);
#endif
  return result;
}

/// Two adjacent elements, the first in the low half.
template <class T> __device__ __forceinline__ u32 packPair(float first, float second) {
  return u32(fromFloat<T>(first).bits) | u32(fromFloat<T>(second).bits) << 16;
}
#if __CUDA_ARCH__ >= 800
template <> __device__ __forceinline__ u32 packPair<bf16>(float first, float second) {
  u32 result;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(second), "f"(first));
  return result;
}
#endif

/// The elements of one Vector16 as floats, and back.
template <class T> struct Unpacked {
  static constexpr int kCount = 16 / sizeof(T);
  float value[kCount];

  __device__ __forceinline__ explicit Unpacked(const Vector16& vector) {
    if constexpr (sizeof(T) == 4) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) value[i] = __uint_as_float(vector.word[i]);
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) value[i] = toFloat(T{u16(vector.word[i / 2] >> (i % 2 * 16))});
    }
  }

  __device__ __forceinline__ Vector16 packed() const {
    Vector16 result;
    if constexpr (sizeof(T) == 4) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) result.word[i] = __float_as_uint(value[i]);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) result.word[i] = packPair<T>(value[2 * i], value[2 * i + 1]);
    }
    return result;
  }
};

} // namespace lathe::device
