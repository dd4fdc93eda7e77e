//===- steps/pair_loss.cuh - SimPO loss of every pair -----------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Mean log-probabilities of the two sequences of a pair, the pair's loss, and the derivative of the whole loss by any
/// one token's log-probability.
///
/// With a the mean log-probabilities, d = beta (a_chosen - a_rejected) - gamma and s the label smoothing, the pair adds
/// -(1 - s) log sigmoid(d) - s log sigmoid(-d), averaged over pairs (SimPO, arXiv:2405.14734, with the smoothing of
/// conservative DPO); nll adds -alpha times the mean log-probability over all chosen tokens.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "common/math.cuh"
#include "common/rows.cuh"

namespace lathe::device {

/// log(1 + exp(x)) without overflow.
__device__ __forceinline__ float softplus(float x) {
  return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
}
__device__ __forceinline__ float sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}

/// The loss of a pair and its derivative by d.
struct PairTerm {
  float loss;
  float derivative;
};

__device__ __forceinline__ PairTerm simpoTerm(float d, float labelSmoothing) {
  return {(1.0f - labelSmoothing) * softplus(-d) + labelSmoothing * softplus(d),
          labelSmoothing * sigmoid(d) - (1.0f - labelSmoothing) * sigmoid(-d)};
}

/// One pair; the whole block calls it. `scratch` holds kThreads / 32 doubles.
template <class Config> __device__ void pairLoss(const LossArguments& arguments, int pair, double* scratch) {
  constexpr int kThreads = Config::kThreads;
  const PairTables& pairs = arguments.pairs;
  float mean[2];
  int count[2];

  for (int side = 0; side < 2; ++side) {
    const int slot = 2 * pair + side;
    const int begin = arguments.tables.slotStart[slot];
    const int end = arguments.tables.slotStart[slot + 1];
    double logp = 0.0;
    double logits = 0.0;
    for (int row = begin + int(threadIdx.x); row < end; row += kThreads) {
      logp += arguments.rows.logp[row];
      if (Config::kLogitMeans) logits += arguments.rows.logitSum[row];
    }
    logp = reduceBlock<kThreads>(logp, scratch, Sum());
    logits = reduceBlock<kThreads>(logits, scratch, Sum());
    count[side] = end - begin;
    mean[side] = count[side] > 0 ? float(logp / count[side]) : 0.0f;
    if (threadIdx.x == 0) {
      pairs.slotMean[slot] = mean[side];
      pairs.slotSum[slot] = logp;
      pairs.slotLogitSum[slot] = logits;
    }
  }
  if (threadIdx.x != 0) return;

  const LossScalars& scalars = arguments.scalars;
  const PairTerm term = simpoTerm(scalars.beta * (mean[0] - mean[1]) - scalars.gamma, scalars.labelSmoothing);
  pairs.pairLoss[pair] = term.loss;
  const float slope = term.derivative * scalars.beta / float(arguments.pairCount);
  const int chosenValid = arguments.tables.state->chosenValid;
  const float nll = Config::kNll && chosenValid > 0 ? scalars.alpha / float(chosenValid) : 0.0f;
  pairs.slotCoefficient[2 * pair] = count[0] > 0 ? slope / float(count[0]) - nll : 0.0f;
  pairs.slotCoefficient[2 * pair + 1] = count[1] > 0 ? -slope / float(count[1]) : 0.0f;
}

} // namespace lathe::device
