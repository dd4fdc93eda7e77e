//===- runtime/launch/StepBinder.cpp - From a step to its parameter ---------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/launch/StepBinder.h"

#include "llvm/Support/MathExtras.h"

using namespace lathe;

// The diagnostics reach the caller as the device wrote them.
static_assert(sizeof(RunDiagnostics) == sizeof(device::Diagnostics));

WorkspaceOffsets::WorkspaceOffsets(const PlanGraph& plan) {
  const auto offset = [&](llvm::StringRef name) {
    const WorkspaceRegion* region = plan.findRegion(name);
    return region ? region->offset : -1;
  };
  state = offset("state");
  slotStart = offset("slot_start");
  rowToken = offset("row_token");
  rowTarget = offset("row_target");
  maskedToken = offset("masked_token");
  targetLogit = offset("target_logit");
  rowLogsumexp = offset("row_logsumexp");
  rowLogp = offset("row_logp");
  rowLogitSum = offset("row_logit_sum");
  slotMean = offset("slot_mean");
  slotSum = offset("slot_sum");
  slotLogitSum = offset("slot_logit_sum");
  pairLoss = offset("pair_loss");
  slotCoefficient = offset("slot_coefficient");
  rows = offset("rows");
  tileMaximum = offset("tile_maximum");
  tileSum = offset("tile_sum");
  tileLogitSum = offset("tile_logit_sum");
  exponentials = offset("exponentials");
  biasPartials = offset("bias_partials");
}

device::RowTables StepBinder::tables() const {
  return {at<device::RunState>(offsets_.state), at<int>(offsets_.slotStart), at<int>(offsets_.rowToken),
          at<int>(offsets_.rowTarget), at<int>(offsets_.maskedToken)};
}

device::PairTables StepBinder::pairs() const {
  return {at<float>(offsets_.slotMean), at<double>(offsets_.slotSum), at<double>(offsets_.slotLogitSum),
          at<double>(offsets_.pairLoss), at<float>(offsets_.slotCoefficient)};
}

device::TilePartials StepBinder::partials() const {
  return {at<float>(offsets_.tileMaximum), at<float>(offsets_.tileSum), at<float>(offsets_.tileLogitSum),
          plan_.rowCapacity()};
}

device::Panels StepBinder::panels() const {
  return {at<void>(offsets_.exponentials), plan_.panelRows()};
}

device::LossScalars StepBinder::scalars() const {
  const Scalars& s = run_.scalars;
  return {static_cast<float>(s.beta), static_cast<float>(s.gamma), static_cast<float>(s.labelSmoothing),
          static_cast<float>(s.alpha)};
}

device::SlotRange StepBinder::slots(const Step& step) const {
  const bool withTail = step.pass == Pass::Forward && step.pairEnd == plan_.shape.pairs();
  return {static_cast<int>(2 * step.pairBegin), static_cast<int>(2 * step.pairEnd), withTail ? 1 : 0};
}

int64_t StepBinder::gradLogitsBlocks(int64_t pairs) const {
  return static_cast<int64_t>(llvm::divideCeil(static_cast<uint64_t>(2 * pairs * plan_.shape.tokens),
                                               static_cast<uint64_t>(kGradLogitsRowsPerBlock)));
}

device::RowMapArguments StepBinder::rowMap() const {
  return {reinterpret_cast<const long long*>(run_.target),
          tables(),
          at<float>(offsets_.targetLogit),
          run_.perTokenLogps,
          run_.scalars.ignoreIndex,
          static_cast<int>(plan_.shape.sequences),
          static_cast<int>(plan_.shape.tokens)};
}

device::GatherRowsArguments StepBinder::gatherRows() const {
  return {run_.input, at<void>(offsets_.rows), tables(), static_cast<int>(plan_.shape.sequences),
          static_cast<int>(plan_.shape.tokens)};
}

device::LogitsArguments StepBinder::logits(const Step& step) const {
  return {at<void>(offsets_.rows),
          run_.weight,
          run_.bias,
          tables(),
          slots(step),
          partials(),
          at<float>(offsets_.targetLogit),
          step.storesExponentials ? panels() : device::Panels{nullptr, 0},
          static_cast<float>(run_.scalars.logitScale),
          static_cast<float>(run_.scalars.softcap)};
}

device::RowResults StepBinder::rowResults() const {
  return {at<float>(offsets_.rowLogsumexp), at<float>(offsets_.rowLogp), at<float>(offsets_.rowLogitSum),
          run_.perTokenLogps};
}

device::LossOutputs StepBinder::outputs() const {
  return {run_.loss,
          run_.preferenceLoss,
          run_.nll,
          run_.chosenLogps,
          run_.rejectedLogps,
          run_.chosenRewards,
          run_.rejectedRewards,
          run_.chosenLogitsMean,
          run_.rejectedLogitsMean,
          reinterpret_cast<device::Diagnostics*>(run_.diagnostics)};
}

device::LossArguments StepBinder::loss(const Step& step) const {
  return {
      tables(), slots(step), partials(), at<float>(offsets_.targetLogit),       rowResults(),
      pairs(),  scalars(),   outputs(),  static_cast<int>(plan_.shape.pairs()), static_cast<int>(plan_.shape.tokens)};
}

device::GradLogitsArguments StepBinder::gradLogits(const Step& step) const {
  float* biasPartials = at<float>(offsets_.biasPartials);
  if (biasPartials)
    biasPartials += step.pairBegin / plan_.choices.chunkPairs * gradLogitsBlocks(plan_.choices.chunkPairs) *
                    paddedVocab(plan_.workload);
  return {panels(),
          partials(),
          tables(),
          slots(step),
          upstream(),
          at<float>(offsets_.rowLogsumexp),
          at<float>(offsets_.targetLogit),
          at<float>(offsets_.slotCoefficient),
          plan_.workload.gradInput ? run_.gradInput : nullptr,
          biasPartials,
          static_cast<int>(plan_.shape.sequences),
          static_cast<int>(plan_.shape.tokens),
          static_cast<float>(run_.scalars.logitScale),
          static_cast<float>(run_.scalars.softcap)};
}

device::GradBiasArguments StepBinder::gradBias() const {
  const int64_t chunk = plan_.choices.chunkPairs;
  const int64_t fullChunks = (plan_.shape.pairs() - 1) / chunk;
  const int64_t lastPairs = plan_.shape.pairs() - fullChunks * chunk;
  return {at<float>(offsets_.biasPartials), run_.gradBias,
          static_cast<int>(fullChunks * gradLogitsBlocks(chunk) + gradLogitsBlocks(lastPairs)),
          run_.accumulate ? 1 : 0};
}

device::GradInputArguments StepBinder::gradInput(const Step& step) const {
  return {panels(), run_.weight, run_.gradInput, tables(), slots(step), upstream()};
}

device::GradWeightArguments StepBinder::gradWeight(const Step& step) const {
  return {panels(),
          at<void>(offsets_.rows),
          run_.gradWeight,
          tables(),
          slots(step),
          upstream(),
          run_.accumulate || step.pairBegin > 0 ? 1 : 0};
}

StepBinder::TensorSource StepBinder::rowsSource(int64_t boxRows) const {
  const Workload& workload = plan_.workload;
  const int64_t rows = plan_.rowCapacity() + device::kRowPadding;
  return {at<void>(offsets_.rows),
          workload.dtype,
          workload.hidden,
          rows,
          rowPitch(workload) * sizeOf(workload.dtype),
          boxRows};
}

StepBinder::TensorSource StepBinder::weightSource(int64_t boxRows) const {
  const Workload& workload = plan_.workload;
  return {run_.weight, workload.dtype, workload.hidden, workload.vocab, workload.hidden * sizeOf(workload.dtype),
          boxRows};
}

StepBinder::TensorSource StepBinder::panelsSource(int64_t boxRows) const {
  const DType dtype = plan_.workload.dtype;
  const int64_t panel = 128 / sizeOf(dtype);
  const int64_t rows = paddedVocab(plan_.workload) / panel * plan_.panelRows();
  return {at<void>(offsets_.exponentials), dtype, panel, rows, 128, boxRows};
}

StepBinder::TensorSource StepBinder::gradWeightSource(int64_t boxRows) const {
  const Workload& workload = plan_.workload;
  const DType dtype = workload.gradWeightDType;
  return {run_.gradWeight, dtype, workload.hidden, workload.vocab, workload.hidden * sizeOf(dtype), boxRows};
}

StepBinder::TensorSources StepBinder::tensorSources(const Step& step) const {
  // A consumer warpgroup copies its own rows of the tile.
  constexpr int64_t kCopiedRows = 64;
  const GemmConfigs& configs = plan_.choices.configs;
  switch (step.kind) {
  case KernelKind::Logits:
    return {rowsSource(configs.logits.blockM), weightSource(configs.logits.blockN / configs.logits.clusterM),
            step.storesExponentials ? std::optional(panelsSource(kCopiedRows)) : std::nullopt};
  case KernelKind::GradInput:
    return {panelsSource(configs.gradInput.blockM), weightSource(configs.gradInput.blockK), std::nullopt};
  case KernelKind::GradWeight:
    return {panelsSource(configs.gradWeight.blockK), rowsSource(configs.gradWeight.blockK),
            gradWeightSource(kCopiedRows)};
  default:
    llvm_unreachable("only products have tensor maps");
  }
}
