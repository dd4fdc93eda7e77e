//===- tuning/Measure.h - Times on a GPU -----------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/api/DeviceRun.h"

#include <vector>

namespace lathe {

/// Times of one thing that was run repeatedly, in milliseconds.
struct Timing {
  double median = 0;
  /// A fifth of the times are below `p20`, a fifth above `p80`.
  double p20 = 0;
  double p80 = 0;
  int repetitions = 0;
  /// The median is between these with 95 % confidence, whatever the distribution of the times. With fewer than six
  /// times the least and the greatest, and less confidence.
  double low = 0;
  double high = 0;
};

/// Quantiles of `milliseconds`, interpolated between neighbours. All zero when there are none.
Timing summarize(std::vector<double> milliseconds);

/// Times of a plan.
struct PlanTiming {
  /// From the first kernel's start to the last one's end.
  Timing whole;
  /// One for every step, in the order of `steps`.
  std::vector<Timing> stepTimings;
  std::vector<Step> steps;
};

/// The steps of one run: the loss, and the gradients where the plan has any, as one call or as two.
std::vector<Step> stepsOfRun(const PlanGraph& graph, bool twoCalls);

/// Runs `value` `repetitions` times after one warm-up, and as often again step by step. Before each repetition a buffer
/// larger than the L2 cache is written, so that inputs come from memory as they do in training. The time of a step
/// begins when the step before it has ended. `twoCalls` must be as in the options that `value` was uploaded with. The
/// inputs and results of `value` stay as a run leaves them.
llvm::Expected<PlanTiming> measurePlan(const DeviceCase& value, bool twoCalls, int repetitions);

/// Times of `repetitions` runs of `value` after one warm-up, each with a cold L2 cache, in milliseconds: of the steps
/// whose kernel is among `counted`, together; of the whole plan when that is empty.
llvm::Expected<std::vector<double>> timeSteps(const DeviceCase& value, llvm::ArrayRef<KernelKind> counted,
                                              int repetitions);

} // namespace lathe
