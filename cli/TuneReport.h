//===- cli/TuneReport.h - What tuning shows --------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "cli/Session.h"
#include "tuning/Tuner.h"
#include "tuning/WorkloadList.h"

#include <chrono>

namespace lathe::cli {

/// Shows how tuning goes on: a bar that is redrawn on a terminal, else a line for every round; or JSON events, one a
/// line, on standard output.
class TuneReporter {
public:
  TuneReporter(const Session& session, bool json, double budgetSeconds)
      : session_(session), json_(json), budget_(budgetSeconds) {}

  /// Item `index` of `count`, counted from 0.
  void begin(const WorkItem& item, size_t index, size_t count);
  void progress(const SearchProgress& progress);
  void end(const WorkItem& item, const TunerReport& report);
  void fail(const WorkItem& item, llvm::StringRef message);

private:
  double secondsSinceBegin() const;
  void emit(llvm::json::Object event) const;
  void drawBar(const SearchProgress& progress);
  void clearBar();
  void printReport(const TunerReport& report) const;

  const Session& session_;
  const bool json_;
  const double budget_;
  std::chrono::steady_clock::time_point begin_;
  std::string where_;
  bool barShown_ = false;
};

/// What was measured of each product's candidates over what the cost model predicts, as a picture.
std::string landscapeSvg(const TuningProblem& problem, const TunerReport& report);

/// Prints every point of the search space of every product: what the cost model makes of it, or why it is illegal, and
/// what was measured of it.
void explain(const TuningProblem& problem, const TuningDocument& known, bool json, const Session& session);

} // namespace lathe::cli
