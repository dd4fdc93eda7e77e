//===- runtime/api/PlanDescription.h - A plan as JSON -----------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/PlanGraph.h"
#include "runtime/cache/TuningDocument.h"
#include "runtime/kernels/KernelStore.h"

namespace lathe {

/// Workload, shape, target, choices, workspace regions, steps of every pass, and the resources of `kernels` (which may
/// be empty when nothing was compiled).
llvm::json::Value toJson(const PlanGraph& graph, llvm::ArrayRef<KernelPointer> kernels);

/// Where a tuned plan comes from: setting, date, times, and whether it is stale.
llvm::json::Value toJson(const TunedChoice& tuned);

/// What the cubin of `kernel` needs: registers, shared memory, local memory, code bytes.
llvm::json::Value toJson(const Kernel& kernel);

} // namespace lathe
