//===- runtime/compile/Compiler.h - Compiling in parallel ------*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/compile/Cubin.h"
#include "runtime/compile/Nvrtc.h"

#include "llvm/ADT/ArrayRef.h"

#include <string>
#include <vector>

namespace lathe {

/// A kernel ready to load.
struct CompiledKernel {
  std::string cubin;
  CubinInfo info;
  /// NVRTC's warnings.
  std::string log;
  /// Time that the compilation took.
  double milliseconds = 0;
};

/// What plans tolerate: a few values of an epilogue, or addresses of a product whose extents are tiny. The default
/// configs of large products spill nothing.
inline constexpr int64_t kToleratedSpill = 256;
/// For those who want the kernel whatever it spills.
inline constexpr int64_t kAnySpill = INT64_MAX;

struct CompilerOptions {
  /// Compilations that run at once; 0 for as many as the machine has hardware threads.
  unsigned threads = 0;
  /// Bytes of local memory that a thread may use for registers that do not fit. More would be slow, and is refused.
  int64_t spillLimit = 0;
  /// Keeps the source's lines and the PTX in the cubins, for `lathe inspect`. The machine code is the same.
  bool lineInfo = false;
};

/// All options of a compilation for `arch` by `options`: what the kernel digest covers.
std::vector<std::string> compileOptions(llvm::StringRef arch, const CompilerOptions& options);

/// NVRTC and a limit on how many compilations run at once. Immutable; safe to use from several threads.
class Compiler {
public:
  explicit Compiler(Nvrtc nvrtc, CompilerOptions options = {}) : nvrtc_(std::move(nvrtc)), options_(options) {}

  /// Compiles one unit on this thread.
  llvm::Expected<CompiledKernel> compile(const CompileRequest& request) const;
  /// Compiles all `requests`; results are in their order. A failure does not stop the others.
  std::vector<llvm::Expected<CompiledKernel>> compileAll(llvm::ArrayRef<CompileRequest> requests) const;

  const Nvrtc& nvrtc() const { return nvrtc_; }

private:
  Nvrtc nvrtc_;
  CompilerOptions options_;
};

} // namespace lathe
