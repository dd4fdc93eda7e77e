//===- tests/unit/reference_test.cpp - The loss on the host -----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/reference/Reference.h"

#include "runtime/io/Case.h"
#include "runtime/reference/Compare.h"
#include "tests/support/Failures.h"

#include <cmath>
#include <cstring>

using namespace lathe;
using Catch::Contains;
using lathe::test::require;
using lathe::test::requireError;

namespace {

Problem problemOf(const Case& value) {
  return {value.workload,      value.shape,       value.scalars,      value.input.data(),
          value.weight.data(), value.bias.data(), value.target.data()};
}

template <class Real = double> LossResult compute(const Case& value) {
  return require(computeReference<Real>(problemOf(value)));
}

/// fp32 with every option on.
Workload fullWorkload() {
  Workload workload;
  workload.hidden = 5;
  workload.vocab = 7;
  workload.dtype = DType::FP32;
  workload.gradWeightDType = DType::FP32;
  workload.bias = true;
  workload.gradBias = true;
  workload.softcap = true;
  workload.logitScale = true;
  return workload;
}

Scalars fullScalars() {
  Scalars scalars;
  scalars.beta = 1.5;
  scalars.gamma = 0.3;
  scalars.labelSmoothing = 0.2;
  scalars.alpha = 0.7;
  scalars.softcap = 3;
  scalars.logitScale = 1.25;
  return scalars;
}

/// The slope of the loss by one float of `tensor`, from the two exact neighbours that the floats around it are.
double numericSlope(Case value, std::string Case::* tensor, size_t index) {
  char* element = (value.*tensor).data() + index * sizeof(float);
  float original;
  std::memcpy(&original, element, sizeof(original));
  const float high = original + 0x1p-9f;
  const float low = original - 0x1p-9f;
  std::memcpy(element, &high, sizeof(high));
  const double above = compute(value).loss;
  std::memcpy(element, &low, sizeof(low));
  const double below = compute(value).loss;
  return (above - below) / (double(high) - double(low));
}

void checkSlopes(const Case& value, std::string Case::* tensor, const std::vector<double>& gradient) {
  REQUIRE(gradient.size() * sizeof(float) == (value.*tensor).size());
  std::vector<double> numeric(gradient.size());
  for (size_t i = 0; i < gradient.size(); ++i) numeric[i] = numericSlope(value, tensor, i);
  CHECK(relativeL2(numeric, gradient) < 2e-5);
}

double relativeGap(const LossResult& a, const LossResult& b) {
  double gap = 0;
  for (const auto member : {&LossResult::gradInput, &LossResult::gradWeight, &LossResult::gradBias})
    gap = std::max(gap, relativeL2(a.*member, b.*member));
  for (const auto member : {&LossResult::loss, &LossResult::nll, &LossResult::chosenLogitsMean})
    gap = std::max(gap, mixedError(a.*member, b.*member));
  return gap;
}

} // namespace

TEST_CASE("gradients are the slopes of the loss, whatever options are on") {
  Workload workload = fullWorkload();
  workload.bias = workload.gradBias = GENERATE(false, true);
  workload.softcap = GENERATE(false, true);
  workload.logitScale = GENERATE(false, true);
  workload.nll = GENERATE(false, true);
  CAPTURE(workload.bias, workload.softcap, workload.logitScale, workload.nll);
  const Case value = makeRandomCase(workload, {4, 3}, fullScalars(), 11, 1.5, 0.3);
  const LossResult result = compute(value);
  checkSlopes(value, &Case::input, result.gradInput);
  checkSlopes(value, &Case::weight, result.gradWeight);
  checkSlopes(value, &Case::bias, result.gradBias);
}

TEST_CASE("a case small enough for pencil and paper comes out right") {
  Workload workload;
  workload.hidden = 1;
  workload.vocab = 2;
  workload.dtype = DType::FP32;
  workload.gradWeightDType = DType::FP32;
  const float input[] = {1, -1};
  const float weight[] = {0.5f, -0.5f};
  const int64_t target[] = {0, 0};
  const LossResult result =
      require(computeReference<double>({workload, {2, 1}, Scalars{}, input, weight, nullptr, target}));
  const double chosen = -std::log1p(std::exp(-1.0));
  const double rejected = chosen - 1;
  const double preference = std::log1p(std::exp(-(0.1 * (chosen - rejected) - 0.5)));
  CHECK(result.chosenLogps[0] == Approx(chosen).epsilon(1e-14));
  CHECK(result.rejectedLogps[0] == Approx(rejected).epsilon(1e-14));
  CHECK(result.chosenRewards[0] == Approx(0.1 * chosen).epsilon(1e-14));
  CHECK(result.rejectedRewards[0] == Approx(0.1 * rejected).epsilon(1e-14));
  CHECK(result.preferenceLoss == Approx(preference).epsilon(1e-14));
  CHECK(result.nll == Approx(-chosen).epsilon(1e-14));
  CHECK(result.loss == Approx(preference - chosen).epsilon(1e-14));
  CHECK(result.chosenLogitsMean == 0);
  CHECK(result.diagnostics == Diagnostics{0, 0, -1, -1, 2});
}

TEST_CASE("the block size changes nothing but the order of sums") {
  const Case value = makeRandomCase(fullWorkload(), {6, 9}, fullScalars(), 12, 2, 0.4);
  const LossResult whole = compute(value);
  for (const int64_t bytes : {int64_t(0), int64_t(1), int64_t(7 * 8 * 4), int64_t(7 * 8 * 5 + 3)}) {
    Problem problem = problemOf(value);
    problem.blockBytes = bytes;
    const LossResult blocked = require(computeReference<double>(problem));
    CHECK(relativeGap(blocked, whole) < 1e-13);
    CHECK(mixedError(blocked.perTokenLogps, whole.perTokenLogps) < 1e-13);
  }
}

TEST_CASE("float agrees with double") {
  Workload workload = fullWorkload();
  workload.dtype = GENERATE(DType::BF16, DType::FP16, DType::FP32);
  const Case value = makeRandomCase(workload, {4, 8}, fullScalars(), 13, 2, 0.4);
  CHECK(relativeGap(compute<float>(value), compute<double>(value)) < 1e-5);
}

TEST_CASE("the upstream scale multiplies every gradient and no loss") {
  const Case value = makeRandomCase(fullWorkload(), {4, 4}, fullScalars(), 14, 1, 0.2);
  const LossResult plain = compute(value);
  Problem problem = problemOf(value);
  problem.upstreamScale = -2;
  LossResult scaled = require(computeReference<double>(problem));
  CHECK(scaled.loss == plain.loss);
  for (const auto member : {&LossResult::gradInput, &LossResult::gradWeight, &LossResult::gradBias}) {
    for (double& element : scaled.*member) element /= -2;
    CHECK(relativeL2(scaled.*member, plain.*member) < 1e-14);
  }
}

TEST_CASE("an empty sequence has log-probability zero, no gradient, and is counted") {
  Case value = makeRandomCase(fullWorkload(), {4, 3}, fullScalars(), 15, 1, 0);
  for (int64_t token = 0; token < 3; ++token) value.target[3 + token] = value.scalars.ignoreIndex;
  const LossResult result = compute(value);
  CHECK(std::isfinite(result.loss));
  CHECK(result.chosenLogps[1] == 0);
  CHECK(result.diagnostics == Diagnostics{1, 0, -1, -1, 9});
  const auto gradientOf = [&](int64_t sequence) {
    const auto begin = result.gradInput.begin() + sequence * 3 * 5;
    return std::vector<double>(begin, begin + 3 * 5);
  };
  CHECK(gradientOf(1) == std::vector<double>(15, 0.0));
  CHECK(gradientOf(3) != std::vector<double>(15, 0.0));
  checkSlopes(value, &Case::weight, result.gradWeight);
}

TEST_CASE("without any valid token the loss is that of the margin alone") {
  Case value = makeRandomCase(fullWorkload(), {2, 3}, fullScalars(), 16, 1, 1);
  const LossResult result = compute(value);
  const double softplusOf = std::log1p(std::exp(-0.3));
  CHECK(result.loss == Approx(0.8 * (softplusOf + 0.3) + 0.2 * softplusOf).epsilon(1e-14));
  CHECK(result.nll == 0);
  CHECK(result.diagnostics == Diagnostics{2, 0, -1, -1, 0});
  CHECK(result.gradWeight == std::vector<double>(35, 0.0));
  CHECK(result.chosenLogitsMean != 0);
}

TEST_CASE("bad targets make the loss NaN and are named") {
  Case value = makeRandomCase(fullWorkload(), {4, 3}, fullScalars(), 17, 1, 0);
  const int64_t bad = GENERATE(int64_t(-1), int64_t(7), INT64_MAX, INT64_MIN);
  value.target[10] = 7;
  value.target[5] = bad;
  value.workload.nll = GENERATE(false, true);
  const LossResult result = compute(value);
  CHECK(std::isnan(result.loss));
  CHECK(std::isnan(result.perTokenLogps[5]));
  CHECK(std::isfinite(result.perTokenLogps[4]));
  CHECK(std::isfinite(result.chosenLogps[0]));
  CHECK(std::isnan(result.chosenLogps[1]));
  CHECK(result.diagnostics == Diagnostics{0, 2, 1, 2, 12});
}

TEST_CASE("a bad target makes the loss NaN even where no sum takes it in") {
  Case value = makeRandomCase(fullWorkload(), {2, 2}, fullScalars(), 18, 1, 0);
  value.scalars.beta = 0;
  value.target[3] = 99;
  const LossResult result = compute(value);
  CHECK(std::isnan(result.loss));
  CHECK(std::isfinite(result.nll));
}

TEST_CASE("an ignored index inside the vocabulary is ignored, not read as a target") {
  Case value = makeRandomCase(fullWorkload(), {2, 4}, fullScalars(), 19, 1, 0.5);
  Case inside = value;
  inside.scalars.ignoreIndex = 6;
  for (size_t i = 0; i < value.target.size(); ++i) {
    if (value.target[i] == 6) value.target[i] = 5;
    inside.target[i] = value.target[i] == value.scalars.ignoreIndex ? 6 : value.target[i];
  }
  CHECK(compute(inside).loss == compute(value).loss);
  CHECK(compute(inside).gradWeight == compute(value).gradWeight);
}

TEST_CASE("only the asked gradients and means are computed") {
  Case value = makeRandomCase(fullWorkload(), {2, 4}, fullScalars(), 20, 1, 0.5);
  const LossResult all = compute(value);
  value.workload.logitMeans = false;
  value.workload.gradInput = false;
  value.workload.gradBias = false;
  const LossResult some = compute(value);
  CHECK(some.gradInput.empty());
  CHECK(some.gradBias.empty());
  CHECK(some.gradWeight == all.gradWeight);
  CHECK(some.chosenLogitsMean == 0);
  CHECK(some.rejectedLogitsMean == 0);
  CHECK(some.perTokenLogps == all.perTokenLogps);
  value.workload.gradWeight = false;
  CHECK(compute(value).gradWeight.empty());
}

TEST_CASE("very large logits stay finite") {
  Workload workload = fullWorkload();
  workload.softcap = false;
  const Case value = makeRandomCase(workload, {2, 4}, fullScalars(), 21, 5000, 0);
  const LossResult result = compute(value);
  CHECK(std::isfinite(result.loss));
  for (const double element : result.gradInput) CHECK(std::isfinite(element));
}

TEST_CASE("tensors at odd addresses give the same result") {
  const Case value = makeRandomCase(fullWorkload(), {2, 4}, fullScalars(), 22, 1, 0.2);
  const std::string input = "x" + value.input;
  const std::string weight = "xyz" + value.weight;
  Problem problem = problemOf(value);
  problem.input = input.data() + 1;
  problem.weight = weight.data() + 3;
  CHECK(require(computeReference<double>(problem)).gradInput == compute(value).gradInput);
}

TEST_CASE("invalid problems are refused with the reason") {
  const Case value = makeRandomCase(fullWorkload(), {2, 4}, fullScalars(), 23, 1, 0.2);
  const auto reason = [](const Problem& problem) { return requireError(computeReference<double>(problem)).message; };
  Problem noWeight = problemOf(value);
  noWeight.weight = nullptr;
  CHECK_THAT(reason(noWeight), Contains("weight is null"));
  Problem noBias = problemOf(value);
  noBias.bias = nullptr;
  CHECK_THAT(reason(noBias), Contains("bias is null"));
  Case odd = value;
  odd.shape.sequences = 3;
  CHECK_THAT(reason(problemOf(odd)), Contains("sequences is 3"));
  Case flat = value;
  flat.scalars.softcap = 0;
  CHECK_THAT(reason(problemOf(flat)), Contains("softcap is"));
  Case empty = value;
  empty.workload.vocab = 0;
  CHECK_THAT(reason(problemOf(empty)), Contains("vocab is 0"));
}
