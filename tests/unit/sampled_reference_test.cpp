//===- tests/unit/sampled_reference_test.cpp - The sampled reference ------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/reference/Reference.h"
#include "tests/support/Failures.h"
#include "tuning/SampledReference.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

using namespace lathe;
using namespace lathe::test;

namespace {

Case makeCase(bool softcap, DType dtype, bool bias) {
  Workload workload{.hidden = 40, .vocab = 333, .dtype = dtype, .bias = bias, .softcap = softcap, .gradBias = bias};
  workload.logitScale = softcap;
  workload.gradWeightDType = dtype;
  Scalars scalars;
  scalars.softcap = softcap ? 5 : 0;
  scalars.logitScale = softcap ? 1.5 : 1;
  scalars.labelSmoothing = 0.1;
  return makeRandomCase(workload, {6, 9}, scalars, /*seed=*/3, /*logitStd=*/2.0, /*maskedFraction=*/0.3);
}

/// What a device that computes `full` would hand out for the sample.
LossResult partsOf(LossResult full, const SampledReference& reference, const Case& value) {
  const int64_t hidden = value.workload.hidden;
  std::vector<double> input, weight, bias;
  for (const int64_t row : reference.rows())
    for (int64_t h = 0; h < hidden; ++h) input.push_back(full.gradInput[row * hidden + h]);
  for (const int64_t entry : reference.entries()) {
    for (int64_t h = 0; h < hidden; ++h) weight.push_back(full.gradWeight[entry * hidden + h]);
    if (value.workload.gradBias) bias.push_back(full.gradBias[entry]);
  }
  full.gradInput = input;
  full.gradWeight = weight;
  full.gradBias = bias;
  return full;
}

LossResult computeFull(const Case& value) {
  return require(computeReference<double>({.workload = value.workload,
                                           .shape = value.shape,
                                           .scalars = value.scalars,
                                           .input = value.input.data(),
                                           .weight = value.weight.data(),
                                           .bias = value.bias.data(),
                                           .target = value.target.data()}));
}

bool allOk(const std::vector<Comparison>& comparisons) {
  return llvm::all_of(comparisons, [](const Comparison& comparison) { return comparison.ok; });
}

} // namespace

TEST_CASE("the sampled reference agrees with the full one to rounding") {
  for (const bool softcap : {false, true})
    for (const bool bias : {false, true}) {
      CAPTURE(softcap, bias);
      const Case value = makeCase(softcap, DType::FP32, bias);
      SampledReference reference(value, {.rows = 5, .entries = 20});
      REQUIRE(reference.rows().size() == 7);
      REQUIRE(reference.entries().size() > 20);
      for (const Comparison& comparison : reference.compare(partsOf(computeFull(value), reference, value))) {
        CAPTURE(comparison.name);
        CHECK(comparison.error < 1e-9);
      }
    }
}

TEST_CASE("every kind of wrong result is noticed") {
  const Case value = makeCase(false, DType::BF16, true);
  SampledReference reference(value, {.rows = 5, .entries = 20});
  const LossResult right = partsOf(computeFull(value), reference, value);
  REQUIRE(allOk(reference.compare(right)));
  const auto noticed = [&](auto change) {
    LossResult wrong = right;
    change(wrong);
    return !allOk(reference.compare(wrong));
  };
  CHECK(noticed([](LossResult& r) { r.loss *= 1.1; }));
  CHECK(noticed([](LossResult& r) { r.nll += 0.1; }));
  CHECK(noticed([](LossResult& r) { r.chosenLogitsMean += 0.1; }));
  CHECK(noticed([](LossResult& r) { r.rejectedLogps[1] += 0.1; }));
  CHECK(noticed([](LossResult& r) { r.gradInput[3] = NAN; }));
  CHECK(noticed([](LossResult& r) {
    for (double& g : r.gradWeight) g *= 1.05;
  }));
  CHECK(noticed([](LossResult& r) { r.gradBias[0] += 1; }));
  // Any row: those that are not sampled are held against the result that passed.
  for (int64_t row = 0; row < value.shape.rows(); ++row)
    CHECK(noticed([&](LossResult& r) { r.perTokenLogps[row] += 0.1; }));
}

TEST_CASE("a workload without gradients, and one without valid tokens, have a sample too") {
  Case value = makeCase(false, DType::FP32, false);
  value.workload.gradInput = value.workload.gradWeight = false;
  SampledReference reference(value, {});
  LossResult full = computeFull(value);
  CHECK(allOk(reference.compare(full)));

  Case empty = makeCase(false, DType::FP32, false);
  for (int64_t& target : empty.target) target = empty.scalars.ignoreIndex;
  SampledReference nothing(empty, {.rows = 5, .entries = 20});
  CHECK(nothing.rows().size() == 2);
  CHECK(allOk(nothing.compare(partsOf(computeFull(empty), nothing, empty))));
}
