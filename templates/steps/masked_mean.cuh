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
  constexpr int kLanes = Config::kThreads / kMeanColumns;
  __shared__ float sums[kLanes][kMeanColumns];

  const RowTables& tables = arguments.tables;
  if (tables.state->tailRows == 0) return;
  const int group = block % 2;
  const int lane = int(threadIdx.x / kMeanColumns);
  const int column = block / 2 * kMeanColumns + int(threadIdx.x % kMeanColumns);
  const int firstRejected = arguments.sequences / 2 * arguments.tokens;

  float sum = 0.0f;
  if (column < Config::kHidden)
    for (int i = lane; i < tables.state->maskedTokens; i += kLanes) {
      const int token = tables.maskedToken[i];
      if ((token >= firstRejected) == (group == 1))
        sum += toFloat(static_cast<const Element*>(arguments.input)[i64(token) * Config::kHidden + column]);
    }
  sums[lane][threadIdx.x % kMeanColumns] = sum;
  __syncthreads();
  if (lane != 0 || column >= Config::kPitch) return;

  for (int i = 1; i < kLanes; ++i) sum += sums[i][threadIdx.x];
  const int count = tables.state->maskedOf[group];
  const float mean = count > 0 ? sum / float(count) : 0.0f;
  const float high = roundedHigh<Element, Config::kTf32>(mean);
  Element* out =
      static_cast<Element*>(arguments.rows) + i64(tables.state->validRows + 2 * group) * Config::kPitch + column;
  out[0] = fromFloat<Element>(high);
  out[Config::kPitch] = fromFloat<Element>((mean - high) * lowScale<Element>());
}

} // namespace lathe::device
