//===- runtime/inspect/Occupancy.cpp - How full a multiprocessor is ---------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/inspect/Occupancy.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

using namespace lathe;

namespace {

constexpr int kLanes = 32;
/// Registers are handed out to warps in units of this many; a multiprocessor has four register files.
constexpr int kRegisterUnit = 256;
constexpr int kRegisterFiles = 4;

int64_t roundedUp(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// Blocks that a multiprocessor holds whatever they need, from the table of compute capabilities.
int mostBlocks(const Target& target) {
  switch (target.sm) {
  case 75:
  case 86:
  case 87:
    return 16;
  case 89:
  case 120:
    return 24;
  default:
    return 32;
  }
}

/// Shared memory that the system takes of each block.
int64_t reservedShared(const Target& target) {
  return target.sm >= 80 ? 1024 : 0;
}

int blocksByRegisters(const BlockNeeds& block, int warps, const Target& target, int most) {
  if (block.registers <= 0) return most;
  const int64_t perWarp = roundedUp(int64_t(block.registers) * kLanes, kRegisterUnit);
  const int64_t warpsOfFile = target.registersPerMultiprocessor / kRegisterFiles / perWarp;
  return static_cast<int>(std::min<int64_t>(warpsOfFile * kRegisterFiles / warps, most));
}

int blocksByShared(const BlockNeeds& block, const Target& target, int most) {
  const int64_t unit = target.sm >= 80 ? 128 : 256;
  const int64_t bytes = roundedUp(std::max<int64_t>(block.sharedBytes, 0) + reservedShared(target), unit);
  if (bytes <= 0) return most;
  return static_cast<int>(std::min<int64_t>(target.sharedPerMultiprocessor / bytes, most));
}

} // namespace

llvm::StringRef lathe::toString(OccupancyLimiter limiter) {
  constexpr llvm::StringLiteral kNames[] = {"registers", "shared memory", "threads", "blocks", "nothing"};
  return kNames[static_cast<size_t>(limiter)];
}

Occupancy lathe::occupancyOf(const BlockNeeds& block, const Target& target) {
  Occupancy result;
  result.maxWarps = target.maxThreadsPerMultiprocessor / kLanes;
  const int most = mostBlocks(target);
  const int warps = static_cast<int>(std::max<int64_t>(roundedUp(block.threads, kLanes) / kLanes, 1));
  result.blocksByLimit = most;
  result.blocksByThreads = result.maxWarps / warps;
  result.blocksByRegisters = blocksByRegisters(block, warps, target, most);
  result.blocksByShared = blocksByShared(block, target, most);

  // Of equal limits the first is named: more threads or blocks cannot be had, the others can.
  const std::pair<int, OccupancyLimiter> limits[] = {
      {result.blocksByThreads, OccupancyLimiter::Threads},
      {result.blocksByLimit, OccupancyLimiter::Blocks},
      {result.blocksByRegisters, OccupancyLimiter::Registers},
      {result.blocksByShared, OccupancyLimiter::SharedMemory},
  };
  const auto least = llvm::min_element(limits, [](const auto& a, const auto& b) { return a.first < b.first; });
  result.blocks = least->first;
  result.warps = result.blocks * warps;
  result.limiter = result.warps == result.maxWarps ? OccupancyLimiter::Nothing : least->second;
  return result;
}
