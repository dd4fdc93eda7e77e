//===- runtime/io/LossResult.h - What a run computes -----------*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include <cstdint>
#include <vector>

namespace lathe {

/// Counts taken from the targets of a run.
struct Diagnostics {
  /// Sequences without a valid token.
  int64_t emptySequences = 0;
  /// Targets outside [0, V) that are not the ignored index.
  int64_t badTargets = 0;
  /// Where the first of them is, in row-major order; -1 without one.
  int64_t firstBadSequence = -1;
  int64_t firstBadToken = -1;
  /// Tokens whose target is not the ignored index, bad ones included.
  int64_t validTokens = 0;

  friend bool operator==(const Diagnostics&, const Diagnostics&) = default;
};

/// Everything that a run computes, on the host in double precision. An empty vector means that the value was not
/// computed (or, for expected values, is not known).
struct LossResult {
  double loss = 0;
  double preferenceLoss = 0;
  /// 0 when the workload has no nll.
  double nll = 0;
  /// 0 when the workload has no logit means.
  double chosenLogitsMean = 0;
  double rejectedLogitsMean = 0;
  /// One value a pair: mean log-probability of the sequence, and beta times it.
  std::vector<double> chosenLogps;
  std::vector<double> rejectedLogps;
  std::vector<double> chosenRewards;
  std::vector<double> rejectedRewards;
  /// `[2B, T]`; 0 where the target is ignored, NaN where it is bad.
  std::vector<double> perTokenLogps;
  /// `[2B, T, H]`, `[V, H]`, `[V]`, row-major.
  std::vector<double> gradInput;
  std::vector<double> gradWeight;
  std::vector<double> gradBias;
  Diagnostics diagnostics;
};

} // namespace lathe
