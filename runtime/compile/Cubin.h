//===- runtime/compile/Cubin.h - Reading compiled kernels ------*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// What a cubin says of its kernels. A cubin is an ELF file; NVIDIA's own sections describe each kernel:
///
///   .text.<entry>          the code; on older GPUs sh_info has the registers in its upper 8 bits
///   .nv.info               attributes of all functions: registers, stack
///   .nv.info.<entry>       attributes of one kernel: parameters, launch bounds, barriers
///   .nv.shared.<entry>     static shared memory
///   .nv.constant0.<entry>  the constant bank that holds the parameters
///
/// Two layouts are read: that of CUDA 12 (OS ABI 0x33) and that of CUDA 13 (OS ABI 0x41). Bytes from anywhere are safe
/// to read: every offset is checked.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Error.h"

#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <string>
#include <vector>

namespace lathe {

/// A parameter of a kernel: where it lies in the parameter block, in bytes.
struct CubinParameter {
  int offset = 0;
  int size = 0;

  friend bool operator==(const CubinParameter&, const CubinParameter&) = default;
};

/// Resources of one kernel, as the assembler recorded them.
struct CubinInfo {
  /// Compute capability, ten times major plus minor.
  int sm = 0;
  /// Whether the code is for that architecture alone (`sm_90a`).
  bool archSpecific = false;
  /// Registers of a thread.
  int registers = 0;
  /// Static shared memory of a block that the source declares; without the 1 KiB that the system adds from sm_90 on.
  int64_t sharedBytes = 0;
  /// Stack of a thread in local memory, callees included. A kernel without local arrays, calls or recursion has a stack
  /// only where registers were spilled: a cubin does not tell spills from arrays.
  int64_t localBytes = 0;
  /// Most threads that a block may have by the source's launch bounds; 0 where it states none.
  int maxThreads = 0;
  /// Named barriers.
  int barriers = 0;
  /// The parameters together, and each in the order of declaration.
  int parameterBytes = 0;
  std::vector<CubinParameter> parameters;
  /// The kernel's constant bank, parameters included.
  int64_t constantBytes = 0;
  /// Machine code, functions that were not inlined included.
  int64_t codeBytes = 0;

  friend bool operator==(const CubinInfo&, const CubinInfo&) = default;
};

/// Names of the kernels in a cubin, in its order. The error, ErrorCode::Corrupt, says why `bytes` are no cubin.
llvm::Expected<std::vector<std::string>> readCubinEntries(llvm::StringRef bytes);

/// Resources of the kernel `entry`. ErrorCode::Corrupt when `bytes` are no cubin or have no such kernel.
llvm::Expected<CubinInfo> readCubin(llvm::StringRef bytes, llvm::StringRef entry);

/// The contents of the section `name`, within `bytes`; empty where there is no such section. ErrorCode::Corrupt when
/// `bytes` are no cubin.
llvm::Expected<llvm::StringRef> readCubinSection(llvm::StringRef bytes, llvm::StringRef name);

} // namespace lathe
