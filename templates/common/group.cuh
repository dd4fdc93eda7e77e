//===- common/group.cuh - Threads that finish a tile together ---------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "common/types.cuh"

namespace lathe::device {

/// `kCount` threads that hold the accumulators of one tile: a whole block, or one warpgroup of it. Named barrier
/// `barrier` is theirs; 0 is that of the block.
template <int kCount> struct ThreadGroup {
  static constexpr int kThreads = kCount;
  int index;
  int barrier;

  __device__ __forceinline__ void sync() const {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(kCount) : "memory");
  }
};

} // namespace lathe::device
