//===- tuning/Candidates.h - What is worth measuring -----------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/CostModel.h"
#include "runtime/cache/TuningDocument.h"

#include <vector>

namespace lathe {

/// What is tuned: a workload at one size on one kind of device.
struct TuningProblem {
  Workload workload;
  Shape shape;
  Target target;
  /// The most workspace that a plan may use, in bytes.
  std::optional<int64_t> workspaceLimit = std::nullopt;
};

/// A point of the search space as the cost model sees it.
struct RankedConfig {
  Config config;
  /// Predicted time of the product.
  double seconds = 0;
  /// Why it cannot run; empty when it can.
  std::string illegal;
};

/// Every point of the grid for `gemm`: the legal ones by predicted time, then the others.
std::vector<RankedConfig> rankConfigs(Gemm gemm, const TuningProblem& problem);

/// The products that the workload needs.
std::vector<Gemm> productsOf(const Workload& workload);
TuningSubject subjectOf(Gemm gemm);

/// The choices that are made without tuning.
llvm::Expected<PlanChoices> untunedChoices(const TuningProblem& problem);

/// `base` with each of the `width` most promising configs for `gemm` (0: all legal ones), that of `base` first.
std::vector<PlanChoices> productCandidates(Gemm gemm, const PlanChoices& base, const TuningProblem& problem,
                                           size_t width);

/// The strategies that fit into the workspace limit, with `configs`.
std::vector<PlanChoices> strategyCandidates(const GemmConfigs& configs, const TuningProblem& problem);

/// `configs` with `config` for `gemm`.
GemmConfigs withConfig(GemmConfigs configs, Gemm gemm, const Config& config);

/// The kinds of kernel whose code depends on the config of `gemm`, given `choices` for the rest.
std::vector<KernelKind> kernelsDecidedBy(Gemm gemm, const PlanGraph& graph);

} // namespace lathe
