//===- steps/logsumexp.cuh - Combine the tiles of a row ---------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// logsumexp, log-probability of the target and sum of the logits of every row, from the partial results of its column
/// tiles. A block takes 32 rows; kLanes threads share a row.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "common/math.cuh"
#include "common/rows.cuh"

namespace lathe::device {

/// A sum of powers of two, relative to the largest, whose exponent is `maximum`.
struct ScaledSum {
  /// Low enough for any logit, and finite, so that differences of two are never NaN.
  static constexpr float kLowest = -3.0e38f;

  float maximum = kLowest;
  float sum = 0.0f;

  __device__ __forceinline__ void add(float otherMaximum, float otherSum) {
    const float larger = fmaxf(maximum, otherMaximum);
    sum = sum * exp2Fast(maximum - larger) + otherSum * exp2Fast(otherMaximum - larger);
    maximum = larger;
  }
  __device__ __forceinline__ float logarithm() const { return maximum + log2f(sum); }
};

/// The rows of this block; every thread calls it.
template <class Config> __device__ void logsumexp(const LossArguments& arguments) {
  constexpr int kRows = 32;
  constexpr int kLanes = Config::kThreads / kRows;
  constexpr int kTiles = ceilDiv(Config::kVocab, Config::kLogitsBlockN);
  __shared__ float maxima[kLanes][kRows];
  __shared__ float sums[kLanes][kRows];
  __shared__ float logitSums[kLanes][kRows];

  const RowRange range(arguments.tables, arguments.slots);
  const int column = int(threadIdx.x % kRows);
  const int lane = int(threadIdx.x / kRows);
  const int local = int(blockIdx.x) * kRows + column;
  const TilePartials& partials = arguments.partials;

  ScaledSum total;
  float logitSum = 0.0f;
  if (local < range.count())
#pragma unroll 4
    for (int tile = lane; tile < kTiles; tile += kLanes) {
      const i64 at = tile * partials.pitch + local;
      total.add(partials.maximum[at], partials.sum[at]);
      if (Config::kLogitMeans) logitSum += partials.logitSum[at];
    }
  maxima[lane][column] = total.maximum;
  sums[lane][column] = total.sum;
  logitSums[lane][column] = logitSum;
  __syncthreads();
  if (lane != 0 || local >= range.count()) return;

  for (int i = 1; i < kLanes; ++i) {
    total.add(maxima[i][column], sums[i][column]);
    logitSum += logitSums[i][column];
  }
  const int row = range.begin + local;
  if (Config::kLogitMeans) arguments.rows.logitSum[row] = logitSum;
  if (row >= range.validEnd) return;
  const float value = total.logarithm();
  const float logp = arguments.targetLogit[row] - value * kLn2;
  arguments.rows.logsumexp[row] = value;
  arguments.rows.logp[row] = logp;
  if (arguments.rows.perTokenLogps != nullptr) arguments.rows.perTokenLogps[arguments.tables.rowToken[row]] = logp;
}

} // namespace lathe::device
