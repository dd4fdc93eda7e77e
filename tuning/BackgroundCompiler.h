//===- tuning/BackgroundCompiler.h - Compiling while measuring -------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/api/RuntimeImplementation.h"

#include "llvm/Support/ThreadPool.h"

#include <condition_variable>
#include <map>

namespace lathe {

/// Compiles the kernels of plans on threads of its own, in the order in which they are submitted, each kernel once.
/// Results are in the kernel store and the cache of the runtime, which must outlive this.
class BackgroundCompiler {
public:
  explicit BackgroundCompiler(Runtime::Implementation& runtime);
  /// Finishes what is being compiled, and leaves the rest.
  ~BackgroundCompiler();

  void submit(const PlanGraph& graph);
  /// Waits for the kernels of `graph`, submitting them if need be. Why one cannot be had, such as that it spills; empty
  /// when all are there.
  std::string wait(const PlanGraph& graph);

private:
  /// Absent: not yet compiled. Empty: compiled.
  using Outcome = std::optional<std::string>;

  void compile(const Specialization& unit, const Workload& workload);

  Runtime::Implementation& runtime_;
  std::mutex mutex_;
  std::condition_variable done_;
  bool stopping_ = false;
  std::map<Digest, Outcome> outcomes_;
  /// Last, so that its threads end first.
  llvm::DefaultThreadPool pool_;
};

} // namespace lathe
