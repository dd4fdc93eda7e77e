//===- steps/loss.cuh - From the logits' partial results to the loss --------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// First every block reduces its rows (logsumexp.cuh). The block that is done last then has all rows before it: it
/// computes the pairs (pair_loss.cuh) and, when they are the last ones, the results (outputs.cuh). Which block that is
/// changes nothing: it adds in a fixed order.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "steps/logsumexp.cuh"
#include "steps/outputs.cuh"
#include "steps/pair_loss.cuh"

namespace lathe::device {

/// Whether this block is the last of its launch to come here; it then sees what the others wrote before. Leaves
/// `finishedBlocks` at 0.
__device__ __forceinline__ bool isLastBlock(int& finishedBlocks) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(&finishedBlocks, 1) == int(gridDim.x) - 1;
  __syncthreads();
  if (!last) return false;
  __threadfence();
  if (threadIdx.x == 0) finishedBlocks = 0;
  return true;
}

template <class Config> __device__ float largestCoefficient(const LossArguments& arguments, float* scratch) {
  float largest = 0.0f;
  for (int slot = arguments.slots.begin + int(threadIdx.x); slot < arguments.slots.end; slot += Config::kThreads)
    largest = fmaxf(largest, fabsf(arguments.pairs.slotCoefficient[slot]));
  return reduceBlock<Config::kThreads>(largest, scratch, Maximum());
}

template <class Config> __device__ void loss(const LossArguments& arguments) {
  __shared__ double scratch[Config::kThreads / 32];
  RunState& state = *arguments.tables.state;

  logsumexp<Config>(arguments);
  if (!isLastBlock(state.finishedBlocks)) return;

  for (int pair = arguments.slots.begin / 2; pair < arguments.slots.end / 2; ++pair)
    pairLoss<Config>(arguments, pair, scratch);
  __syncthreads();
  const float largest = largestCoefficient<Config>(arguments, reinterpret_cast<float*>(scratch));
  if (threadIdx.x == 0) state.largestCoefficient = largest;
  if (arguments.slots.end == 2 * arguments.pairCount) outputs<Config>(arguments, scratch);
}

} // namespace lathe::device
