//===- tests/support/RuntimeSamples.h - Runtimes on the fake GPU *- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/api/RuntimeImplementation.h"
#include "tests/support/Failures.h"
#include "tests/support/FakeDriver.h"
#include "tests/support/ScratchFolder.h"

namespace lathe::test {

/// The NVRTC of this machine.
inline const Nvrtc& realNvrtc() {
  static const Nvrtc nvrtc = require(openNvrtc("", Environment::fromProcess().cudaSearchFolders));
  return nvrtc;
}

/// Kernels are kept in `cacheDir`; nothing is logged.
inline Environment quietEnvironment(std::optional<std::string> cacheDir) {
  Environment environment;
  environment.cacheDir = std::move(cacheDir);
  environment.logLevel = "off";
  return environment;
}

/// The driver of `fake` and the real NVRTC.
inline LibraryOpeners openersOf(const FakeDriver& fake) {
  return {[&fake]() -> llvm::Expected<Driver> { return fake.table(); },
          []() -> llvm::Expected<Nvrtc> { return realNvrtc(); }};
}

/// A cache that the tests of one executable share, so that each kernel is compiled once.
inline const std::string& sharedCache() {
  static const ScratchFolder folder;
  static const std::string path = folder.path();
  return path;
}

/// A runtime on the GPU of `fake`, with the shared cache. Spilled registers do not matter where no kernel runs.
inline std::unique_ptr<Runtime::Implementation> makeRuntime(const FakeDriver& fake) {
  return std::make_unique<Runtime::Implementation>(
      quietEnvironment(sharedCache()), CompilerOptions{.threads = 0, .spillLimit = kAnySpill}, openersOf(fake));
}

/// A workload whose plan uses every kind of kernel, of the simt family.
inline Workload smallWorkload() {
  return {
      .hidden = 64, .vocab = 300, .dtype = DType::FP32, .bias = true, .gradBias = true, .gradWeightDType = DType::FP32};
}

inline constexpr Shape kSmallShape{.sequences = 6, .tokens = 8};

/// Well aligned addresses for a run of `graph`. Nothing lies there: a fake device reads no parameter.
inline RunArguments addressesFor(const PlanGraph& graph) {
  uintptr_t next = uintptr_t(1) << 40;
  const auto fresh = [&next] { return reinterpret_cast<void*>(next += uintptr_t(1) << 36); };
  const Workload& workload = graph.workload;
  RunArguments run;
  run.input = fresh();
  run.weight = fresh();
  if (workload.bias) run.bias = fresh();
  run.target = static_cast<const int64_t*>(fresh());
  run.loss = static_cast<float*>(fresh());
  run.perTokenLogps = static_cast<float*>(fresh());
  if (workload.gradInput) run.gradInput = fresh();
  if (workload.gradWeight) run.gradWeight = fresh();
  if (workload.gradBias) run.gradBias = fresh();
  run.workspace = fresh();
  run.workspaceBytes = graph.workspaceBytes;
  return run;
}

} // namespace lathe::test
