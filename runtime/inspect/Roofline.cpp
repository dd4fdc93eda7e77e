//===- runtime/inspect/Roofline.cpp - What the target's limits allow --------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/inspect/Roofline.h"

#include "generator/CostModel.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <tuple>

using namespace lathe;

namespace {

/// Of one multiprocessor in one clock, but for memory.
struct ArchitectureRates {
  int sm;
  double clockHz;
  double memoryBytes;
  /// Multiply-adds of 16-bit tensor operands, and of fp32 FMA units.
  double tensorMacs;
  double fmaMacs;
};

/// Boost clock and memory of the part that `knownTargets` names, arithmetic by architecture.
constexpr ArchitectureRates kArchitectures[] = {
    {75, 1.59e9, 0.32e12, 512, 64},   {80, 1.41e9, 2.04e12, 1024, 64},  {86, 1.74e9, 0.70e12, 512, 128},
    {87, 1.30e9, 0.20e12, 512, 128},  {89, 2.52e9, 0.86e12, 512, 128},  {90, 1.83e9, 3.35e12, 2048, 128},
    {100, 1.92e9, 8.0e12, 4096, 128}, {103, 1.92e9, 8.0e12, 4096, 128}, {120, 2.41e9, 1.79e12, 512, 128},
};

constexpr double kSharedBytesPerClock = 128;
constexpr double kMufuPerClock = 16;
/// What one multiprocessor draws from L2, measured; see docs/performance.md.
constexpr double kL2BytesPerClock = 40;
/// mma.sync reaches five eighths of the tensor cores' rate on Hopper; only wgmma reaches all of it.
constexpr double kMmaSyncShareOfHopper = 0.625;
/// A step that could be over sooner than this waits for its launch and for memory's latency instead.
constexpr double kLatencyMilliseconds = 0.003;

const ArchitectureRates& architectureOf(const Target& target) {
  const auto* found =
      llvm::find_if(kArchitectures, [&](const ArchitectureRates& rates) { return rates.sm == target.sm; });
  // An unknown architecture is taken for the newest data-centre part that is older.
  return found != std::end(kArchitectures) ? *found : kArchitectures[target.sm > 90 ? 6 : 1];
}

int64_t tilesAlong(int64_t extent, int tile) {
  return llvm::divideCeil(uint64_t(extent), uint64_t(tile));
}

/// Rows that a step multiplies when no token is masked.
int64_t rowsOf(const Step& step, const PlanGraph& graph) {
  return 2 * (step.pairEnd - step.pairBegin) * graph.shape.tokens;
}

/// Exponentials of a tile of logits, and the tanh of a soft cap (an exponential and a reciprocal).
double mufuPerTile(Gemm gemm, const Config& config, const Workload& workload) {
  if (gemm != Gemm::Logits) return 0;
  return double(config.blockM) * config.blockN * (workload.softcap ? 3 : 1);
}

/// Bytes that the warps of a block move between shared memory and registers or tensor cores in the hot loop for one
/// tile. What TMA writes is left out: it may overlap.
double sharedPerTile(const KernelInspection& kernel, const Config& config, const TileWork& tile) {
  if (!kernel.hotLoop) return 0;
  return kernel.loops[*kernel.hotLoop].sharedBytes * config.warpsM * config.warpsN * tile.iterations;
}

void addFloor(StepInspection& step, Bound bound, double amount, double rate) {
  if (amount > 0 && rate > 0) step.floors.push_back({bound, amount, rate});
}

void addProductFloors(StepInspection& result, Gemm gemm, const Step& step, const PlanGraph& graph,
                      const KernelInspection* kernel) {
  const Config& config = graph.choices.configs.of(gemm);
  const HardwareRates rates = ratesOf(graph.target);
  const TileWork tile = tileWorkOf(gemm, config, graph.workload, rowsOf(step, graph));
  addFloor(result, Bound::Compute, step.flops, peakFlops(config.family, graph.workload.dtype, graph.target));
  addFloor(result, Bound::L2, tile.bytes * double(tile.tiles), rates.l2Bytes);
  addFloor(result, Bound::Mufu, mufuPerTile(gemm, config, graph.workload) * double(tile.tiles), rates.mufuOperations);
  if (kernel && kernel->tile)
    addFloor(result, Bound::SharedMemory, sharedPerTile(*kernel, config, *kernel->tile) * double(tile.tiles),
             rates.sharedBytes);
  result.predictedMilliseconds = predictSeconds(config, gemm, graph.workload, graph.target, rowsOf(step, graph)) * 1e3;
}

} // namespace

llvm::StringRef lathe::toString(Bound bound) {
  constexpr llvm::StringLiteral kNames[] = {"compute", "memory", "L2", "shared memory", "mufu", "latency"};
  return kNames[static_cast<size_t>(bound)];
}

HardwareRates lathe::ratesOf(const Target& target) {
  const ArchitectureRates& architecture = architectureOf(target);
  const double clocks = architecture.clockHz * target.multiprocessors;
  HardwareRates rates;
  rates.clockHz = architecture.clockHz;
  rates.tensorFlops = 2 * architecture.tensorMacs * clocks;
  rates.fmaFlops = 2 * architecture.fmaMacs * clocks;
  rates.memoryBytes = architecture.memoryBytes;
  rates.l2Bytes = kL2BytesPerClock * clocks;
  rates.sharedBytes = kSharedBytesPerClock * clocks;
  rates.mufuOperations = kMufuPerClock * clocks;
  return rates;
}

double lathe::peakFlops(Family family, DType type, const Target& target) {
  const HardwareRates rates = ratesOf(target);
  if (family == Family::Simt) return rates.fmaFlops;
  const double share = family == Family::MmaSync && target.sm >= 90 && target.sm < 120 ? kMmaSyncShareOfHopper : 1;
  // tf32 operands are twice as wide.
  return rates.tensorFlops * share / (type == DType::FP32 ? 2 : 1);
}

TileWork lathe::tileWorkOf(Gemm gemm, const Config& config, const Workload& workload, int64_t rows) {
  const GemmExtents extents = gemmExtents(gemm, workload, rows);
  const double depth = double(tilesAlong(extents.k, config.blockK)) * config.blockK;
  TileWork work;
  work.tiles = tilesAlong(extents.m, config.blockM) * tilesAlong(extents.n, config.blockN);
  work.flops = 2.0 * config.blockM * config.blockN * depth;
  // Blocks of a cluster share what they fetch of B.
  const double fetched = config.blockM + double(config.blockN) / config.clusterM;
  work.bytes = fetched * depth * double(sizeOf(workload.dtype));
  return work;
}

StepInspection lathe::inspectStep(const Step& step, const PlanGraph& graph, const KernelInspection* kernel) {
  StepInspection result;
  result.step = toString(step.kind).str();
  result.pass = step.pass == Pass::Forward ? "forward" : "backward";
  result.pairBegin = step.pairBegin;
  result.pairEnd = step.pairEnd;
  for (size_t axis = 0; axis < 3; ++axis) result.grid[axis] = step.grid[axis];
  result.flops = step.flops;
  result.bytes = step.bytes;
  addFloor(result, Bound::Memory, step.bytes, ratesOf(graph.target).memoryBytes);
  if (const std::optional<Gemm> gemm = productOf(step.kind)) addProductFloors(result, *gemm, step, graph, kernel);

  llvm::sort(result.floors, [](const FloorTime& a, const FloorTime& b) {
    return std::pair(b.milliseconds(), a.bound) < std::pair(a.milliseconds(), b.bound);
  });
  if (!result.floors.empty()) result.floorMilliseconds = result.floors.front().milliseconds();
  if (result.floorMilliseconds > kLatencyMilliseconds) result.bound = result.floors.front().bound;
  return result;
}

Landscape lathe::landscapeOf(KernelKind kind, const PlanGraph& graph) {
  Landscape landscape;
  landscape.step = toString(kind).str();
  const std::optional<Gemm> gemm = productOf(kind);
  if (!gemm) return landscape;
  const Config& chosen = graph.choices.configs.of(*gemm);
  for (const Config& config : searchSpace(*gemm, graph.workload, graph.target))
    landscape.points.push_back({toString(config),
                                predictSeconds(config, *gemm, graph.workload, graph.target, graph.shape.rows()) * 1e3,
                                std::nullopt, config == chosen});
  llvm::sort(landscape.points, [](const LandscapePoint& a, const LandscapePoint& b) {
    return std::tie(a.predictedMilliseconds, a.config) < std::tie(b.predictedMilliseconds, b.config);
  });
  return landscape;
}
