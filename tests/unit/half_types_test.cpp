//===- tests/unit/half_types_test.cpp - 16-bit floats on the host -----------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/io/HalfTypes.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

using namespace lathe;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

using ToFloat = float (*)(uint16_t);
using FromFloat = uint16_t (*)(float);

/// Neighbouring patterns are neighbouring values: their midpoint must round to the even one, and the floats next to it
/// to the nearer one.
void checkRounding(ToFloat toFloat, FromFloat fromFloat, uint16_t infinity) {
  int wrong = 0;
  for (uint16_t bits = 0; bits + 1 < infinity; ++bits) {
    const double low = toFloat(bits);
    const double high = toFloat(uint16_t(bits + 1));
    const float middle = float((low + high) / 2);
    const uint16_t even = bits % 2 == 0 ? bits : uint16_t(bits + 1);
    wrong += fromFloat(middle) != even;
    wrong += fromFloat(-middle) != (even | 0x8000);
    wrong += fromFloat(std::nextafter(middle, -kInfinity)) != bits;
    wrong += fromFloat(std::nextafter(middle, kInfinity)) != bits + 1;
  }
  CHECK(wrong == 0);
}

void checkRoundTrip(ToFloat toFloat, FromFloat fromFloat) {
  int wrong = 0;
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float value = toFloat(uint16_t(bits));
    const uint16_t back = fromFloat(value);
    wrong += std::isnan(value) ? !std::isnan(toFloat(back)) || (back ^ bits) >> 15 : back != bits;
  }
  CHECK(wrong == 0);
}

} // namespace

TEST_CASE("every bf16 and fp16 pattern survives a trip through float") {
  checkRoundTrip(bf16ToFloat, floatToBf16);
  checkRoundTrip(fp16ToFloat, floatToFp16);
}

TEST_CASE("floats round to the nearest 16-bit value and ties go to the even one") {
  checkRounding(fp16ToFloat, floatToFp16, 0x7c00);
  // Midpoints of the smallest bf16 numbers are float subnormals, which are exact too.
  checkRounding(bf16ToFloat, floatToBf16, 0x7f80);
}

TEST_CASE("known 16-bit patterns have their known values") {
  CHECK(bf16ToFloat(0x3f80) == 1.0f);
  CHECK(bf16ToFloat(0xc049) == -3.140625f);
  CHECK(fp16ToFloat(0x3c00) == 1.0f);
  CHECK(fp16ToFloat(0xc248) == -3.140625f);
  CHECK(fp16ToFloat(0x7bff) == 65504.0f);
  CHECK(fp16ToFloat(0x0001) == 0x1p-24f);
  CHECK(fp16ToFloat(0x03ff) == 1023 * 0x1p-24f);
  CHECK(std::signbit(fp16ToFloat(0x8000)));
}

TEST_CASE("values beyond the range become infinite") {
  CHECK(floatToFp16(65519.99f) == 0x7bff);
  CHECK(floatToFp16(65520.0f) == 0x7c00);
  CHECK(floatToFp16(-1e30f) == 0xfc00);
  CHECK(floatToFp16(kInfinity) == 0x7c00);
  CHECK(floatToBf16(std::numeric_limits<float>::max()) == 0x7f80);
  CHECK(floatToBf16(-kInfinity) == 0xff80);
}

TEST_CASE("a NaN whose payload is in the low bits stays a NaN") {
  const float nan = std::bit_cast<float>(0x7f800001u);
  CHECK(std::isnan(bf16ToFloat(floatToBf16(nan))));
  CHECK(std::isnan(fp16ToFloat(floatToFp16(nan))));
}
