//===- generator/Target.cpp - The GPU compiled for --------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "generator/Target.h"

using namespace lathe;

namespace {

constexpr int64_t kMiB = int64_t(1) << 20;

constexpr Target make(int sm, bool archSpecific, int multiprocessors, int sharedPerBlockKiB,
                      int sharedPerMultiprocessorKiB, int threads, int64_t l2MiB) {
  return {sm,    archSpecific, multiprocessors, sharedPerBlockKiB * 1024, sharedPerMultiprocessorKiB * 1024,
          65536, threads,      l2MiB * kMiB};
}

/// Shared memory per block and per multiprocessor, and threads, as the CUDA programming guide gives them for each
/// compute capability; multiprocessors and L2 of the part named beside it.
constexpr Target kTargets[] = {
    make(75, false, 40, 64, 64, 1024, 4),       // T4
    make(80, false, 108, 163, 164, 2048, 40),   // A100
    make(86, false, 84, 99, 100, 1536, 6),      // A40
    make(87, false, 16, 163, 164, 1536, 4),     // Orin
    make(89, false, 142, 99, 100, 1536, 96),    // L40S
    make(90, false, 132, 227, 228, 2048, 50),   // H100
    make(90, true, 132, 227, 228, 2048, 50),    // H100
    make(100, false, 148, 227, 228, 2048, 126), // B200
    make(100, true, 148, 227, 228, 2048, 126),  // B200
    make(103, false, 148, 227, 228, 2048, 126), // B300
    make(103, true, 148, 227, 228, 2048, 126),  // B300
    make(120, false, 170, 99, 100, 1536, 96),   // RTX 5090
    make(120, true, 170, 99, 100, 1536, 96),    // RTX 5090
};

} // namespace

std::string Target::arch() const {
  return "sm_" + std::to_string(sm) + (archSpecific ? "a" : "");
}

llvm::ArrayRef<Target> lathe::knownTargets() {
  return kTargets;
}

llvm::Expected<Target> lathe::parseTarget(llvm::StringRef arch) {
  std::string known;
  for (const Target& target : kTargets) {
    const std::string name = target.arch();
    if (arch == name || arch == llvm::StringRef(name).drop_front(3)) return target;
    known += (known.empty() ? "" : ", ") + name;
  }
  return makeError(ErrorCode::InvalidArgument, "unknown architecture \"{0}\"; the known ones are {1}", arch, known);
}

llvm::json::Value lathe::toJson(const Target& target) {
  return llvm::json::Object{
      {"arch", target.arch()},
      {"multiprocessors", target.multiprocessors},
      {"shared_per_block", target.sharedPerBlock},
      {"shared_per_multiprocessor", target.sharedPerMultiprocessor},
      {"registers_per_multiprocessor", target.registersPerMultiprocessor},
      {"max_threads_per_multiprocessor", target.maxThreadsPerMultiprocessor},
      {"l2_bytes", target.l2Bytes},
  };
}
