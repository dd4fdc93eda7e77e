//===- generator/Config.h - One point of the search space ------*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Error.h"
#include "generator/Target.h"
#include "lathe/workload.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/JSON.h"

#include <vector>

namespace lathe {

/// How a matrix product is computed. See docs/kernels.md.
enum class Family : uint8_t { Simt, MmaSync, Wgmma };

/// The three matrix products of a plan.
enum class Gemm : uint8_t { Logits, GradInput, GradWeight };

/// One point of the search space: the tile of one matrix product C[M, N] = A[M, K] B[K, N].
struct Config {
  Family family = Family::Simt;
  /// Rows and columns of C that a block computes, and the depth of one stage.
  int blockM = 64;
  int blockN = 64;
  int blockK = 16;
  /// Stages of the shared-memory ring.
  int stages = 2;
  /// Warps that multiply, along M and N. A wgmma kernel has four more that load.
  int warpsM = 2;
  int warpsN = 4;
  /// Blocks of a cluster, along M; they share the loads of B.
  int clusterM = 1;
  /// Blocks that a multiprocessor should hold at once (the second number of `__launch_bounds__`).
  int blocksPerMultiprocessor = 1;
  /// Row tiles that are walked together before the column tile advances: what L2 must hold at once.
  int groupM = 8;

  int threads() const { return warpsM * warpsN * 32 + (family == Family::Wgmma ? 128 : 0); }

  friend bool operator==(const Config&, const Config&) = default;
};

llvm::StringRef toString(Family family);
llvm::Expected<Family> parseFamily(llvm::StringRef name);
llvm::StringRef toString(Gemm gemm);
llvm::json::Value toJson(const Config& config);
llvm::Expected<Config> parseConfig(const llvm::json::Value& json);
/// A short name: `mma_sync 128x256x64 4 stages 2x4 warps group 8`.
std::string toString(const Config& config);

/// Bytes of dynamic shared memory that `config` needs for `gemm`: the ring, or the staged output tile where larger.
int sharedBytes(const Config& config, Gemm gemm, const Workload& workload);

/// Whether `config` can run `gemm` on `target`; the error names the resource that it lacks.
llvm::Error checkConfig(const Config& config, Gemm gemm, const Workload& workload, const Target& target);

/// Every point that kernels are written for, legal or not, in a fixed order.
std::vector<Config> configGrid(const Workload& workload);

/// Every legal point of the grid for `gemm`, in its order.
std::vector<Config> searchSpace(Gemm gemm, const Workload& workload, const Target& target);

} // namespace lathe
