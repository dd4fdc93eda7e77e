//===- generator/CostModel.cpp - Untuned choices ----------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "generator/CostModel.h"

#include "generator/Workload.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace lathe;

namespace {

/// Multiply-adds per clock of one multiprocessor, dense, for a family and element type.
double macsPerClock(const Config& config, const Workload& workload, const Target& target) {
  if (config.family == Family::Simt) return target.sm == 75 || target.sm == 80 ? 64 : 128;
  if (config.family == Family::Wgmma) return 2048;
  const bool dataCentre = target.sm == 80 || target.sm == 90 || target.sm == 100 || target.sm == 103;
  const double sixteenBit = dataCentre ? 1180 : 512;
  return workload.dtype == DType::FP32 ? sixteenBit / 2 : sixteenBit;
}

constexpr double kClock = 1.6e9;
/// What one multiprocessor draws from L2, in bytes per clock.
constexpr double kL2BytesPerClock = 40;
/// What bytes cost while the arithmetic hides them: the power that they draw lowers the clock.
constexpr double kHiddenCost = 0.1;
/// Clocks that a tile spends filling its ring and in its epilogue while its own products rest.
constexpr double kTileOverhead = 3000;

/// The share of the peak that a warp's part of the tile reaches: operands are read from shared memory once per part.
/// Measured on an H200, see docs/performance.md.
double warpEfficiency(const Config& config) {
  if (config.family == Family::Simt) return 0.6;
  if (config.family == Family::Wgmma) return config.blockN == 256 ? 0.78 : 0.70;
  const double perimeter = double(config.warpsM) / config.blockM + double(config.warpsN) / config.blockN;
  return 1.0 / (1.0 + 8.0 * perimeter);
}

/// Deep rings hide the latency of memory; what is left unhidden, as a factor.
double ringFactor(const Config& config) {
  const int inFlight = (config.stages - 1) * config.blocksPerMultiprocessor;
  return 1.0 + 0.25 / (inFlight * inFlight);
}

int64_t tilesOf(int64_t extent, int tile) {
  return llvm::divideCeil(uint64_t(extent), uint64_t(tile));
}

/// Bytes from memory that the order of tiles costs: a group of row tiles is swept once for every column tile.
double rasterBytes(const Config& config, const GemmExtents& extents, const Workload& workload, const Target& target) {
  const double element = double(sizeOf(workload.dtype));
  const double groupRows = double(config.groupM) * config.clusterM * config.blockM;
  const double groups = std::ceil(double(extents.m) / groupRows);
  const double groupBytes = groupRows * double(extents.k) * element;
  const double columns = double(extents.n) * double(extents.k) * element;
  const double rows = double(extents.m) * double(extents.k) * element;
  // What of a group L2 cannot hold is read again for every wave of tiles. L2 keeps about a third of its size of what is
  // read over and over while the other operand streams through.
  const double resident = double(target.l2Bytes) * 0.3;
  const double waves = std::ceil(groupRows / config.blockM * double(tilesOf(extents.n, config.blockN)) /
                                 (double(target.multiprocessors) * config.blocksPerMultiprocessor));
  const double rereads = 1.0 + waves * std::max(0.0, 1.0 - resident / groupBytes);
  return columns * groups + rows * rereads;
}

double memoryBytesPerSecond(const Target& target) {
  switch (target.sm) {
  case 80:
    return 1.6e12;
  case 90:
    return 3.0e12;
  case 100:
  case 103:
    return 6.0e12;
  default:
    return 0.7e12;
  }
}

} // namespace

GemmExtents lathe::gemmExtents(Gemm gemm, const Workload& workload, int64_t rows) {
  switch (gemm) {
  case Gemm::Logits:
    return {rows, workload.vocab, workload.hidden};
  case Gemm::GradInput:
    return {rows, workload.hidden, workload.vocab};
  case Gemm::GradWeight:
    return {workload.vocab, workload.hidden, rows};
  }
  llvm_unreachable("unknown product");
}

double lathe::predictSeconds(const Config& config, Gemm gemm, const Workload& workload, const Target& target,
                             int64_t rows) {
  const GemmExtents extents = gemmExtents(gemm, workload, rows);
  const int resident = config.blocksPerMultiprocessor;
  const double tiles = double(tilesOf(extents.m, config.blockM)) * double(tilesOf(extents.n, config.blockN));
  const double waves = std::ceil(tiles / (double(target.multiprocessors) * resident));
  const double tile = double(config.blockM) * config.blockN;
  const double depth = double(tilesOf(extents.k, config.blockK)) * config.blockK;
  const double math = tile * depth / (macsPerClock(config, workload, target) * warpEfficiency(config));
  // Blocks of a cluster share what they fetch of B.
  const double fetched = config.blockM + double(config.blockN) / config.clusterM;
  const double fetch = fetched * depth * double(sizeOf(workload.dtype)) / kL2BytesPerClock;
  const double perTile = std::max(math, fetch) * ringFactor(config) + kTileOverhead / resident;
  const double compute = waves * resident * (perTile + kHiddenCost * fetch) / kClock;
  const double memory = rasterBytes(config, extents, workload, target) / memoryBytesPerSecond(target);
  return std::max(compute, memory) + kHiddenCost * memory;
}

llvm::Expected<GemmConfigs> lathe::chooseConfigs(const Workload& workload, const Target& target, int64_t rows) {
  const int64_t bucket = static_cast<int64_t>(llvm::PowerOf2Ceil(static_cast<uint64_t>(rows)));
  const auto best = [&](Gemm gemm) -> llvm::Expected<Config> {
    const std::vector<Config> space = searchSpace(gemm, workload, target);
    if (space.empty())
      return makeError(ErrorCode::Unsupported, "no kernel for {0} fits {1}: {2} bytes of shared memory per block",
                       toString(gemm), target.arch(), target.sharedPerBlock);
    return *llvm::min_element(space, [&](const Config& a, const Config& b) {
      return predictSeconds(a, gemm, workload, target, bucket) < predictSeconds(b, gemm, workload, target, bucket);
    });
  };
  llvm::Expected<Config> logits = best(Gemm::Logits);
  if (!logits) return logits.takeError();
  llvm::Expected<Config> gradInput = best(Gemm::GradInput);
  if (!gradInput) return gradInput.takeError();
  llvm::Expected<Config> gradWeight = best(Gemm::GradWeight);
  if (!gradWeight) return gradWeight.takeError();
  return GemmConfigs{*logits, *gradInput, *gradWeight};
}

namespace {

/// The plan with the largest chunk from 1 to `most` pairs that needs no more than `limit` bytes; with 1 pair if none.
llvm::Expected<PlanGraph> largestChunkWithin(const Workload& workload, const Shape& shape, const Target& target,
                                             const GemmConfigs& configs, int64_t limit, int64_t most) {
  int64_t low = 1;
  int64_t high = most;
  const auto planOf = [&](int64_t pairs) {
    return buildPlan(workload, shape, target, {Strategy::Chunked, pairs, configs});
  };
  // The workspace grows with the chunk, so bisect.
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    llvm::Expected<PlanGraph> plan = planOf(middle);
    const bool fits = plan && plan->workspaceBytes <= limit;
    // A chunk may be too large for a kernel too; what is wrong with every chunk is wrong with the last one built.
    if (!plan) llvm::consumeError(plan.takeError());
    if (fits)
      low = middle;
    else
      high = middle - 1;
  }
  return planOf(low);
}

} // namespace

llvm::Expected<PlanGraph> lathe::makePlan(const Workload& workload, const Shape& shape, const Target& target,
                                          const PlanRequest& request) {
  if (llvm::Error error = validate(workload)) return error;
  if (llvm::Error error = validate(workload, shape)) return error;
  llvm::Expected<GemmConfigs> configs =
      request.configs ? llvm::Expected<GemmConfigs>(*request.configs) : chooseConfigs(workload, target, shape.rows());
  if (!configs) return configs.takeError();
  const int64_t limit = request.workspaceLimit.value_or(std::numeric_limits<int64_t>::max());
  const auto withinLimit = [&](llvm::Expected<PlanGraph> plan) -> llvm::Expected<PlanGraph> {
    if (!plan || plan->workspaceBytes <= limit) return plan;
    return makeError(
        ErrorCode::Workspace,
        "a plan needs {0} bytes of workspace (strategy {1}, {2} pairs a chunk), the limit is {3}; raise the "
        "limit or split the batch",
        plan->workspaceBytes, toString(plan->choices.strategy), plan->choices.chunkPairs, limit);
  };

  if (request.strategy != Strategy::Chunked) {
    llvm::Expected<PlanGraph> stored = buildPlan(workload, shape, target, {Strategy::Stored, shape.pairs(), *configs});
    const bool fits = stored && stored->workspaceBytes <= limit;
    if (fits || request.strategy == Strategy::Stored) return withinLimit(std::move(stored));
    // Rows that are too many for a kernel at once may do in chunks; the chunked plan meets every other error again.
    if (!stored) llvm::consumeError(stored.takeError());
  }
  if (request.chunkPairs)
    return withinLimit(buildPlan(workload, shape, target, {Strategy::Chunked, *request.chunkPairs, *configs}));
  const int64_t most = request.workspaceLimit ? shape.pairs() : 1;
  return withinLimit(largestChunkWithin(workload, shape, target, *configs, limit, most));
}
