//===- cli/InspectMeasure.h - Measured times of an inspection ---------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "cli/Session.h"
#include "generator/PlanGraph.h"
#include "lathe/inspect.h"

#include "llvm/ADT/ArrayRef.h"

namespace lathe::cli {

/// Runs the plan `repetitions` times on the first GPU, on random inputs of which no token is masked, and notes the
/// median of each of `steps` that the plan has. The GPU must be one that `graph` is for.
llvm::Error measureSteps(const PlanGraph& graph, const Scalars& scalars, int repetitions, const Session& session,
                         llvm::MutableArrayRef<StepInspection> steps);

} // namespace lathe::cli
