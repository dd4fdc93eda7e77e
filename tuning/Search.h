//===- tuning/Search.h - Finding the fastest of many -----------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Successive halving. Every round visits all candidates that are left, each time beginning with another, so that a
/// device that warms up slows all of them alike: whoever is left has been in every round, and rounds are compared one
/// by one. After a round the slower half is dropped, but nobody who is behind by no more than noise.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "tuning/Measure.h"
#include "tuning/Measurer.h"

#include <functional>

namespace lathe {

/// When a search ends, whatever is left.
struct SearchLimits {
  /// On the clock of `now`, in seconds.
  double deadline = 0;
  std::function<double()> now;
  /// Visits that may still be made; counted down.
  int64_t* visitsLeft = nullptr;

  bool reached() const { return now() >= deadline || (visitsLeft && *visitsLeft <= 0); }
};

/// A candidate and how it fared.
struct Standing {
  PlanChoices choices;
  /// Of all repetitions; none when it failed in its first round.
  Timing timing;
  /// Why it failed; empty when it did not.
  std::string failure;
  int rounds = 0;
  /// Whether it was still in the search at its end.
  bool finalist = false;
};

/// Where a search stands after a visit.
struct SearchProgress {
  TuningSubject subject = TuningSubject::Plan;
  int round = 0;
  /// Candidates that are left, and visits of this round so far.
  size_t left = 0;
  size_t visited = 0;
  /// What was visited.
  const PlanChoices* choices = nullptr;
  const Visit* visit = nullptr;
  /// Least time of a visit so far, in milliseconds; 0 before the first.
  double best = 0;
};

using VisitFunction = std::function<llvm::Expected<Visit>(const VisitRequest&)>;
using SearchListener = std::function<void(const SearchProgress&)>;

struct SearchOptions {
  /// Repetitions of a visit.
  int repetitions = 3;
  /// Rounds after which those that are left count as equal.
  int mostRounds = 10;
  /// A lead that is known this precisely, as a share of the time, needs no more rounds.
  double precision = 0.002;
  /// Checks the outputs of every candidate in its first round.
  bool check = false;
};

/// Looks for the fastest of `candidates`. At least the first round is made for the first candidate. The result has the
/// finalists first, then those that were dropped, each by time, and then those that failed. An error of `visit` ends
/// the search.
llvm::Expected<std::vector<Standing>> findFastest(TuningSubject subject, llvm::ArrayRef<PlanChoices> candidates,
                                                  const SearchOptions& options, const SearchLimits& limits,
                                                  const VisitFunction& visit, const SearchListener& listener);

} // namespace lathe
