//===- cli/CaseRun.h - A case on whichever device --------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "cli/Device.h"
#include "cli/PlanFlags.h"
#include "runtime/io/Case.h"
#include "runtime/reference/Reference.h"

namespace lathe::cli {

/// The loss and gradients of `value` on the host, in `Real`.
template <class Real> llvm::Expected<LossResult> runReference(const Case& value) {
  return computeReference<Real>({.workload = value.workload,
                                 .shape = value.shape,
                                 .scalars = value.scalars,
                                 .input = value.input.data(),
                                 .weight = value.weight.data(),
                                 .bias = value.bias.data(),
                                 .target = value.target.data()});
}

/// The plan that `flags` ask for on `gpu`.
llvm::Expected<PlanRequest> requestFor(const PlanFlags& flags, const Case& value, const GpuInfo& gpu);

/// An error where a run of `workload` and its results would not fit into this machine's memory.
llvm::Error checkHostMemory(const Workload& workload, const Shape& shape);

} // namespace lathe::cli
