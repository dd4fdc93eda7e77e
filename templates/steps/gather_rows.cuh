//===- steps/gather_rows.cuh - Copy the valid rows together -----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Copies the input of every row into a dense matrix `[rows, kPitch]`; under a soft cap the tail rows too. One warp
/// copies one row. The kRowPadding rows behind the last become zeros: products that sum over rows may read them.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "common/arguments.cuh"
#include "common/math.cuh"
#include "common/memory.cuh"

namespace lathe::device {

template <class Config> __device__ void gatherRows(const GatherRowsArguments& arguments) {
  using Element = typename Config::Element;
  const RowTables& tables = arguments.tables;
  const int row = int(blockIdx.x * (Config::kThreads / 32) + threadIdx.x / 32);
  const int lane = int(threadIdx.x % 32);
  const int validRows = tables.state->validRows;
  const int rows = validRows + tables.state->tailRows;
  Element* to = static_cast<Element*>(arguments.rows) + i64(row) * Config::kPitch;
  if (row >= rows) {
    if (row < rows + kRowPadding) zeroRow<Element, Config::kPitch>(to, lane);
    return;
  }
  // Without a soft cap masked_mean writes the tail.
  if (row >= validRows && !Config::kSoftcap) return;
  const int token = row < validRows ? tables.rowToken[row] : tables.maskedToken[row - validRows];
  copyRow<Element, Config::kHidden, Config::kPitch>(
      to, static_cast<const Element*>(arguments.input) + i64(token) * Config::kHidden, lane);
}

} // namespace lathe::device
