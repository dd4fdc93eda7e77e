//===- tests/unit/occupancy_test.cpp - How full a multiprocessor is ---------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/inspect/Occupancy.h"
#include "tests/support/Failures.h"

using namespace lathe;
using namespace lathe::test;

namespace {

Target targetOf(llvm::StringRef arch) {
  return require(parseTarget(arch));
}

} // namespace

TEST_CASE("Occupancy names the scarcest resource") {
  struct Row {
    const char* arch;
    BlockNeeds block;
    int blocks;
    OccupancyLimiter limiter;
  };
  using enum OccupancyLimiter;
  // Values that CUDA's own occupancy functions give for these.
  const Row row =
      GENERATE(Row{"sm_80", {256, 32, 0}, 8, Nothing}, Row{"sm_80", {256, 64, 0}, 4, Registers},
               Row{"sm_80", {256, 255, 0}, 1, Registers}, Row{"sm_80", {256, 32, 100 * 1024}, 1, SharedMemory},
               Row{"sm_80", {256, 32, 81 * 1024}, 2, SharedMemory}, Row{"sm_80", {32, 16, 0}, 32, Blocks},
               Row{"sm_86", {32, 16, 0}, 16, Blocks}, Row{"sm_86", {1024, 32, 0}, 1, Threads},
               Row{"sm_90a", {384, 168, 200 * 1024}, 1, Registers}, Row{"sm_75", {1024, 64, 0}, 1, Nothing},
               Row{"sm_90a", {128, 32, 228 * 1024}, 0, SharedMemory});
  const Occupancy occupancy = occupancyOf(row.block, targetOf(row.arch));
  CHECK(occupancy.blocks == row.blocks);
  CHECK(toString(occupancy.limiter) == toString(row.limiter));
  CHECK(occupancy.warps == row.blocks * row.block.threads / 32);
  CHECK(occupancy.fraction() <= 1);
}

TEST_CASE("A block of no threads and a foreign count of registers give figures, not faults") {
  const Target target = targetOf("sm_90a");
  CHECK(occupancyOf({0, 0, 0}, target).blocks == 32);
  CHECK(occupancyOf({1 << 20, 255, 0}, target).blocks == 0);
  CHECK(occupancyOf({128, 1 << 20, 0}, target).blocks == 0);
}
