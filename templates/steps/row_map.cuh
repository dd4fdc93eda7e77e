//===- steps/row_map.cuh - Find the valid tokens ----------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Numbers the valid tokens in slot order, counts them, and checks every target. One block: the whole target tensor is
/// read once, kTokensPerThread tokens a thread at a time.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "common/math.cuh"
#include "common/rows.cuh"

namespace lathe::device {

/// Exclusive prefix sum of `value` over a block of `kThreads`; `total` gets the sum. `scratch`: kThreads / 32 ints.
template <int kThreads> __device__ __forceinline__ int exclusiveScan(int value, int* scratch, int& total) {
  const int lane = threadIdx.x % 32;
  int inclusive = value;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const int below = __shfl_up_sync(0xffffffffu, inclusive, offset);
    if (lane >= offset) inclusive += below;
  }
  if (lane == 31) scratch[threadIdx.x / 32] = inclusive;
  __syncthreads();
  int before = 0;
  total = 0;
  for (int warp = 0; warp < kThreads / 32; ++warp) {
    if (warp == threadIdx.x / 32) before = total;
    total += scratch[warp];
  }
  __syncthreads();
  return before + inclusive - value;
}

template <class Config> __device__ void rowMap(const RowMapArguments& arguments) {
  constexpr int kThreads = Config::kThreads;
  constexpr int kTokensPerThread = 4;
  constexpr int kNone = 0x7fffffff;
  __shared__ int scratch[kThreads / 32];

  const RowTables& tables = arguments.tables;
  const int sequences = Config::kSequences > 0 ? Config::kSequences : arguments.sequences;
  const int tokens = Config::kTokens > 0 ? Config::kTokens : arguments.tokens;
  // Fewer than 2^31 tokens, so that no sum below passes 2^32.
  const u32 count = u32(sequences) * u32(tokens);

  int validBefore = 0;
  int maskedChosen = 0;
  int chosenValid = 0;
  int badTargets = 0;
  int firstBad = kNone;

  for (u32 base = 0; base < count; base += kThreads * kTokensPerThread) {
    const u32 first = base + threadIdx.x * kTokensPerThread;
    i64 targets[kTokensPerThread];
    int token[kTokensPerThread];
    int slot[kTokensPerThread];
    int valid = 0;
#pragma unroll
    for (int i = 0; i < kTokensPerThread; ++i) {
      targets[i] = arguments.ignoreIndex;
      if (first + i < count) {
        slot[i] = int((first + i) / u32(tokens));
        token[i] = sequenceOfSlot(slot[i], sequences) * tokens + int((first + i) % u32(tokens));
        targets[i] = arguments.target[token[i]];
      }
      valid += targets[i] != arguments.ignoreIndex;
    }

    int total;
    int row = validBefore + exclusiveScan<kThreads>(valid, scratch, total);
#pragma unroll
    for (int i = 0; i < kTokensPerThread; ++i) {
      if (first + i >= count) break;
      if (token[i] % tokens == 0) tables.slotStart[slot[i]] = row;
      if (targets[i] == arguments.ignoreIndex) {
        tables.maskedToken[first + i - u32(row)] = token[i];
        maskedChosen += slot[i] % 2 == 0;
        if (arguments.perTokenLogps != nullptr) arguments.perTokenLogps[token[i]] = 0.0f;
        continue;
      }
      const bool bad = targets[i] < 0 || targets[i] >= Config::kVocab;
      tables.rowToken[row] = token[i];
      tables.rowTarget[row] = bad ? -1 : int(targets[i]);
      // The logits kernel overwrites this for every good target.
      arguments.targetLogit[row] = quietNan();
      chosenValid += slot[i] % 2 == 0;
      badTargets += bad;
      if (bad && token[i] < firstBad) firstBad = token[i];
      ++row;
    }
    validBefore += total;
  }
  if (threadIdx.x == 0) tables.slotStart[sequences] = validBefore;
  __syncthreads();

  int empty = 0;
  for (int slot = threadIdx.x; slot < sequences; slot += kThreads)
    empty += tables.slotStart[slot] == tables.slotStart[slot + 1];

  RunState state;
  state.validRows = validBefore;
  state.maskedTokens = int(count) - validBefore;
  state.maskedOf[0] = reduceBlock<kThreads>(maskedChosen, scratch, Sum());
  state.maskedOf[1] = state.maskedTokens - state.maskedOf[0];
  state.chosenValid = reduceBlock<kThreads>(chosenValid, scratch, Sum());
  state.emptySequences = reduceBlock<kThreads>(empty, scratch, Sum());
  state.badTargets = reduceBlock<kThreads>(badTargets, scratch, Sum());
  state.firstBad = -reduceBlock<kThreads>(-firstBad, scratch, Maximum());
  if (state.firstBad == kNone) state.firstBad = -1;
  state.tailRows = 0;
  if (Config::kLogitMeans && state.maskedTokens > 0) state.tailRows = Config::kSoftcap ? state.maskedTokens : kMeanRows;
  state.largestCoefficient = 0.0f;
  state.finishedBlocks = 0;
  state.paceArrivals = 0;
  state.paceFinished = 0;
  if (threadIdx.x == 0) *tables.state = state;
}

} // namespace lathe::device
