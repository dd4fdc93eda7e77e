//===- runtime/api/PlanTuner.h - Tuning while a program runs ----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/CostModel.h"
#include "lathe/runtime.h"

#include <memory>

namespace lathe {

/// What a runtime needs of a tuner. The search is above this library: whoever makes a runtime that tunes hands one in.
class PlanTuner {
public:
  virtual ~PlanTuner() = default;

  /// Tunes for at most `seconds`, in this thread, so that the next plan for the arguments is a tuned one. What goes
  /// wrong is logged: the plan without tuning works as well.
  virtual void tuneNow(const Workload& workload, const Shape& shape, const PlanRequest& request,
                       std::optional<int> device, double seconds) = 0;

  /// Begins to tune what `plan` computes, for at most `seconds`, and returns. When a faster plan is found that needs no
  /// more workspace it becomes the successor of `plan`. At the second call for the same arguments nothing happens.
  virtual void tuneInBackground(std::shared_ptr<const Plan::Implementation> plan, const PlanRequest& request,
                                double seconds) = 0;
};

} // namespace lathe
