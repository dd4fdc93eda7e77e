//===- tuning/BackgroundCompiler.cpp - Compiling while measuring -----------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tuning/BackgroundCompiler.h"

using namespace lathe;

BackgroundCompiler::BackgroundCompiler(Runtime::Implementation& runtime)
    : runtime_(runtime), pool_(llvm::hardware_concurrency(runtime.environment().compileThreads.value_or(0))) {}

BackgroundCompiler::~BackgroundCompiler() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  pool_.wait();
}

void BackgroundCompiler::submit(const PlanGraph& graph) {
  for (const KernelKind kind : graph.kernels()) {
    Specialization unit = specialize(kind, graph.workload, graph.target, graph.choices.configs);
    {
      const std::lock_guard lock(mutex_);
      if (!outcomes_.try_emplace(unit.sourceDigest).second) continue;
    }
    pool_.async([this, unit = std::move(unit), workload = graph.workload] { compile(unit, workload); });
  }
}

void BackgroundCompiler::compile(const Specialization& unit, const Workload& workload) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
  }
  llvm::Expected<std::vector<KernelPointer>> kernel = runtime_.store().get(unit, workload);
  const std::string failure = kernel ? "" : takeSummary(kernel.takeError()).message;
  const std::lock_guard lock(mutex_);
  outcomes_[unit.sourceDigest] = failure;
  done_.notify_all();
}

std::string BackgroundCompiler::wait(const PlanGraph& graph) {
  submit(graph);
  for (const KernelKind kind : graph.kernels()) {
    const Digest digest = specialize(kind, graph.workload, graph.target, graph.choices.configs).sourceDigest;
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return outcomes_[digest].has_value(); });
    if (!outcomes_[digest]->empty()) return *outcomes_[digest];
  }
  return "";
}
