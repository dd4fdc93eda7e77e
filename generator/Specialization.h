//===- generator/Specialization.h - Generated CUDA sources -----*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Config.h"
#include "generator/Digest.h"
#include "generator/Target.h"
#include "lathe/workload.h"

#include <optional>
#include <string>

namespace lathe {

/// The kernels of a plan; docs/kernels.md says what each does, templates/steps/ has one file for each.
enum class KernelKind : uint8_t {
  RowMap,
  GatherRows,
  Logits,
  Loss,
  GradLogits,
  GradBias,
  GradInput,
  GradWeight,
};

inline constexpr size_t kKernelKindCount = 8;

/// `row_map`, `logits`, ...: the name of the template file, and of the entry with `lathe_` before it.
llvm::StringRef toString(KernelKind kind);
llvm::Expected<KernelKind> parseKernelKind(llvm::StringRef name);
/// The product that `kind` computes; none for other kernels.
std::optional<Gemm> productOf(KernelKind kind);

/// Rows of the logits' gradient that one block of grad_logits turns.
inline constexpr int kGradLogitsRowsPerBlock = 1024;

/// Elements between gathered rows: H, rounded up to 16 bytes.
int64_t rowPitch(const Workload& workload);
/// V, rounded up to whole panels of 128 bytes.
int64_t paddedVocab(const Workload& workload);

/// One CUDA translation unit: a workload for a target with a config, ready for NVRTC.
struct Specialization {
  KernelKind kind;
  Target target;
  /// Present for the matrix products.
  std::optional<Config> config = std::nullopt;
  /// Name of the one `extern "C" __global__` function.
  std::string entry;
  /// The unit: a `Config` struct, includes of embedded templates, the entry.
  std::string unit;
  /// SHA-256 over the unit and the digests of all templates that it includes.
  Digest sourceDigest;
  /// Threads of a block, dynamic shared memory in bytes.
  int threads = 0;
  int sharedBytes = 0;

  /// The unit with every include replaced by its text: one file that plain `nvcc -arch=<arch> -std=c++17` compiles.
  std::string flattened() const;
};

/// What a step of a plan is specialised for besides the workload: the configs of the three products.
struct GemmConfigs {
  Config logits;
  Config gradInput;
  Config gradWeight;

  Config& of(Gemm gemm);
  const Config& of(Gemm gemm) const;
  friend bool operator==(const GemmConfigs&, const GemmConfigs&) = default;
};

/// Generates the source of one kernel. `workload` must be valid and `configs` legal for it on `target`.
Specialization specialize(KernelKind kind, const Workload& workload, const Target& target, const GemmConfigs& configs);

} // namespace lathe
