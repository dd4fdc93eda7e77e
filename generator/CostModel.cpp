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

/// Finds the largest chunk of pairs that fits a limit.
class ChunkSearch {
public:
  ChunkSearch(const Workload& workload, const Shape& shape, const Target& target, const GemmConfigs& configs)
      : workload_(workload), shape_(shape), target_(target), configs_(configs) {}

  /// Pairs of the largest chunk that needs no more than `limit` bytes, or of the leanest when none does.
  ///
  /// The workspace grows with the chunk while the number of chunks stays, but fewer chunks need fewer partial sums of
  /// the bias gradient. So the numbers of chunks are tried from 1, each with its smallest chunk.
  int64_t largestWithin(int64_t limit) const {
    const int64_t pairs = shape_.pairs();
    int64_t leanest = smallestChunk();
    std::optional<int64_t> leanestBytes = bytesOf(leanest);
    for (int64_t above = pairs + 1, least = pairs; least >= smallestChunk(); above = least, least = chunkBelow(least)) {
      const std::optional<int64_t> bytes = bytesOf(least);
      if (!bytes) continue;
      if (*bytes <= limit) return largestBetween(least, above, limit);
      if (!leanestBytes || *bytes < *leanestBytes) {
        leanest = least;
        leanestBytes = bytes;
      }
    }
    return leanest;
  }

  /// Pairs of the smallest chunk that keeps to kMostChunks.
  int64_t smallestChunk() const { return llvm::divideCeil(uint64_t(shape_.pairs()), uint64_t(kMostChunks)); }

private:
  /// The smallest chunk that makes as few chunks as one of `chunk` - 1 pairs; 0 when that is none.
  int64_t chunkBelow(int64_t chunk) const {
    if (chunk == 1) return 0;
    const uint64_t pairs = uint64_t(shape_.pairs());
    return llvm::divideCeil(pairs, llvm::divideCeil(pairs, uint64_t(chunk - 1)));
  }

  /// The largest chunk below `high` that fits; `low` does.
  int64_t largestBetween(int64_t low, int64_t high, int64_t limit) const {
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      const std::optional<int64_t> bytes = bytesOf(middle);
      (bytes && *bytes <= limit ? low : high) = middle;
    }
    return low;
  }

  /// None when the chunk is too large for a kernel; what is wrong with every chunk is wrong with the one that is built
  /// in the end.
  std::optional<int64_t> bytesOf(int64_t chunkPairs) const {
    llvm::Expected<PlanGraph> plan = layOutPlan(workload_, shape_, target_, {Strategy::Chunked, chunkPairs, configs_});
    if (plan) return plan->workspaceBytes;
    llvm::consumeError(plan.takeError());
    return std::nullopt;
  }

  const Workload& workload_;
  const Shape& shape_;
  const Target& target_;
  const GemmConfigs& configs_;
};

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
  const ChunkSearch search(workload, shape, target, *configs);
  const int64_t chunkPairs = request.chunkPairs       ? *request.chunkPairs
                             : request.workspaceLimit ? search.largestWithin(limit)
                                                      : search.smallestChunk();
  return withinLimit(buildPlan(workload, shape, target, {Strategy::Chunked, chunkPairs, *configs}));
}
