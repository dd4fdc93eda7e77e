//===- steps/outputs.cuh - Combine the pairs into the results ---------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// The loss, its parts, and every reported figure, from the per-pair tables.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "common/math.cuh"
#include "common/rows.cuh"
#include "common/tail.cuh"

namespace lathe::device {

/// Sum of the logits of the masked tokens of `group`, from the tail rows.
template <class Config> __device__ double maskedLogitSum(const LossArguments& arguments, int group, double* scratch) {
  const RunState& state = *arguments.tables.state;
  if (state.tailRows == 0) return 0.0;
  const float* tail = arguments.rows.logitSum + state.validRows;
  if constexpr (!Config::kSoftcap) {
    const double mean = tail[2 * group] + double(tail[2 * group + 1]) / lowScale<typename Config::Element>();
    return mean * state.maskedOf[group];
  }
  const int firstRejected = arguments.pairCount * arguments.tokens;
  double sum = 0.0;
  for (int i = int(threadIdx.x); i < state.tailRows; i += Config::kThreads)
    if ((arguments.tables.maskedToken[i] >= firstRejected) == (group == 1)) sum += tail[i];
  return reduceBlock<Config::kThreads>(sum, scratch, Sum());
}

__device__ __forceinline__ void store(float* to, double value) {
  if (to != nullptr) *to = float(value);
}
__device__ __forceinline__ void storeAt(float* to, int index, float value) {
  if (to != nullptr) to[index] = value;
}

/// The whole block calls it. `scratch` holds kThreads / 32 doubles.
template <class Config> __device__ void outputs(const LossArguments& arguments, double* scratch) {
  constexpr int kThreads = Config::kThreads;
  const PairTables& pairs = arguments.pairs;
  const LossOutputs& out = arguments.outputs;
  const RunState& state = *arguments.tables.state;

  double preference = 0.0;
  double chosenSum = 0.0;
  double logits[2] = {0.0, 0.0};
  for (int pair = int(threadIdx.x); pair < arguments.pairCount; pair += kThreads) {
    preference += pairs.pairLoss[pair];
    chosenSum += pairs.slotSum[2 * pair];
    for (int side = 0; side < 2; ++side) logits[side] += pairs.slotLogitSum[2 * pair + side];
    const float chosen = pairs.slotMean[2 * pair];
    const float rejected = pairs.slotMean[2 * pair + 1];
    storeAt(out.chosenLogps, pair, chosen);
    storeAt(out.rejectedLogps, pair, rejected);
    storeAt(out.chosenRewards, pair, arguments.scalars.beta * chosen);
    storeAt(out.rejectedRewards, pair, arguments.scalars.beta * rejected);
  }
  preference = reduceBlock<kThreads>(preference, scratch, Sum()) / arguments.pairCount;
  chosenSum = reduceBlock<kThreads>(chosenSum, scratch, Sum());
  for (int side = 0; side < 2; ++side) {
    logits[side] = reduceBlock<kThreads>(logits[side], scratch, Sum());
    if (Config::kLogitMeans) logits[side] += maskedLogitSum<Config>(arguments, side, scratch);
  }
  if (threadIdx.x != 0) return;

  const double nll = Config::kNll && state.chosenValid > 0 ? -chosenSum / state.chosenValid : 0.0;
  const double logitCount = double(arguments.pairCount) * arguments.tokens * Config::kVocab;
  // A bad target outweighs an ignored nll or an infinite logit: the loss is NaN whenever one was seen.
  const double loss =
      state.badTargets > 0 ? double(quietNan()) : preference + (Config::kNll ? arguments.scalars.alpha * nll : 0.0);
  store(out.loss, loss);
  store(out.preferenceLoss, preference);
  store(out.nll, nll);
  store(out.chosenLogitsMean, logits[0] / logitCount);
  store(out.rejectedLogitsMean, logits[1] / logitCount);
  if (out.diagnostics != nullptr)
    *out.diagnostics = {state.validRows, state.emptySequences, state.badTargets,
                        state.firstBad < 0 ? -1 : state.firstBad / arguments.tokens,
                        state.firstBad < 0 ? -1 : state.firstBad % arguments.tokens};
}

} // namespace lathe::device
