//===- generator/PlanGraph.h - The ordered steps of a plan -----*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// A plan without a GPU: which kernels run in which order on which grid, and where in the workspace their data lies.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Specialization.h"

#include <string>
#include <vector>

namespace lathe {

/// How gradients trade memory for time. *Stored* keeps E of all rows; *chunked* of one chunk of pairs at a time.
enum class Strategy : uint8_t { Stored, Chunked };
llvm::StringRef toString(Strategy strategy);
llvm::Expected<Strategy> parseStrategy(llvm::StringRef name);

/// A named range of the workspace; offsets are multiples of 256 bytes.
struct WorkspaceRegion {
  std::string name;
  int64_t offset = 0;
  int64_t bytes = 0;
};

/// Which call a step belongs to: the loss, the gradients, or both when they run as one.
enum class Pass : uint8_t { Forward, Backward };

/// One launch.
struct Step {
  KernelKind kind;
  Pass pass;
  /// The pairs it covers, `[pairBegin, pairEnd)`.
  int64_t pairBegin = 0;
  int64_t pairEnd = 0;
  /// Blocks; always enough for the case that no token is masked. Surplus blocks leave at once.
  int64_t grid[3] = {1, 1, 1};
  /// Work when no token is masked.
  double flops = 0;
  double bytes = 0;
  /// For logits: whether E is written.
  bool storesExponentials = false;
};

/// The choices that a plan is built from.
struct PlanChoices {
  Strategy strategy = Strategy::Stored;
  /// Pairs of a chunk; all pairs when stored.
  int64_t chunkPairs = 0;
  GemmConfigs configs;

  friend bool operator==(const PlanChoices&, const PlanChoices&) = default;
};

/// The ordered steps for one workload and shape.
struct PlanGraph {
  Workload workload;
  Shape shape;
  Target target;
  PlanChoices choices;
  /// Loss alone, loss and gradients as one call, gradients alone after a `forward` on the same workspace.
  std::vector<Step> forward;
  std::vector<Step> forwardBackward;
  std::vector<Step> backward;
  std::vector<WorkspaceRegion> regions;
  int64_t workspaceBytes = 0;

  /// Rows that the products may meet: all tokens, and the tail of means where there is one.
  int64_t rowCapacity() const;
  /// Rows of E: those of one chunk, rounded up to device::kRowPadding.
  int64_t panelRows() const;

  /// Every kind of kernel that the steps use, each once.
  std::vector<KernelKind> kernels() const;
  /// Null when the plan has no such region.
  const WorkspaceRegion* findRegion(llvm::StringRef name) const;
};

/// The most chunks that a plan may have; each is several launches.
inline constexpr int64_t kMostChunks = 65536;

/// Lays out the workspace alone: the plan without its steps, as quickly for many chunks as for one. The error says
/// which limit is broken.
llvm::Expected<PlanGraph> layOutPlan(const Workload& workload, const Shape& shape, const Target& target,
                                     const PlanChoices& choices);

/// Lays out the plan. The error says which limit is broken.
llvm::Expected<PlanGraph> buildPlan(const Workload& workload, const Shape& shape, const Target& target,
                                    const PlanChoices& choices);

} // namespace lathe
