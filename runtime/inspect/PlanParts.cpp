//===- runtime/inspect/PlanParts.cpp - Steps and configs by name ------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/inspect/PlanParts.h"

#include "generator/CanonicalJson.h"

using namespace lathe;

llvm::Expected<KernelKind> lathe::findStep(const PlanGraph& graph, llvm::StringRef name) {
  std::string names;
  for (const KernelKind kind : graph.kernels()) {
    if (toString(kind) == name) return kind;
    names += (names.empty() ? "" : ", ") + toString(kind).str();
  }
  return makeError(ErrorCode::InvalidArgument, "the plan has no step \"{0}\"; its steps are {1}", name, names);
}

llvm::Expected<GemmConfigs> lathe::withConfig(GemmConfigs configs, llvm::StringRef step, llvm::StringRef json) {
  Config* slot = nullptr;
  for (const Gemm gemm : {Gemm::Logits, Gemm::GradInput, Gemm::GradWeight})
    if (toString(gemm) == step) slot = &configs.of(gemm);
  if (!slot)
    return makeError(ErrorCode::InvalidArgument,
                     "a config is for a matrix product, and \"{0}\" is none; name the step logits, grad_input or "
                     "grad_weight",
                     step);
  llvm::Expected<llvm::json::Value> value = parseJson(json);
  if (!value)
    return makeError(ErrorCode::InvalidArgument, "the config of {0} is no JSON: {1}", step,
                     takeSummary(value.takeError()).message);
  llvm::Expected<Config> config = parseConfig(*value);
  if (!config) return config.takeError();
  *slot = *config;
  return configs;
}
