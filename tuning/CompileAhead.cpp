//===- tuning/CompileAhead.cpp - Compiling plans before they are needed ----===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tuning/CompileAhead.h"

#include "llvm/Support/ThreadPool.h"

#include <mutex>

using namespace lathe;

namespace {

struct Job {
  const PlanGraph* graph;
  KernelKind kind;
};

KernelOutcome compileOne(KernelStore& store, const Job& job) {
  const PlanGraph& graph = *job.graph;
  KernelOutcome outcome{job.kind, graph.target, nullptr, ""};
  const Specialization unit = specialize(job.kind, graph.workload, graph.target, graph.choices.configs);
  llvm::Expected<std::vector<KernelPointer>> kernels = store.get(unit, graph.workload);
  if (kernels)
    outcome.kernel = kernels->front();
  else
    outcome.failure = takeSummary(kernels.takeError()).message;
  return outcome;
}

} // namespace

llvm::Expected<std::vector<KernelOutcome>> lathe::compileAhead(Runtime::Implementation& runtime,
                                                               llvm::ArrayRef<PlanGraph> graphs,
                                                               const CompileProgress& progress) {
  llvm::Expected<const Compiler*> compiler = runtime.store().compiler();
  if (!compiler) return compiler.takeError();
  std::vector<Job> jobs;
  for (const PlanGraph& graph : graphs)
    for (const KernelKind kind : graph.kernels()) jobs.push_back({&graph, kind});

  std::vector<KernelOutcome> outcomes(jobs.size());
  std::mutex mutex;
  size_t done = 0;
  llvm::DefaultThreadPool pool(llvm::hardware_concurrency(runtime.environment().compileThreads.value_or(0)));
  for (size_t i = 0; i < jobs.size(); ++i)
    pool.async([&, i] {
      KernelOutcome outcome = compileOne(runtime.store(), jobs[i]);
      const std::lock_guard lock(mutex);
      progress(++done, jobs.size(), outcome);
      outcomes[i] = std::move(outcome);
    });
  pool.wait();
  return outcomes;
}
