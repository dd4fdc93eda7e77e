//===- common/output_tile.cuh - Store a tile through shared memory ----------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Accumulators lie scattered over threads; memory wants whole 16-byte vectors. A tile is staged in shared memory in
/// panels of 128 bytes, `[panel][row][128]`, the eight vectors of a row permuted by `vector ^ (row % 8)` so that
/// neither side has bank conflicts.
///
/// What every family's accumulators offer: a thread holds kRows x kColumns sums of its group's tile of kTileRows x
/// kTileColumns; `row(i)` and `column(j)` say which (the latter a part known when compiling plus one that depends on
/// the lane), and columns j and j + 1 (j even) are neighbours. kLanesPerRow adjacent lanes share rows, and kColumnWarps
/// sets of them cover a row: `columnWarp()` tells which set, `leadsRow()` whether this lane speaks for it. The group
/// may stage kStagingBytes at a time; where that is less than the tile, it is staged in passes over the columns, of
/// which every thread holds its share in order.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "common/memory.cuh"
#include "common/types.cuh"

namespace lathe::device {

/// A staged tile of kRows x kColumns.
template <class Element, int kRows, int kColumns> struct OutputTile {
  static constexpr int kPanel = ElementTraits<Element>::kPanel;
  static constexpr int kVector = 16 / sizeof(Element);
  static constexpr int kVectors = kRows * kColumns / kVector;
  static_assert(kColumns % kPanel == 0, "a tile is made of whole panels");

  char* shared;

  __device__ __forceinline__ char* address(int row, int panel, int vector) const {
    return shared + (panel * kRows + row) * 128 + (vector ^ (row % 8)) * 16;
  }

  /// Writes two neighbouring elements; `column` is even.
  __device__ __forceinline__ void put(int row, int column, float first, float second) const {
    const int inPanel = column % kPanel;
    char* to = address(row, column / kPanel, inPanel / kVector) + inPanel % kVector * int(sizeof(Element));
    if constexpr (sizeof(Element) == 4)
      *reinterpret_cast<float2*>(to) = make_float2(first, second);
    else
      *reinterpret_cast<u32*>(to) = packPair<Element>(first, second);
  }
};

template <class Accumulators> __device__ __forceinline__ void setToZero(Accumulators& sums) {
#pragma unroll
  for (int i = 0; i < Accumulators::kRows; ++i)
#pragma unroll
    for (int j = 0; j < Accumulators::kColumns; ++j) sums.at(i, j) = 0.0f;
}

/// Columns of the tile that are staged at a time as `Element`.
template <class Element, class Accumulators> __device__ constexpr int stagedColumns() {
  constexpr int kFitting = Accumulators::kStagingBytes / (Accumulators::kTileRows * int(sizeof(Element)));
  return kFitting < Accumulators::kTileColumns ? kFitting : Accumulators::kTileColumns;
}

/// Stages `value(i, j)` for every element (i, j) of this thread as `Element`, and calls `store(row, column, vector)`
/// for every 16 bytes of the tile, shared evenly among `group`. Begins and ends with the group free to use `shared`.
template <class Element, class Accumulators, class Group, class Value, class Store>
__device__ __forceinline__ void storeThroughShared(const Group& group, char* shared, Value value, Store store) {
  constexpr int kPassColumns = stagedColumns<Element, Accumulators>();
  constexpr int kPasses = Accumulators::kTileColumns / kPassColumns;
  constexpr int kThreadColumns = Accumulators::kColumns / kPasses;
  using Tile = OutputTile<Element, Accumulators::kTileRows, kPassColumns>;
  const Tile tile{shared};
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
    for (int i = 0; i < Accumulators::kRows; ++i)
#pragma unroll
      for (int k = 0; k < kThreadColumns; k += 2) {
        const int j = pass * kThreadColumns + k;
        tile.put(Accumulators::row(i), Accumulators::column(j) - pass * kPassColumns, value(i, j), value(i, j + 1));
      }
    group.sync();
    // Unrolled further, the addresses would not fit beside the accumulators.
#pragma unroll 2
    for (int i = group.index; i < Tile::kVectors; i += Group::kThreads) {
      const int vector = i % 8;
      const int row = i / 8 % Accumulators::kTileRows;
      const int panel = i / 8 / Accumulators::kTileRows;
      store(row, pass * kPassColumns + panel * Tile::kPanel + vector * Tile::kVector,
            *reinterpret_cast<const Vector16*>(tile.address(row, panel, vector)));
    }
    group.sync();
  }
}

/// Coordinates in a tensor map.
struct TensorPlace {
  int x;
  int y;
};

/// What a step gets where no copy engine can take whole tiles (see wgmma/copy_out.cuh).
struct NoCopyOut {
  static constexpr bool kCopies = false;
};

/// Stores one vector to a row of `kColumns` elements: narrower accesses where rows are less aligned, and nothing past
/// the row's end.
template <class Element, int kColumns>
__device__ __forceinline__ void storeVector(Element* row, int column, const Vector16& vector) {
  constexpr int kBytes = rowAccessBytes<Element, kColumns>();
  constexpr int kStep = kBytes / sizeof(Element);
#pragma unroll
  for (int i = 0; i < 16 / int(sizeof(Element)); i += kStep)
    if (column + i < kColumns) copyVector<kBytes>(row + column + i, reinterpret_cast<const Element*>(&vector) + i);
}

/// Adds four neighbouring sums to a row of `kColumns` elements in fp32, and rounds once.
template <class Element, int kColumns>
__device__ __forceinline__ void addSums(Element* row, int column, const Vector16& sums) {
  constexpr int kRowBytes = rowAccessBytes<Element, kColumns>();
  constexpr int kBytes = kRowBytes < 4 * int(sizeof(Element)) ? kRowBytes : 4 * int(sizeof(Element));
  constexpr int kStep = kBytes / sizeof(Element);
  const Unpacked<float> value(sums);
#pragma unroll
  for (int i = 0; i < 4; i += kStep) {
    if (column + i >= kColumns) return;
    alignas(kBytes) Element element[kStep];
    copyVector<kBytes>(element, row + column + i);
#pragma unroll
    for (int k = 0; k < kStep; ++k) element[k] = fromFloat<Element>(toFloat(element[k]) + value.value[i + k]);
    copyVector<kBytes>(row + column + i, element);
  }
}

} // namespace lathe::device
