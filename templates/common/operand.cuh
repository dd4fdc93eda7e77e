//===- common/operand.cuh - Operands of a matrix product in memory ----------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Every operand of every product, whatever its layout, is a grid of 128-byte panels: `outer` counts rows of memory,
/// and along a row `panel` counts groups of 128 bytes. In a row-major matrix the panels of a row follow each other; in
/// E all rows of a panel do. An operand is *K-major* when the summed index runs along the row, else *MN-major*.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "common/arguments.cuh"
#include "common/types.cuh"

namespace lathe::device {

enum class Major { K, MN };
enum class Layout { RowMajor, Panels };

/// What is known of an operand when a kernel is compiled: `kBytes` is the widest access that its rows allow.
template <Major kOperandMajor, Layout kOperandLayout, int kOperandBytes> struct OperandTraits {
  static constexpr Major kMajor = kOperandMajor;
  static constexpr Layout kLayout = kOperandLayout;
  static constexpr int kBytes = kOperandBytes;
};

template <class Element> struct Operand {
  const Element* base;
  i64 outerStride;
  i64 panelStride;
  /// Elements at or past these are read as zero (where loads can tell; see wgmma/ for what TMA does).
  int outerBound;
  int innerBound;
  /// Row of memory that outer index 0 stands for.
  int origin = 0;

  __device__ __forceinline__ const Element* at(int outer, int panel) const {
    return base + (outer + origin) * outerStride + panel * panelStride;
  }
};

/// A row-major matrix `[rows, columns]` with `pitch` elements between rows.
template <class Element>
__device__ __forceinline__ Operand<Element> rowMajor(const void* data, i64 pitch, int rows, int columns,
                                                     int origin = 0) {
  return {static_cast<const Element*>(data), pitch, ElementTraits<Element>::kPanel, rows, columns, origin};
}

/// E or G, `rows` of it.
template <class Element>
__device__ __forceinline__ Operand<Element> panels(const Panels& source, int rows, int columns) {
  constexpr int kPanel = ElementTraits<Element>::kPanel;
  return {static_cast<const Element*>(source.data), kPanel, source.rows * kPanel, rows, columns};
}

} // namespace lathe::device
