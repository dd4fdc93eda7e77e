//===- steps/gather_rows.cuh - Copy the valid rows together -----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Copies the input of every row into a dense matrix `[rows, kPitch]`, and fills in the tail rows: under a soft cap
/// copies too, else means, which the first blocks compute. One warp copies one row. The kRowPadding rows behind the
/// last become zeros: products that sum over rows may read them.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "common/arguments.cuh"
#include "common/math.cuh"
#include "common/memory.cuh"
#include "steps/masked_mean.cuh"

namespace lathe::device {

template <class Config> __device__ void gatherRows(const GatherRowsArguments& arguments) {
  using Element = typename Config::Element;
  constexpr int kMeanBlocks = Config::kLogitMeans && !Config::kSoftcap ? maskedMeanBlocks<Config>() : 0;
  if constexpr (kMeanBlocks > 0)
    if (blockIdx.x < kMeanBlocks) return maskedMean<Config>(arguments, int(blockIdx.x));

  const RowTables& tables = arguments.tables;
  const int row = int(blockIdx.x - kMeanBlocks) * (Config::kThreads / 32) + int(threadIdx.x / 32);
  const int lane = int(threadIdx.x % 32);
  const int validRows = tables.state->validRows;
  const int rows = validRows + tables.state->tailRows;
  Element* to = static_cast<Element*>(arguments.rows) + i64(row) * Config::kPitch;
  if (row >= rows) {
    if (row < rows + kRowPadding) zeroRow<Element, Config::kPitch>(to, lane);
    return;
  }
  // The means are written by the first blocks.
  if (row >= validRows && !Config::kSoftcap) return;
  const int token = row < validRows ? tables.rowToken[row] : tables.maskedToken[row - validRows];
  copyRow<Element, Config::kHidden, Config::kPitch>(
      to, static_cast<const Element*>(arguments.input) + i64(token) * Config::kHidden, lane);
}

} // namespace lathe::device
