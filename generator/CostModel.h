//===- generator/CostModel.h - Untuned choices ------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Ranks configs without a device, and chooses a strategy under a workspace limit. A plan with no tuning data is built
/// from these choices.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/PlanGraph.h"

#include <optional>

namespace lathe {

/// M, N and K of a product.
struct GemmExtents {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
};

/// The extents of `gemm` for `rows` valid rows.
GemmExtents gemmExtents(Gemm gemm, const Workload& workload, int64_t rows);

/// Predicted seconds of one product: whole waves of tiles, each bound by the tensor cores (or FMA units) or by the
/// bytes that it draws from L2, plus what filling the ring and the epilogue cost.
double predictSeconds(const Config& config, Gemm gemm, const Workload& workload, const Target& target, int64_t rows);

/// The best legal config for every product. `rows` is rounded up to a power of two, so that kernels serve a whole range
/// of batch sizes. The error says why the target has none.
llvm::Expected<GemmConfigs> chooseConfigs(const Workload& workload, const Target& target, int64_t rows);

/// What a caller may ask of a plan.
struct PlanRequest {
  /// The most workspace that the plan may use, in bytes; none: no limit.
  std::optional<int64_t> workspaceLimit = std::nullopt;
  /// None: stored where it fits, else chunked with the largest chunk that does.
  std::optional<Strategy> strategy = std::nullopt;
  /// Pairs of a chunk, for strategy chunked; none: the largest that fits, and without a limit a single pair, or the
  /// fewest that keep to kMostChunks.
  std::optional<int64_t> chunkPairs = std::nullopt;
  /// None: from the cost model.
  std::optional<GemmConfigs> configs = std::nullopt;

  friend bool operator==(const PlanRequest&, const PlanRequest&) = default;
};

/// Builds the plan that `request` describes. When the limit cannot be met the error says how much the leanest plan
/// needs.
llvm::Expected<PlanGraph> makePlan(const Workload& workload, const Shape& shape, const Target& target,
                                   const PlanRequest& request = {});

} // namespace lathe
