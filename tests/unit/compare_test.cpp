//===- tests/unit/compare_test.cpp - Results against results ----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/reference/Compare.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

using namespace lathe;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool allOk(const std::vector<Comparison>& comparisons) {
  return std::all_of(comparisons.begin(), comparisons.end(), [](const Comparison& entry) { return entry.ok; });
}

Workload workloadOf(DType dtype, Precision precision = Precision::IEEE) {
  Workload workload;
  workload.dtype = dtype;
  workload.precision = precision;
  return workload;
}

} // namespace

TEST_CASE("the relative error is that of the whole vector") {
  CHECK(relativeL2({3, 4}, {3, 4}) == 0);
  CHECK(relativeL2({3, 5}, {3, 4}) == Approx(0.2));
  CHECK(relativeL2({0.5, 0}, {0, 0}) == 0.5);
  CHECK(relativeL2({1}, {1, 2}) == kInfinity);
  CHECK(relativeL2({}, {}) == 0);
}

TEST_CASE("a NaN matches a NaN alone, and an infinity nothing") {
  for (const auto error : {relativeL2, mixedError}) {
    CHECK(error({kNaN, 1}, {kNaN, 1}) == 0);
    CHECK(std::isnan(error({kNaN, 1}, {1, 1})));
    CHECK(std::isnan(error({1, 1}, {kNaN, 1})));
    CHECK_FALSE(error({kInfinity}, {kInfinity}) < 1);
    CHECK_FALSE(error({1, -kInfinity}, {1, -kInfinity}) < 1);
    CHECK_FALSE(error({-kInfinity}, {kInfinity}) < 1);
    CHECK_FALSE(error({1}, {kInfinity}) < 1);
    CHECK_FALSE(error({kInfinity}, {1}) < 1);
  }
}

TEST_CASE("the mixed error is absolute for small values and relative for large ones") {
  CHECK(mixedError({0.001}, {0}) == Approx(0.001));
  CHECK(mixedError({1001 * 1.01 - 1.01}, {1000}) == Approx(10 / 1001.0));
  CHECK(mixedError({1, 2}, {1}) == kInfinity);
}

TEST_CASE("the tolerance follows the arithmetic") {
  LossResult want;
  want.loss = 1;
  want.gradInput = {1};
  LossResult got = want;
  got.gradInput = {1.005};
  got.loss = 1.003;
  CHECK(allOk(compare(got, want, workloadOf(DType::BF16))));
  CHECK(allOk(compare(got, want, workloadOf(DType::FP16))));
  CHECK(allOk(compare(got, want, workloadOf(DType::FP32, Precision::TF32))));
  CHECK_FALSE(allOk(compare(got, want, workloadOf(DType::FP32))));
  got.loss = 1.005;
  CHECK_FALSE(allOk(compare(got, want, workloadOf(DType::BF16))));
}

TEST_CASE("only what is expected is compared") {
  LossResult got;
  got.gradWeight = {1, 2};
  got.chosenLogps = {3};
  LossResult want;
  Workload workload = workloadOf(DType::FP32);
  CHECK(compare(got, want, workload).size() == 5);
  workload.nll = false;
  workload.logitMeans = false;
  CHECK(compare(got, want, workload).size() == 2);
  want.gradWeight = {1, 2};
  want.perTokenLogps = {1};
  const std::vector<Comparison> comparisons = compare(got, want, workload);
  REQUIRE(comparisons.size() == 4);
  CHECK(comparisons[2].name == "per_token_logps");
  CHECK_FALSE(comparisons[2].ok);
  CHECK(comparisons[3].name == "grad_weight");
  CHECK(comparisons[3].ok);
}

TEST_CASE("a NaN loss fails against a number") {
  LossResult got;
  got.loss = kNaN;
  CHECK_FALSE(allOk(compare(got, LossResult{}, workloadOf(DType::BF16))));
  CHECK(allOk(compare(got, got, workloadOf(DType::BF16))));
}

TEST_CASE("an infinite value fails even against itself") {
  LossResult infinite;
  infinite.loss = kInfinity;
  CHECK_FALSE(allOk(compare(infinite, infinite, workloadOf(DType::BF16))));
  infinite.loss = 0;
  infinite.gradWeight = {1, kInfinity};
  CHECK_FALSE(allOk(compare(infinite, infinite, workloadOf(DType::BF16))));
}
