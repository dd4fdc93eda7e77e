//===- common/tile_order.cuh - Which tile a block computes ------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "common/math.cuh"

namespace lathe::device {

/// Tile coordinates. Blocks that run together share few rows and columns, so that L2 serves most of their loads: the
/// row tiles are walked in groups of `kGroupM`, a whole group for one column tile before the next.
struct TileOrder {
  int m;
  int n;
  /// Whether this block has a tile at all.
  bool exists;

  template <int kGroupM> __device__ __forceinline__ static TileOrder grouped(i64 block, int tilesM, int tilesN) {
    const i64 perGroup = i64(kGroupM) * tilesN;
    const int firstM = int(block / perGroup) * kGroupM;
    const int rows = min(tilesM - firstM, kGroupM);
    if (rows <= 0) return {0, 0, false};
    const int within = int(block % perGroup);
    return {firstM + within % rows, within / rows, within / rows < tilesN};
  }
};

} // namespace lathe::device
