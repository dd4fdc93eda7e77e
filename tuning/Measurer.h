//===- tuning/Measurer.h - How candidates are measured ---------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/cache/TuningDocument.h"

#include "llvm/ADT/ArrayRef.h"

namespace lathe {

/// A candidate to look at.
struct VisitRequest {
  TuningSubject subject = TuningSubject::Plan;
  PlanChoices choices;
  int repetitions = 1;
  /// Holds the outputs against the reference.
  bool check = false;
};

/// What a visit showed of the candidate.
struct Visit {
  /// One for every repetition; empty when the candidate failed.
  std::vector<double> milliseconds;
  /// Why it failed, in words; empty when it did not.
  std::string failure;
  /// As in TuningMeasurement.
  int64_t registers = 0;
  int64_t localBytes = 0;
  int64_t sharedBytes = 0;
  double strain = -1;
  /// Clock of the multiprocessors in MHz after the repetitions; 0 where unknown.
  double clock = 0;
  /// Whether heat or a fault of its supply slowed the device down.
  bool throttled = false;
};

/// Measures candidates on one device.
class Measurer {
public:
  virtual ~Measurer() = default;

  /// Begins to compile what `candidates` need, in their order, while visits go on.
  virtual void prepare(llvm::ArrayRef<VisitRequest> candidates) = 0;

  /// Runs a candidate. A candidate that cannot be compiled, faults, hangs or computes something wrong is a Visit with a
  /// failure; an error means that nothing can be measured at all.
  virtual llvm::Expected<Visit> visit(const VisitRequest& request) = 0;
};

} // namespace lathe
