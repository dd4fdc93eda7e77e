//===- wgmma/pace.cuh - Keep clusters together along the depth --------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "common/arguments.cuh"
#include "common/math.cuh"

namespace lathe::device {

/// Clusters that run together load the same operands. Left alone they drift apart until L2 no longer holds for one what
/// another has loaded, and memory is read again: memory traffic was 1.7 to 2.5 times what it need be, and on a chip
/// whose clock follows its power bytes are time. So every cluster counts, once every kWindow steps, that it got there,
/// and one that is kSlack windows ahead of the average waits a little.
///
/// Nobody relies on the others: where some clusters cannot run yet because something else holds their multiprocessors,
/// patience ends and the cluster goes on unpaced. Results do not depend on any of this.
class Pace {
public:
  /// `tiles`: all that the clusters take; `steps`: those of one tile.
  __device__ __forceinline__ Pace(RunState& state, i64 tiles, u32 clusters, int steps)
      : state_(state), tiles_(tiles), clusters_(int(clusters)), windows_(ceilDiv(steps, kWindow)) {}

  /// Call before the first step of a tile.
  __device__ __forceinline__ void beginRound(int round) {
    const i64 before = i64(round) * clusters_;
    active_ = int(min(i64(clusters_), tiles_ - before));
    arrivalsBefore_ = u32(before * windows_);
  }

  /// Call before step `k` of a tile.
  __device__ __forceinline__ void keep(int k) {
    if (k % kWindow != 0) return;
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(&state_.paceArrivals) : "memory");
    if (!waits_) return;
    // Arrivals when every cluster is kSlack windows behind this one.
    const int window = k / kWindow - kSlack;
    const u32 wanted = arrivalsBefore_ + u32(window * (window < 0 ? clusters_ : active_));
    for (int i = 0; i < kPatience; ++i) {
      u32 arrivals;
      asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(arrivals) : "l"(&state_.paceArrivals) : "memory");
      if (int(arrivals - wanted) >= 0) return;
      __nanosleep(200);
    }
    waits_ = false;
  }

  /// Call once after the last tile: the last cluster leaves the counts as they were.
  __device__ __forceinline__ void finish() const {
    if (atomicAdd(&state_.paceFinished, 1) != clusters_ - 1) return;
    state_.paceArrivals = 0;
    state_.paceFinished = 0;
  }

private:
  static constexpr int kWindow = 4;
  static constexpr int kSlack = 1;
  /// Times 0.2 us or more.
  static constexpr int kPatience = 200;

  RunState& state_;
  i64 tiles_;
  int clusters_;
  int windows_;
  int active_ = 0;
  u32 arrivalsBefore_ = 0;
  bool waits_ = true;
};

} // namespace lathe::device
