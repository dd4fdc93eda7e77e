//===- tuning/Candidates.cpp - What is worth measuring ---------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tuning/Candidates.h"

#include "llvm/ADT/STLExtras.h"

using namespace lathe;

namespace {

/// Chunked plans are tried with the batch in this many chunks.
constexpr int64_t kChunkCounts[] = {2, 4, 8};

bool fits(const PlanChoices& choices, const TuningProblem& problem) {
  llvm::Expected<PlanGraph> plan = layOutPlan(problem.workload, problem.shape, problem.target, choices);
  if (plan) return !problem.workspaceLimit || plan->workspaceBytes <= *problem.workspaceLimit;
  llvm::consumeError(plan.takeError());
  return false;
}

} // namespace

std::vector<RankedConfig> lathe::rankConfigs(Gemm gemm, const TuningProblem& problem) {
  std::vector<RankedConfig> ranked;
  const int64_t rows = rowBucket(problem.shape.rows());
  for (const Config& config : configGrid(problem.workload)) {
    RankedConfig point{config, 0, ""};
    if (llvm::Error error = checkConfig(config, gemm, problem.workload, problem.target))
      point.illegal = takeSummary(std::move(error)).message;
    else
      point.seconds = predictSeconds(config, gemm, problem.workload, problem.target, rows);
    ranked.push_back(std::move(point));
  }
  llvm::stable_sort(ranked, [](const RankedConfig& a, const RankedConfig& b) {
    if (a.illegal.empty() != b.illegal.empty()) return a.illegal.empty();
    return a.illegal.empty() && a.seconds < b.seconds;
  });
  return ranked;
}

std::vector<Gemm> lathe::productsOf(const Workload& workload) {
  std::vector<Gemm> products{Gemm::Logits};
  if (workload.gradInput) products.push_back(Gemm::GradInput);
  if (workload.gradWeight) products.push_back(Gemm::GradWeight);
  return products;
}

TuningSubject lathe::subjectOf(Gemm gemm) {
  switch (gemm) {
  case Gemm::Logits:
    return TuningSubject::Logits;
  case Gemm::GradInput:
    return TuningSubject::GradInput;
  case Gemm::GradWeight:
    return TuningSubject::GradWeight;
  }
  llvm_unreachable("unknown product");
}

GemmConfigs lathe::withConfig(GemmConfigs configs, Gemm gemm, const Config& config) {
  configs.of(gemm) = config;
  return configs;
}

llvm::Expected<PlanChoices> lathe::untunedChoices(const TuningProblem& problem) {
  llvm::Expected<PlanGraph> plan =
      makePlan(problem.workload, problem.shape, problem.target, {.workspaceLimit = problem.workspaceLimit});
  if (!plan) return plan.takeError();
  return plan->choices;
}

std::vector<PlanChoices> lathe::productCandidates(Gemm gemm, const PlanChoices& base, const TuningProblem& problem,
                                                  size_t width) {
  std::vector<PlanChoices> candidates{base};
  for (const RankedConfig& point : rankConfigs(gemm, problem)) {
    if (!point.illegal.empty() || (width > 0 && candidates.size() >= width)) break;
    PlanChoices choices = base;
    choices.configs = withConfig(base.configs, gemm, point.config);
    // A config decides how much the workspace has to hold for each row.
    if (choices != base && fits(choices, problem)) candidates.push_back(std::move(choices));
  }
  return candidates;
}

std::vector<PlanChoices> lathe::strategyCandidates(const GemmConfigs& configs, const TuningProblem& problem) {
  std::vector<PlanChoices> candidates;
  const int64_t pairs = problem.shape.pairs();
  const auto add = [&](Strategy strategy, int64_t chunkPairs) {
    const PlanChoices choices{strategy, chunkPairs, configs};
    if (fits(choices, problem) && !llvm::is_contained(candidates, choices)) candidates.push_back(choices);
  };
  add(Strategy::Stored, pairs);
  // Without gradients nothing is kept, and chunks would only be smaller launches.
  if (!problem.workload.anyGradient()) return candidates;
  for (const int64_t count : kChunkCounts)
    if (count <= pairs) add(Strategy::Chunked, (pairs + count - 1) / count);
  return candidates;
}

std::vector<KernelKind> lathe::kernelsDecidedBy(Gemm gemm, const PlanGraph& graph) {
  const GemmConfigs& own = graph.choices.configs;
  const std::vector<Config> space = searchSpace(gemm, graph.workload, graph.target);
  std::vector<KernelKind> decided;
  for (const KernelKind kind : graph.kernels()) {
    const auto digestWith = [&](const Config& config) {
      return specialize(kind, graph.workload, graph.target, withConfig(own, gemm, config)).sourceDigest;
    };
    const Digest digest = digestWith(own.of(gemm));
    if (llvm::any_of(space, [&](const Config& config) { return digestWith(config) != digest; }))
      decided.push_back(kind);
  }
  return decided;
}
