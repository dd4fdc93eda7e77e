//===- cli/PlanInputs.h - What a plan is made from --------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "cli/PlanFlags.h"
#include "cli/Session.h"
#include "cli/WorkloadOptions.h"

namespace lathe::cli {

/// A workload, the GPU and what is asked of its plan, as the command line has them.
struct PlanInputs {
  WorkloadInput workload;
  Target target;
  PlanRequest request;

  llvm::Expected<PlanGraph> plan() const { return makePlan(workload.workload, workload.shape, target, request); }
};

/// `arch` is that of --arch; empty for the first GPU here.
llvm::Expected<PlanInputs> resolvePlanInputs(const WorkloadOptions& workload, llvm::StringRef arch,
                                             const PlanFlags& flags, const Session& session);

/// Adds `--step`: one kernel, or `all`.
void addStepOption(CLI::App& verb, std::string& step);

} // namespace lathe::cli
