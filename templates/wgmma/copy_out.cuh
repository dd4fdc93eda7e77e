//===- wgmma/copy_out.cuh - Copy a tile to memory by TMA --------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "common/output_tile.cuh"
#include "wgmma/ptx.cuh"

namespace lathe::device {

/// Hands the finished tile of a warpgroup to the copy engine, panel by panel: while one is copied the next is staged,
/// and the warpgroup goes on to its next tile without waiting for the last. `map` has boxes of one panel.
struct CopyOut {
  static constexpr bool kCopies = true;
  const TensorMap& map;

  /// Stages `value(i, j)` of this thread as `Element` and copies panel `p` to the tensor coordinates `place(p)`, or
  /// adds it to what is there where `adds`; only staged where not `wanted`. `shared` takes two panels and is this
  /// group's alone; call `finish` before it may hold anything else.
  template <class Element, class Accumulators, class Group, class Value, class Place>
  __device__ __forceinline__ void store(const Group& group, char* shared, bool wanted, bool adds, Value value,
                                        Place place) const {
    using Tile = OutputTile<Element, Accumulators::kTileRows, ElementTraits<Element>::kPanel>;
    constexpr int kPanels = Accumulators::kTileColumns / Tile::kPanel;
    constexpr int kThreadColumns = Accumulators::kColumns / kPanels;
    constexpr int kPanelBytes = Accumulators::kTileRows * 128;
    static_assert(2 * kPanelBytes <= Accumulators::kStagingBytes, "two panels are staged");
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      const Tile tile{shared + panel % 2 * kPanelBytes};
      // Of the copies that were started, only the last may still read.
      if (group.index == 0) waitBulkReads<1>();
      group.sync();
#pragma unroll
      for (int i = 0; i < Accumulators::kRows; ++i)
#pragma unroll
        for (int k = 0; k < kThreadColumns; k += 2) {
          const int j = panel * kThreadColumns + k;
          tile.put(Accumulators::row(i), Accumulators::column(j) - panel * Tile::kPanel, value(i, j), value(i, j + 1));
        }
      fenceForCopyEngine();
      group.sync();
      if (group.index != 0) continue;
      const TensorPlace at = place(panel);
      if (wanted && adds)
        addBox(map, at.x, at.y, sharedAddress(tile.shared));
      else if (wanted)
        storeBox(map, at.x, at.y, sharedAddress(tile.shared));
      commitBulk();
    }
  }

  /// Waits until the copies have read everything.
  template <class Group> __device__ __forceinline__ void finish(const Group& group) const {
    if (group.index == 0) waitBulkReads<0>();
  }
};

} // namespace lathe::device
