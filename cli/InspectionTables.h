//===- cli/InspectionTables.h - Inspections on a terminal -------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "cli/Session.h"
#include "lathe/inspect.h"

namespace lathe::cli {

/// The steps with their floors, and the resources of every kernel.
void printPlan(const PlanInspection& plan, const Session& session);

/// Everything known of one kernel: digests, resources, occupancy, instructions, hot loop, floors.
void printKernel(const PlanInspection& plan, const KernelInspection& kernel, const Session& session);

} // namespace lathe::cli
