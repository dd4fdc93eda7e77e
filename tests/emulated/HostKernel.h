//===- tests/emulated/HostKernel.h - A generated kernel on the CPU -*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Specialization.h"

#include "llvm/Support/DynamicLibrary.h"

namespace lathe::test {

/// A specialization of the simt or mma_sync family, compiled for the CPU with threads emulated as CudaOnHost.h says.
class HostKernel {
public:
  /// Writes the source and the library into `folder`. The error holds what the compiler said.
  static llvm::Expected<HostKernel> compile(const Specialization& specialization, llvm::StringRef folder);

  /// Runs a grid. `parameter` is the kernel's; device memory is host memory.
  void launch(const void* parameter, const unsigned (&grid)[3], unsigned seed) const {
    run_(parameter, grid, threads_, sharedBytes_, seed);
  }

private:
  using Run = void (*)(const void* parameter, const unsigned (&grid)[3], unsigned threads, unsigned sharedBytes,
                       unsigned seed);

  HostKernel(Run run, unsigned threads, unsigned sharedBytes)
      : run_(run), threads_(threads), sharedBytes_(sharedBytes) {}

  Run run_;
  unsigned threads_;
  unsigned sharedBytes_;
};

/// `source`, which is CUDA C++, with every `asm` statement made a call of the function that CudaOnHost.h has for its
/// instruction. The error names a statement that is not understood.
llvm::Expected<std::string> callInstructions(llvm::StringRef source);

} // namespace lathe::test
