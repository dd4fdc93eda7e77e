//===- runtime/reference/Compare.cpp - Results against results --------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/reference/Compare.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace lathe;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// got - want, and 0 where both are NaN. NaN where both are the same infinity.
double difference(double got, double want) {
  return std::isnan(got) && std::isnan(want) ? 0 : got - want;
}

/// Largest allowed errors of gradients and of all other values.
struct Tolerances {
  double gradients;
  double values;
};

Tolerances tolerancesOf(const Workload& workload) {
  const bool exact = workload.dtype == DType::FP32 && workload.precision == Precision::IEEE;
  return exact ? Tolerances{1e-5, 1e-5} : Tolerances{1e-2, 2e-3};
}

} // namespace

double lathe::relativeL2(llvm::ArrayRef<double> got, llvm::ArrayRef<double> want) {
  if (got.size() != want.size()) return kInfinity;
  double wrong = 0;
  double norm = 0;
  for (const auto [g, w] : llvm::zip_equal(got, want)) {
    const double delta = difference(g, w);
    wrong += delta * delta;
    if (std::isfinite(w)) norm += w * w;
  }
  return norm > 0 ? std::sqrt(wrong / norm) : std::sqrt(wrong);
}

double lathe::mixedError(llvm::ArrayRef<double> got, llvm::ArrayRef<double> want) {
  if (got.size() != want.size()) return kInfinity;
  double largest = 0;
  for (const auto [g, w] : llvm::zip_equal(got, want)) {
    const double delta = std::abs(difference(g, w));
    if (std::isnan(delta)) return delta;
    // An infinity that only one side has stays an infinite error.
    largest = std::max(largest, std::isinf(delta) ? delta : delta / (1 + std::abs(w)));
  }
  return largest;
}

std::vector<Comparison> lathe::compare(const LossResult& got, const LossResult& want, const Workload& workload) {
  const Tolerances tolerances = tolerancesOf(workload);
  std::vector<Comparison> comparisons;
  const auto add = [&](const char* name, double error, double tolerance) {
    comparisons.push_back({name, error, tolerance, error <= tolerance});
  };
  const auto value = [&](const char* name, double LossResult::* member) {
    add(name, mixedError(got.*member, want.*member), tolerances.values);
  };
  const auto values = [&](const char* name, std::vector<double> LossResult::* member) {
    if (!(want.*member).empty()) add(name, mixedError(got.*member, want.*member), tolerances.values);
  };
  const auto gradient = [&](const char* name, std::vector<double> LossResult::* member) {
    if (!(want.*member).empty()) add(name, relativeL2(got.*member, want.*member), tolerances.gradients);
  };

  value("loss", &LossResult::loss);
  value("preference_loss", &LossResult::preferenceLoss);
  if (workload.nll) value("nll_loss", &LossResult::nll);
  if (workload.logitMeans) {
    value("chosen_logits_mean", &LossResult::chosenLogitsMean);
    value("rejected_logits_mean", &LossResult::rejectedLogitsMean);
  }
  values("chosen_logps", &LossResult::chosenLogps);
  values("rejected_logps", &LossResult::rejectedLogps);
  values("chosen_rewards", &LossResult::chosenRewards);
  values("rejected_rewards", &LossResult::rejectedRewards);
  values("per_token_logps", &LossResult::perTokenLogps);
  gradient("grad_input", &LossResult::gradInput);
  gradient("grad_weight", &LossResult::gradWeight);
  gradient("grad_bias", &LossResult::gradBias);
  return comparisons;
}
