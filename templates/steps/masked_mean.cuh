//===- steps/masked_mean.cuh - Mean input of the masked tokens --------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// The mean logit covers masked tokens too. Without a soft cap logits are linear in the input, so the sum of a group's
/// masked logits is their number times the logits of their mean input. That mean becomes two tail rows: its value
/// rounded to the element type, and what rounding lost times lowScale, so that 16 bits cost nothing. Rows
/// 2g and 2g + 1 of the tail belong to group g (0 chosen, 1 rejected). The logits kernel adds no bias to the low rows.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "common/math.cuh"
#include "common/memory.cuh"
#include "common/rows.cuh"
#include "common/tail.cuh"

namespace lathe::device {

/// Blocks that write the means of all columns: kMeanColumns of one group each.
inline constexpr int kMeanColumns = 64;
template <class Config> __device__ constexpr int maskedMeanBlocks() {
  return 2 * ceilDiv(Config::kPitch, kMeanColumns);
}

/// The work of block `block` of maskedMeanBlocks().
template <class Config> __device__ void maskedMean(const GatherRowsArguments& arguments, int block) {
  using Element = typename Config::Element;
  using Values = Unpacked<Element>;
  // A thread sums one vector of columns over every kLanes-th masked token.
  constexpr int kVectors = kMeanColumns / Values::kCount;
  constexpr int kLanes = Config::kThreads / kVectors;
  __shared__ float sums[kLanes][kMeanColumns];

  const RowTables& tables = arguments.tables;
  if (tables.state->tailRows == 0) return;
  const int maskedTokens = tables.state->maskedTokens;
  const int group = block % 2;
  const int firstColumn = block / 2 * kMeanColumns;
  const int vector = int(threadIdx.x % kVectors) * Values::kCount;
  const int lane = int(threadIdx.x / kVectors);
  const int firstRejected = arguments.sequences / 2 * arguments.tokens;

  float sum[Values::kCount] = {};
#pragma unroll 4
  for (int i = lane; i < maskedTokens; i += kLanes) {
    const int token = tables.maskedToken[i];
    if ((token >= firstRejected) != (group == 1)) continue;
    const Element* row = static_cast<const Element*>(arguments.input) + i64(token) * Config::kHidden;
    const Values values(loadVector<Element, Config::kHidden>(row, firstColumn + vector));
#pragma unroll
    for (int k = 0; k < Values::kCount; ++k) sum[k] += values.value[k];
  }
#pragma unroll
  for (int k = 0; k < Values::kCount; ++k) sums[lane][vector + k] = sum[k];
  __syncthreads();

  const int column = firstColumn + int(threadIdx.x);
  if (threadIdx.x >= kMeanColumns || column >= Config::kPitch) return;
  float total = 0.0f;
  for (int i = 0; i < kLanes; ++i) total += sums[i][threadIdx.x];
  const int count = tables.state->maskedOf[group];
  const float mean = count > 0 ? total / float(count) : 0.0f;
  const float high = roundedHigh<Element, Config::kTf32>(mean);
  Element* out =
      static_cast<Element*>(arguments.rows) + i64(tables.state->validRows + 2 * group) * Config::kPitch + column;
  out[0] = fromFloat<Element>(high);
  out[Config::kPitch] = fromFloat<Element>((mean - high) * lowScale<Element>());
}

} // namespace lathe::device
