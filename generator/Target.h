//===- generator/Target.h - The GPU compiled for ---------------*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Error.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/JSON.h"

#include <cstdint>
#include <string>

namespace lathe {

/// The GPU compiled for: what a specialization, the resource arithmetic and the cost model need to know of it.
struct Target {
  /// Compute capability, ten times major plus minor: 75 ... 120.
  int sm = 0;
  /// Whether code may use the architecture-specific instructions (`sm_90a`, `sm_100a`, `sm_120a`).
  bool archSpecific = false;
  int multiprocessors = 0;
  /// Shared memory that one block may use (opt-in limit) and that one multiprocessor has, in bytes.
  int sharedPerBlock = 0;
  int sharedPerMultiprocessor = 0;
  int registersPerMultiprocessor = 65536;
  int maxThreadsPerMultiprocessor = 0;
  int64_t l2Bytes = 0;

  /// `sm_80`, `sm_90a`, ...: the value of NVRTC's `--gpu-architecture`.
  std::string arch() const;

  friend bool operator==(const Target&, const Target&) = default;
};

/// The architectures Lathe compiles for, each with the figures of its usual data-centre or desktop part.
llvm::ArrayRef<Target> knownTargets();

/// Finds `sm_80`, `80`, `sm_90a` or `90a`; the error lists the known ones.
llvm::Expected<Target> parseTarget(llvm::StringRef arch);

llvm::json::Value toJson(const Target& target);

} // namespace lathe
