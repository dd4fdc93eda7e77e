//===- runtime/public/Inspect.cpp - Inspecting through the C++ API -------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "lathe/inspect.h"

#include "generator/Workload.h"
#include "runtime/api/RuntimeImplementation.h"
#include "runtime/api/RuntimeOptions.h"
#include "runtime/api/Unwrap.h"
#include "runtime/inspect/Difference.h"
#include "runtime/inspect/Explain.h"
#include "runtime/inspect/InspectionJson.h"
#include "runtime/inspect/Inspector.h"
#include "runtime/inspect/PlanParts.h"
#include "runtime/inspect/Report.h"

#include <spdlog/logger.h>

using namespace lathe;

namespace {

/// The plan that `options` describe.
llvm::Expected<PlanGraph> graphOf(const Workload& workload, const Shape& shape, const InspectOptions& options) {
  llvm::Expected<Target> target = parseTarget(options.arch);
  if (!target) return target.takeError();
  if (llvm::Error error = validate(workload)) return error;
  if (llvm::Error error = validate(workload, shape)) return error;
  PlanRequest request = requestOf({options.workspaceLimit, options.chunkPairs, std::nullopt});
  if (!options.configJson.empty()) {
    llvm::Expected<GemmConfigs> chosen = chooseConfigs(workload, *target, shape.rows());
    if (!chosen) return chosen.takeError();
    llvm::Expected<GemmConfigs> configs = withConfig(*chosen, options.step, options.configJson);
    if (!configs) return configs.takeError();
    request.configs = *configs;
  }
  return makePlan(workload, shape, *target, request);
}

/// The step named by `name` in `graph`; none for an empty name.
llvm::Expected<std::optional<KernelKind>> stepOf(const PlanGraph& graph, const std::string& name) {
  if (name.empty()) return std::nullopt;
  llvm::Expected<KernelKind> step = findStep(graph, name);
  if (!step) return step.takeError();
  return *step;
}

} // namespace

PlanInspection lathe::inspectPlan(const Workload& workload, const Shape& shape, const InspectOptions& options) {
  Environment environment = withOptions(Environment::fromProcess(), options.runtime);
  if (options.nvdisasmPath) environment.nvdisasmPath = *options.nvdisasmPath;
  const PlanGraph graph = unwrap(graphOf(workload, shape, options));
  const std::optional<KernelKind> step = unwrap(stepOf(graph, options.step));
  const auto warn = [logger = makeLogger(environment)](llvm::StringRef message) { logger->warn("{}", message.str()); };
  const Cache cache(environment.cacheDir, environment.cachePath, warn);
  Inspector inspector(environment, &cache, LibraryOpeners::fromEnvironment(environment).nvrtc, warn);
  return unwrap(inspector.plan(graph, step));
}

KernelComparison lathe::compareKernels(const KernelInspection& first, const KernelInspection& second) {
  return compareKernels(ComparedKernel{first}, ComparedKernel{second});
}

KernelExplanation lathe::explainCubin(const std::string& what, const RuntimeOptions& options) {
  const Environment environment = withOptions(Environment::fromProcess(), options);
  return unwrap(explainKernel(what, cacheRoots(environment)));
}

std::string lathe::inspectionJson(const PlanInspection& plan, bool withCode) {
  return llvm::formatv("{0}", toJson(plan, withCode ? CodeInJson::With : CodeInJson::Without));
}

std::string lathe::inspectionHtml(const PlanInspection& plan) {
  return renderReport(plan);
}
