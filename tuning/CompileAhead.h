//===- tuning/CompileAhead.h - Compiling plans before they are needed ------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/api/RuntimeImplementation.h"

#include <functional>

namespace lathe {

/// One kernel of a plan: compiled or found in the cache, or why not.
struct KernelOutcome {
  KernelKind kind;
  Target target;
  /// Null when it failed.
  KernelPointer kernel;
  std::string failure;
};

/// Hears of each kernel as it is done: how many are, of how many, and the kernel. Calls come one at a time, from any
/// thread.
using CompileProgress = std::function<void(size_t done, size_t total, const KernelOutcome& outcome)>;

/// Compiles the kernels of all `graphs` in parallel (or finds them in the cache of `runtime`), in the order of the
/// graphs. A failure does not stop the others; that there is no compiler at all is one error.
llvm::Expected<std::vector<KernelOutcome>>
compileAhead(Runtime::Implementation& runtime, llvm::ArrayRef<PlanGraph> graphs, const CompileProgress& progress);

} // namespace lathe
