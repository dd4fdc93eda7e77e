//===- runtime/launch/CheckArguments.h - Checks before a launch -------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/PlanGraph.h"
#include "lathe/runtime.h"

namespace lathe {

/// Which results a call is to give.
struct WantedResults {
  bool loss = false;
  bool gradients = false;
};

/// Checks the arguments of one run of `plan`: pointers present, absent and aligned as the workload asks, the workspace
/// large enough, the scalars valid. The error names the argument and its value.
llvm::Error checkArguments(const PlanGraph& plan, const RunArguments& run, WantedResults wanted);

} // namespace lathe
