//===- tuning/Tuner.h - Tuning a plan ---------------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/cache/TuningFile.h"
#include "tuning/Candidates.h"
#include "tuning/Search.h"

namespace lathe {

struct TunerOptions {
  /// How long tuning may take; what is found by then counts.
  double budgetSeconds = 60;
  /// The most visits to candidates; none: as the budget allows.
  std::optional<int64_t> visits = std::nullopt;
  /// Configs of each product that are measured, the best by the cost model; 0: all that are legal.
  size_t width = 32;
  /// Tunes anew where there is a result for this very setting.
  bool again = false;
  SearchOptions search = {};
};

/// How one subject was searched.
struct SubjectReport {
  TuningSubject subject = TuningSubject::Plan;
  std::vector<Standing> standings;
};

struct TunerReport {
  TunedPlan plan;
  /// A result was there already, and nothing was measured.
  bool known = false;
  /// Visits, and how many of them were taken from an earlier run that did not end.
  int64_t visits = 0;
  int64_t resumed = 0;
  /// Visits during which the device was slowed down by heat or its supply.
  int64_t throttled = 0;
  double seconds = 0;
  std::vector<SubjectReport> subjects;
};

/// Tunes `problem` on the device of `measurer`, which `setting` names: each product alone, then the plan as a whole
/// with the best of them. Every measurement is in `file` before the next begins; a run that did not end is taken up by
/// the next one with the same setting, and the result is kept there too. `file` may be null: then nothing is kept. A
/// candidate wins only after its outputs were checked; one that failed once in this setting is not tried again. `now`
/// is a clock in seconds. The error says why nothing can be measured, or why not even the untuned plan works.
llvm::Expected<TunerReport> tune(const TuningProblem& problem, const TuningSetting& setting, Measurer& measurer,
                                 const TuningFile* file, const TunerOptions& options, const SearchListener& listener,
                                 const std::function<double()>& now);

} // namespace lathe
