//===- tuning/FamilyConfigs.cpp - Configs of one kernel family -------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tuning/FamilyConfigs.h"

#include "generator/Workload.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

#include <limits>

using namespace lathe;

namespace {

llvm::Expected<Config> bestOf(Family family, Gemm gemm, const Workload& workload, const Target& target, int64_t rows) {
  std::optional<Config> best;
  double least = std::numeric_limits<double>::infinity();
  for (const Config& config : searchSpace(gemm, workload, target)) {
    if (config.family != family) continue;
    const double seconds = predictSeconds(config, gemm, workload, target, rows);
    if (best && seconds >= least) continue;
    best = config;
    least = seconds;
  }
  if (best) return *best;
  return makeError(
      ErrorCode::Unsupported,
      "family {0} has no legal config for {1} on {2} with dtype {3}, precision {4}, hidden {5}, vocab {6}; "
      "choose another family, or none to take the fastest",
      toString(family), toString(gemm), target.arch(), toString(workload.dtype), toString(workload.precision),
      workload.hidden, workload.vocab);
}

} // namespace

llvm::Expected<GemmConfigs> lathe::chooseConfigsOf(Family family, const Workload& workload, const Target& target,
                                                   int64_t rows) {
  llvm::Expected<GemmConfigs> configs = chooseConfigs(workload, target, rows);
  if (!configs) return configs.takeError();
  const int64_t bucket = static_cast<int64_t>(llvm::PowerOf2Ceil(static_cast<uint64_t>(rows)));
  const struct {
    Gemm gemm;
    Config& config;
    bool needed;
  } products[] = {
      {Gemm::Logits, configs->logits, true},
      {Gemm::GradInput, configs->gradInput, workload.gradInput},
      {Gemm::GradWeight, configs->gradWeight, workload.gradWeight},
  };
  for (const auto& product : products) {
    if (!product.needed) continue;
    llvm::Expected<Config> config = bestOf(family, product.gemm, workload, target, bucket);
    if (!config) return config.takeError();
    product.config = *config;
  }
  return configs;
}
