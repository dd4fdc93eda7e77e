//===- cli/InspectDiff.h - Two kernels side by side -------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "cli/Session.h"
#include "generator/PlanGraph.h"
#include "lathe/inspect.h"

namespace lathe::cli {

/// One kernel of a comparison.
struct DiffSide {
  KernelInspection kernel;
  std::optional<StepInspection> step;
  /// The source in one file, without includes.
  std::string flatSource;
  /// Whether the unit is known, not only the source in one file.
  bool hasUnit = false;
};

/// The kernel of `kind` in `graph`; with `fresh` compiled anew, whatever the cache has.
llvm::Expected<DiffSide> sideOfPlan(const PlanGraph& graph, KernelKind kind, bool fresh, const Session& session);

/// A kernel from a cache by the first digits of its digest, or a cubin's file.
llvm::Expected<DiffSide> sideOfCubin(llvm::StringRef what, const Session& session);

/// The kernel of `kind` in `graph` as a plan finds it in the cache; the error says when it is not there.
llvm::Expected<DiffSide> sideInCache(const PlanGraph& graph, KernelKind kind, const Session& session);

/// Compares and prints, as JSON with `json`: what differs, in figures and in the source.
void printComparison(DiffSide first, DiffSide second, bool json, const Session& session);

} // namespace lathe::cli
