//===- runtime/io/HalfTypes.h - 16-bit floats on the host ------*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// bfloat16 and IEEE half as bit patterns. Rounding is to nearest, ties to even; a NaN stays a NaN and its sign stays.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "lathe/workload.h"

#include <bit>
#include <cstdint>
#include <cstring>

namespace lathe {

inline float bf16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(uint32_t(bits) << 16);
}

inline uint16_t floatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  // A NaN whose payload lies in the low half would become an infinity, so it is made quiet.
  if ((bits & 0x7fffffffu) > 0x7f800000u) return uint16_t((bits >> 16) | 0x40u);
  return uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float fp16ToFloat(uint16_t bits) {
  const uint32_t sign = uint32_t(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1fu) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  // Zero or subnormal: mantissa units of 2^-24, exact in float.
  const float magnitude = float(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

inline uint16_t floatToFp16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = uint16_t((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  // 65520 is half way between the largest half and the next power of two; it and all above become infinite.
  if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00u);
  // Below 2^-14 results are subnormal: adding 0.5 leaves multiples of 2^-24, rounded, in the low mantissa bits.
  if (magnitude < 0x38800000u) {
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return uint16_t(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rebiased = magnitude - (112u << 23);
  return uint16_t(sign | ((rebiased + 0xfffu + ((rebiased >> 13) & 1u)) >> 13));
}

/// Element `index` of an array of `type`, which need not be aligned.
inline float elementAt(const void* array, DType type, int64_t index) {
  const char* bytes = static_cast<const char*>(array);
  if (type == DType::FP32) {
    float value = 0;
    std::memcpy(&value, bytes + 4 * index, 4);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, bytes + 2 * index, 2);
  return type == DType::BF16 ? bf16ToFloat(bits) : fp16ToFloat(bits);
}

} // namespace lathe
