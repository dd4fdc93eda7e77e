//===- runtime/inspect/Roofline.h - What the target's limits allow ----------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/PlanGraph.h"
#include "lathe/inspect.h"

namespace lathe {

/// `compute`, `memory`, `L2`, `shared memory`, `mufu`, `latency`
llvm::StringRef toString(Bound bound);

/// The rates of `target`'s usual part: peaks from its data sheet, but for L2 what multiprocessors were measured to
/// draw.
HardwareRates ratesOf(const Target& target);

/// Peak FLOPs a second of products by `family` on elements of `type`.
double peakFlops(Family family, DType type, const Target& target);

/// The tiles of the product `gemm` with `config` for `rows` valid rows.
TileWork tileWorkOf(Gemm gemm, const Config& config, const Workload& workload, int64_t rows);

/// Floors, bound and prediction of `step`. `kernel` is its kernel where it was inspected, else null.
StepInspection inspectStep(const Step& step, const PlanGraph& graph, const KernelInspection* kernel);

/// The whole search space of `gemm` with the times that the cost model predicts, fastest first; the config of `graph`
/// is marked.
Landscape landscapeOf(KernelKind kind, const PlanGraph& graph);

} // namespace lathe
