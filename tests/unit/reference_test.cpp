//===- tests/unit/reference_test.cpp - The loss on the host -----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/reference/Reference.h"

#include "generator/Workload.h"
#include "runtime/io/Case.h"
#include "runtime/io/Safetensors.h"
#include "runtime/reference/Compare.h"
#include "tests/support/Failures.h"

#include <algorithm>
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

/// Every combination of the options: without a mask, with one, and with an empty chosen or rejected sequence.
std::vector<Case> everyOption() {
  std::vector<Case> cases;
  for (unsigned bits = 0; bits < 32; ++bits) {
    Workload workload = fullWorkload();
    workload.bias = workload.gradBias = (bits & 1) != 0;
    workload.softcap = (bits & 2) != 0;
    workload.logitScale = (bits & 4) != 0;
    workload.nll = (bits & 8) != 0;
    Scalars scalars = fullScalars();
    if ((bits & 16) == 0) scalars.labelSmoothing = 0;
    const Shape shape{4, 3};
    cases.push_back(makeRandomCase(workload, shape, scalars, 31 + bits, 1.5, 0));
    cases.push_back(makeRandomCase(workload, shape, scalars, 71 + bits, 1.5, 0.4));
    for (const int64_t empty : {1, 2}) {
      cases.push_back(cases[cases.size() - 2]);
      std::fill_n(cases.back().target.begin() + empty * shape.tokens, shape.tokens, scalars.ignoreIndex);
    }
  }
  return cases;
}

/// The formulas as they stand, in double, with no care for overflow: right for small logits.
class PlainFormulas {
public:
  explicit PlainFormulas(const Case& value)
      : case_(value), input_(numbers(value.input)), weight_(numbers(value.weight)), bias_(numbers(value.bias)) {}

  LossResult compute() const {
    const int64_t pairs = case_.shape.pairs();
    LossResult result;
    double chosenSum = 0;
    double chosenCount = 0;
    for (int64_t row = 0; row < case_.shape.rows(); ++row) {
      result.perTokenLogps.push_back(logProbability(row));
      const bool chosen = row < case_.shape.rows() / 2;
      (chosen ? result.chosenLogitsMean : result.rejectedLogitsMean) += logitSum(row) / logitCount();
      if (!chosen || !isValid(row)) continue;
      chosenSum += logProbability(row);
      ++chosenCount;
    }
    for (int64_t pair = 0; pair < pairs; ++pair) {
      result.chosenLogps.push_back(sequenceMean(pair));
      result.rejectedLogps.push_back(sequenceMean(pairs + pair));
      result.preferenceLoss += pairLoss(result.chosenLogps.back(), result.rejectedLogps.back()) / double(pairs);
    }
    if (case_.workload.nll) result.nll = -chosenSum / chosenCount;
    result.loss = result.preferenceLoss + case_.scalars.alpha * result.nll;
    return result;
  }

private:
  static std::vector<double> numbers(const std::string& bytes) {
    return require(toDoubles({TensorType::F32, {}, bytes}));
  }
  bool isValid(int64_t row) const { return case_.target[row] != case_.scalars.ignoreIndex; }
  double logitCount() const { return double(case_.shape.rows()) / 2 * double(case_.workload.vocab); }

  double logit(int64_t row, int64_t v) const {
    const int64_t hidden = case_.workload.hidden;
    double z = case_.workload.bias ? bias_[v] : 0;
    for (int64_t h = 0; h < hidden; ++h) z += input_[row * hidden + h] * weight_[v * hidden + h];
    if (case_.workload.logitScale) z *= case_.scalars.logitScale;
    return case_.workload.softcap ? case_.scalars.softcap * std::tanh(z / case_.scalars.softcap) : z;
  }
  double logitSum(int64_t row) const {
    double sum = 0;
    for (int64_t v = 0; v < case_.workload.vocab; ++v) sum += logit(row, v);
    return sum;
  }
  double logProbability(int64_t row) const {
    if (!isValid(row)) return 0;
    double sum = 0;
    for (int64_t v = 0; v < case_.workload.vocab; ++v) sum += std::exp(logit(row, v));
    return std::log(std::exp(logit(row, case_.target[row])) / sum);
  }
  double sequenceMean(int64_t sequence) const {
    double sum = 0;
    double count = 0;
    for (int64_t row = sequence * case_.shape.tokens; row < (sequence + 1) * case_.shape.tokens; ++row) {
      sum += logProbability(row);
      count += isValid(row);
    }
    return count > 0 ? sum / count : 0;
  }
  double pairLoss(double chosen, double rejected) const {
    const double d = case_.scalars.beta * (chosen - rejected) - case_.scalars.gamma;
    const double win = 1 / (1 + std::exp(-d));
    const double smoothing = case_.scalars.labelSmoothing;
    return -(1 - smoothing) * std::log(win) - smoothing * std::log(1 - win);
  }

  const Case& case_;
  std::vector<double> input_;
  std::vector<double> weight_;
  std::vector<double> bias_;
};

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
  for (const Case& value : everyOption()) {
    const LossResult result = compute(value);
    CAPTURE(canonicalJson(value.workload), value.scalars.labelSmoothing, result.diagnostics.emptySequences);
    checkSlopes(value, &Case::input, result.gradInput);
    checkSlopes(value, &Case::weight, result.gradWeight);
    checkSlopes(value, &Case::bias, result.gradBias);
  }
}

TEST_CASE("every value agrees with the formulas as they stand, whatever options are on") {
  for (const Case& value : everyOption()) {
    const LossResult got = compute(value);
    CAPTURE(canonicalJson(value.workload), value.scalars.labelSmoothing, got.diagnostics.emptySequences);
    const LossResult want = PlainFormulas(value).compute();
    const std::vector<Comparison> comparisons = compare(got, want, value.workload);
    CHECK(comparisons.size() == (value.workload.nll ? 8 : 7));
    for (const Comparison& comparison : comparisons) {
      CAPTURE(comparison.name);
      CHECK(comparison.error < 1e-12);
    }
    CHECK(got.nll == Approx(want.nll).epsilon(1e-12));
  }
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

TEST_CASE("the gradient of each row sums to zero in float, however large its logits") {
  Workload workload = fullWorkload();
  workload.hidden = 64;
  workload.vocab = 600;
  workload.softcap = false;
  const Case value = makeRandomCase(workload, {4, 32}, fullScalars(), 24, 150, 0.4);
  const LossResult result = compute<float>(value);
  double sum = 0;
  double size = 0;
  for (const double element : result.gradBias) {
    sum += element;
    size += std::abs(element);
  }
  CHECK(std::abs(sum) < 1e-7 * size);
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
