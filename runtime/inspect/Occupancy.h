//===- runtime/inspect/Occupancy.h - How full a multiprocessor is -----------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Target.h"
#include "lathe/inspect.h"

namespace lathe {

/// What a block takes.
struct BlockNeeds {
  int threads = 0;
  /// Of a thread.
  int registers = 0;
  /// Static and dynamic, without what the system adds.
  int64_t sharedBytes = 0;
};

/// `registers`, `shared memory`, `threads`, `blocks`, `nothing`
llvm::StringRef toString(OccupancyLimiter limiter);

/// Blocks and warps of a kernel on one multiprocessor of `target`, by the allocation rules of its architecture.
Occupancy occupancyOf(const BlockNeeds& block, const Target& target);

} // namespace lathe
