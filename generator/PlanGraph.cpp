//===- generator/PlanGraph.cpp - The ordered steps of a plan ----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "generator/PlanGraph.h"

#include "generator/Workload.h"
#include "templates/common/arguments.cuh"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

using namespace lathe;

llvm::StringRef lathe::toString(Strategy strategy) {
  return strategy == Strategy::Stored ? "stored" : "chunked";
}

llvm::Expected<Strategy> lathe::parseStrategy(llvm::StringRef name) {
  if (name == "stored") return Strategy::Stored;
  if (name == "chunked") return Strategy::Chunked;
  return makeError(ErrorCode::InvalidArgument, "unknown strategy \"{0}\"; it must be stored or chunked", name);
}

namespace {

constexpr int64_t kAlignment = 256;
/// Blocks of a launch along y.
constexpr int64_t kMostGridRows = 65535;

int64_t ceilDiv(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

int64_t padded(int64_t rows) {
  return ceilDiv(rows, device::kRowPadding) * device::kRowPadding;
}

/// Sizes that steps and regions are computed from.
struct Extents {
  const PlanGraph& plan;
  const Workload& workload = plan.workload;
  const Shape& shape = plan.shape;
  const PlanChoices& choices = plan.choices;

  int64_t tokens() const { return shape.rows(); }
  int64_t rowCapacity() const { return plan.rowCapacity(); }
  int64_t chunkRows() const { return 2 * choices.chunkPairs * shape.tokens; }
  int64_t logitsTiles() const { return ceilDiv(workload.vocab, choices.configs.logits.blockN); }
  int64_t elementBytes() const { return sizeOf(workload.dtype); }
  /// Blocks of grad_logits along the rows of one chunk.
  int64_t gradLogitsBlocks(int64_t rows) const { return ceilDiv(rows, kGradLogitsRowsPerBlock); }
};

class LayoutBuilder {
public:
  explicit LayoutBuilder(const Extents& extents) : extents_(extents) {}

  void add(const char* name, int64_t count, int64_t elementBytes) {
    regions_.push_back({name, offset_, count * elementBytes});
    offset_ += ceilDiv(count * elementBytes, kAlignment) * kAlignment;
  }

  void addAll() {
    const int64_t sequences = extents_.shape.sequences;
    const int64_t tokens = extents_.tokens();
    const int64_t rows = extents_.rowCapacity();
    const int64_t partials = extents_.logitsTiles() * rows;
    add("state", 1, sizeof(device::RunState));
    add("slot_start", sequences + 1, 4);
    add("row_token", tokens, 4);
    add("row_target", tokens, 4);
    add("masked_token", tokens, 4);
    add("target_logit", tokens, 4);
    add("row_logsumexp", tokens, 4);
    add("row_logp", tokens, 4);
    add("row_logit_sum", rows, 4);
    add("slot_mean", sequences, 4);
    add("slot_sum", sequences, 8);
    add("slot_logit_sum", sequences, 8);
    add("pair_loss", sequences / 2, 8);
    add("slot_coefficient", sequences, 4);
    add("rows", (rows + device::kRowPadding) * rowPitch(extents_.workload), extents_.elementBytes());
    add("tile_maximum", partials, 4);
    add("tile_sum", partials, 4);
    if (extents_.workload.logitMeans) add("tile_logit_sum", partials, 4);
    if (!extents_.workload.anyGradient()) return;
    add("exponentials", extents_.plan.panelRows() * paddedVocab(extents_.workload), extents_.elementBytes());
    if (extents_.workload.gradBias)
      add("bias_partials",
          ceilDiv(extents_.shape.pairs(), extents_.choices.chunkPairs) *
              extents_.gradLogitsBlocks(extents_.chunkRows()) * paddedVocab(extents_.workload),
          4);
  }

  std::vector<WorkspaceRegion> takeRegions() { return std::move(regions_); }
  int64_t bytes() const { return offset_; }

private:
  const Extents& extents_;
  std::vector<WorkspaceRegion> regions_;
  int64_t offset_ = 0;
};

/// Appends steps to one of a plan's passes.
class StepBuilder {
public:
  StepBuilder(const Extents& extents, std::vector<Step>& steps) : extents_(extents), steps_(steps) {}

  void prepareRows() {
    const double input = double(extents_.tokens()) * extents_.workload.hidden * extents_.elementBytes();
    add({KernelKind::RowMap, Pass::Forward, 0, pairs(), {1, 1, 1}, 0, 20.0 * extents_.tokens()});
    add({KernelKind::GatherRows,
         Pass::Forward,
         0,
         pairs(),
         {ceilDiv(extents_.rowCapacity() + device::kRowPadding, 8) + meanBlocks(), 1, 1},
         0,
         2 * input});
  }

  void logits(Pass pass, int64_t begin, int64_t end, bool storesExponentials) {
    const Config& config = extents_.choices.configs.logits;
    const int64_t rows = rowsOf(begin, end);
    const bool last = end == pairs();
    const int64_t capacity = std::min(extents_.rowCapacity(), rows + (last ? tailCapacity() : 0));
    add({KernelKind::Logits,
         pass,
         begin,
         end,
         {blocks(config, capacity, extents_.workload.vocab), 1, 1},
         gemmFlops(rows),
         gemmBytes(rows) + (storesExponentials ? panelBytes(rows) : 0),
         storesExponentials});
  }

  void loss(int64_t begin, int64_t end) {
    const int64_t capacity =
        std::min(extents_.rowCapacity(), rowsOf(begin, end) + (end == pairs() ? tailCapacity() : 0));
    add({KernelKind::Loss,
         Pass::Forward,
         begin,
         end,
         {ceilDiv(capacity, 32), 1, 1},
         0,
         12.0 * capacity * extents_.logitsTiles()});
  }

  void gradients(int64_t begin, int64_t end) {
    const Workload& workload = extents_.workload;
    const int64_t rows = rowsOf(begin, end);
    add({KernelKind::GradLogits,
         Pass::Backward,
         begin,
         end,
         {paddedVocab(workload) * extents_.elementBytes() / 128, extents_.gradLogitsBlocks(rows), 1},
         0,
         2 * panelBytes(rows)});
    if (workload.gradInput) product(KernelKind::GradInput, extents_.choices.configs.gradInput, begin, end, rows, 0);
    if (workload.gradWeight)
      product(KernelKind::GradWeight, extents_.choices.configs.gradWeight, begin, end, workload.vocab,
              double(workload.vocab) * workload.hidden * sizeOf(workload.gradWeightDType) * (begin > 0 ? 2 : 1));
  }

  void finishGradients() {
    const Workload& workload = extents_.workload;
    if (workload.gradBias)
      add({KernelKind::GradBias, Pass::Backward, 0, pairs(), {ceilDiv(workload.vocab, 256), 1, 1}, 0, 0});
  }

  /// Calls `body(begin, end)` for every chunk of pairs.
  template <class Body> void forEachChunk(Body body) {
    for (int64_t begin = 0; begin < pairs(); begin += extents_.choices.chunkPairs)
      body(begin, std::min(begin + extents_.choices.chunkPairs, pairs()));
  }

  int64_t pairs() const { return extents_.shape.pairs(); }

private:
  /// Blocks of gather_rows that compute the means of masked tokens.
  int64_t meanBlocks() const {
    const Workload& workload = extents_.workload;
    return workload.logitMeans && !workload.softcap ? 2 * ceilDiv(rowPitch(workload), 64) : 0;
  }
  void add(const Step& step) { steps_.push_back(step); }

  int64_t rowsOf(int64_t begin, int64_t end) const { return 2 * (end - begin) * extents_.shape.tokens; }
  int64_t tailCapacity() const {
    if (!extents_.workload.logitMeans) return 0;
    return extents_.workload.softcap ? extents_.tokens() : device::kMeanRows;
  }
  /// Blocks for a product of M x N: one a tile, or as many as the device holds of persistent ones.
  int64_t blocks(const Config& config, int64_t m, int64_t n) const {
    const int64_t tilesM = ceilDiv(ceilDiv(m, config.blockM), config.clusterM) * config.clusterM;
    const int64_t tiles = tilesM * ceilDiv(n, config.blockN);
    if (config.family != Family::Wgmma) return tiles;
    return std::min<int64_t>(tiles, extents_.plan.target.multiprocessors / config.clusterM * config.clusterM);
  }
  double gemmFlops(int64_t rows) const {
    return 2.0 * double(rows) * double(extents_.workload.vocab) * double(extents_.workload.hidden);
  }
  double panelBytes(int64_t rows) const {
    return double(rows) * double(paddedVocab(extents_.workload)) * double(extents_.elementBytes());
  }
  double gemmBytes(int64_t rows) const {
    return double(rows + extents_.workload.vocab) * double(extents_.workload.hidden) * double(extents_.elementBytes());
  }
  void product(KernelKind kind, const Config& config, int64_t begin, int64_t end, int64_t entries, double extraBytes) {
    const int64_t rows = rowsOf(begin, end);
    add({kind,
         Pass::Backward,
         begin,
         end,
         {blocks(config, entries, extents_.workload.hidden), 1, 1},
         gemmFlops(rows),
         panelBytes(rows) + gemmBytes(rows) + extraBytes});
  }

  const Extents& extents_;
  std::vector<Step>& steps_;
};

void addPasses(const Extents& extents, PlanGraph& plan) {
  const bool gradients = extents.workload.anyGradient();
  const bool stored = extents.choices.strategy == Strategy::Stored;

  StepBuilder forward(extents, plan.forward);
  forward.prepareRows();
  forward.logits(Pass::Forward, 0, forward.pairs(), gradients && stored);
  forward.loss(0, forward.pairs());
  if (!gradients) return;

  StepBuilder backward(extents, plan.backward);
  backward.forEachChunk([&](int64_t begin, int64_t end) {
    if (!stored) backward.logits(Pass::Backward, begin, end, true);
    backward.gradients(begin, end);
  });
  backward.finishGradients();

  StepBuilder both(extents, plan.forwardBackward);
  both.prepareRows();
  both.forEachChunk([&](int64_t begin, int64_t end) {
    both.logits(Pass::Forward, begin, end, true);
    both.loss(begin, end);
    both.gradients(begin, end);
  });
  both.finishGradients();
}

llvm::Error checkChoices(const Workload& workload, const Shape& shape, const Target& target,
                         const PlanChoices& choices) {
  if (choices.chunkPairs < 1 || choices.chunkPairs > shape.pairs())
    return makeError(ErrorCode::InvalidArgument, "a chunk of {0} pairs was asked for; it must be from 1 to {1}",
                     choices.chunkPairs, shape.pairs());
  if (choices.strategy == Strategy::Stored && choices.chunkPairs != shape.pairs())
    return makeError(ErrorCode::InvalidArgument, "strategy stored takes all {0} pairs as one chunk, not {1}",
                     shape.pairs(), choices.chunkPairs);
  if (const int64_t chunks = ceilDiv(shape.pairs(), choices.chunkPairs); chunks > kMostChunks)
    return makeError(ErrorCode::InvalidArgument,
                     "{0} pairs in chunks of {1} are {2} chunks, a plan has at most {3}; use chunks of at least {4} "
                     "pairs",
                     shape.pairs(), choices.chunkPairs, chunks, kMostChunks, ceilDiv(shape.pairs(), kMostChunks));
  for (const Gemm gemm : {Gemm::Logits, Gemm::GradInput, Gemm::GradWeight})
    if (llvm::Error error = checkConfig(choices.configs.of(gemm), gemm, workload, target)) return error;
  return llvm::Error::success();
}

/// Sizes are counted in 64 bits; nothing near their limit could be allocated.
llvm::Error checkBytes(const PlanGraph& plan) {
  constexpr double kMost = 0x1p60;
  const Workload& workload = plan.workload;
  const double rows = double(plan.rowCapacity() + device::kRowPadding) * double(rowPitch(workload));
  const double panels = workload.anyGradient() ? double(plan.panelRows()) * double(paddedVocab(workload)) : 0.0;
  const double bytes = (rows + panels) * double(sizeOf(workload.dtype));
  if (bytes <= kMost) return llvm::Error::success();
  return makeError(
      ErrorCode::Unsupported,
      "{0} tokens with H = {1} and V = {2} need a workspace of about {3:e1} bytes; use fewer tokens per run",
      plan.shape.rows(), workload.hidden, workload.vocab, bytes);
}

/// TMA addresses rows of E by 32-bit coordinates, and grad_logits by the y of its grid.
llvm::Error checkPanelRows(const PlanGraph& plan) {
  if (!plan.workload.anyGradient()) return llvm::Error::success();
  const int64_t panels = paddedVocab(plan.workload) * sizeOf(plan.workload.dtype) / 128;
  const GemmConfigs& configs = plan.choices.configs;
  const bool usesMaps = configs.gradInput.family == Family::Wgmma || configs.gradWeight.family == Family::Wgmma;
  const std::string remedy = plan.choices.chunkPairs > 1
                                 ? llvm::formatv("use chunks of fewer than {0} pairs", plan.choices.chunkPairs).str()
                                 : llvm::formatv("use sequences of fewer than {0} tokens", plan.shape.tokens).str();
  if (usesMaps && panels * plan.panelRows() > INT32_MAX)
    return makeError(ErrorCode::Unsupported, "{0} rows of exponentials at once are too many for wgmma kernels; {1}",
                     plan.panelRows(), remedy);
  if (plan.panelRows() > kMostGridRows * kGradLogitsRowsPerBlock)
    return makeError(ErrorCode::Unsupported, "{0} rows of exponentials at once are too many for a grid; {1}",
                     plan.panelRows(), remedy);
  return llvm::Error::success();
}

/// Launch grids have at most 2^31 - 1 blocks along x.
llvm::Error checkGrids(const std::vector<Step>& steps) {
  for (const Step& step : steps)
    if (step.grid[0] > INT32_MAX || step.grid[1] > kMostGridRows)
      return makeError(ErrorCode::Unsupported, "{0} would need a grid of {1} x {2} blocks; use {3}",
                       toString(step.kind), step.grid[0], step.grid[1],
                       step.kind == KernelKind::GradWeight ? "a smaller H or V" : "fewer tokens per run");
  return llvm::Error::success();
}

} // namespace

std::vector<KernelKind> PlanGraph::kernels() const {
  std::vector<KernelKind> kinds;
  for (const std::vector<Step>* steps : {&forward, &forwardBackward, &backward})
    for (const Step& step : *steps)
      if (!llvm::is_contained(kinds, step.kind)) kinds.push_back(step.kind);
  return kinds;
}

int64_t PlanGraph::rowCapacity() const {
  return shape.rows() + (workload.logitMeans && !workload.softcap ? device::kMeanRows : 0);
}

int64_t PlanGraph::panelRows() const {
  return padded(2 * choices.chunkPairs * shape.tokens);
}

const WorkspaceRegion* PlanGraph::findRegion(llvm::StringRef name) const {
  const auto found = llvm::find_if(regions, [&](const WorkspaceRegion& region) { return region.name == name; });
  return found == regions.end() ? nullptr : &*found;
}

llvm::Expected<PlanGraph> lathe::layOutPlan(const Workload& workload, const Shape& shape, const Target& target,
                                            const PlanChoices& choices) {
  if (llvm::Error error = validate(workload)) return error;
  if (llvm::Error error = validate(workload, shape)) return error;
  if (llvm::Error error = checkChoices(workload, shape, target, choices)) return error;

  PlanGraph plan{workload, shape, target, choices, {}, {}, {}, {}, 0};
  if (llvm::Error error = checkBytes(plan)) return error;
  if (llvm::Error error = checkPanelRows(plan)) return error;
  const Extents extents{plan};
  LayoutBuilder layout(extents);
  layout.addAll();
  plan.regions = layout.takeRegions();
  plan.workspaceBytes = layout.bytes();
  return plan;
}

llvm::Expected<PlanGraph> lathe::buildPlan(const Workload& workload, const Shape& shape, const Target& target,
                                           const PlanChoices& choices) {
  llvm::Expected<PlanGraph> plan = layOutPlan(workload, shape, target, choices);
  if (!plan) return plan;
  addPasses(Extents{*plan}, *plan);
  for (const std::vector<Step>* steps : {&plan->forward, &plan->forwardBackward, &plan->backward})
    if (llvm::Error error = checkGrids(*steps)) return error;
  return plan;
}
