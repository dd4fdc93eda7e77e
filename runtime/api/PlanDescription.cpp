//===- runtime/api/PlanDescription.cpp - A plan as JSON ---------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/api/PlanDescription.h"

#include "generator/Workload.h"

using namespace lathe;

namespace {

llvm::json::Value toJson(const Step& step) {
  return llvm::json::Object{
      {"kernel", toString(step.kind)},
      {"pass", step.pass == Pass::Forward ? "forward" : "backward"},
      {"pairs", llvm::json::Array{step.pairBegin, step.pairEnd}},
      {"grid", llvm::json::Array{step.grid[0], step.grid[1], step.grid[2]}},
      {"flops", step.flops},
      {"bytes", step.bytes},
  };
}

llvm::json::Array toJson(const std::vector<Step>& steps) {
  llvm::json::Array array;
  for (const Step& step : steps) array.push_back(toJson(step));
  return array;
}

} // namespace

llvm::json::Value lathe::toJson(const Kernel& kernel) {
  const Specialization& specialization = kernel.specialization;
  llvm::json::Object object{
      {"kernel", toString(specialization.kind)},
      {"entry", specialization.entry},
      {"arch", specialization.target.arch()},
      {"kernel_digest", kernel.digest.text()},
      {"source_digest", specialization.sourceDigest.text()},
      {"origin", toString(kernel.origin)},
      {"compile_milliseconds", kernel.compileMilliseconds},
      {"threads", specialization.threads},
      {"registers", kernel.info.registers},
      {"static_shared_bytes", kernel.info.sharedBytes},
      {"dynamic_shared_bytes", specialization.sharedBytes},
      {"local_bytes", kernel.info.localBytes},
      {"code_bytes", kernel.info.codeBytes},
  };
  if (specialization.config) object["config"] = lathe::toJson(*specialization.config);
  return object;
}

llvm::json::Value lathe::toJson(const TunedChoice& tuned) {
  const TunedPlan& plan = tuned.plan;
  return llvm::json::Object{{"stale", tuned.stale},
                            {"date", plan.date},
                            {"setting", toJson(plan.setting)},
                            {"rows", rowBucket(plan.shape.rows())},
                            {"median_ms", plan.median},
                            {"untuned_median_ms", plan.untunedMedian}};
}

llvm::json::Value lathe::toJson(const PlanGraph& graph, llvm::ArrayRef<KernelPointer> kernels) {
  llvm::json::Array regions;
  for (const WorkspaceRegion& region : graph.regions)
    regions.push_back(llvm::json::Object{{"name", region.name}, {"offset", region.offset}, {"bytes", region.bytes}});
  llvm::json::Array compiled;
  for (const KernelPointer& kernel : kernels) compiled.push_back(lathe::toJson(*kernel));
  const GemmConfigs& configs = graph.choices.configs;
  return llvm::json::Object{
      {"workload", toJson(graph.workload)},
      {"workload_digest", workloadDigest(graph.workload).text()},
      {"shape", llvm::json::Object{{"sequences", graph.shape.sequences}, {"tokens", graph.shape.tokens}}},
      {"target", toJson(graph.target)},
      {"strategy", toString(graph.choices.strategy)},
      {"chunk_pairs", graph.choices.chunkPairs},
      {"configs", llvm::json::Object{{"logits", toJson(configs.logits)},
                                     {"grad_input", toJson(configs.gradInput)},
                                     {"grad_weight", toJson(configs.gradWeight)}}},
      {"workspace_bytes", graph.workspaceBytes},
      {"workspace", std::move(regions)},
      {"forward", ::toJson(graph.forward)},
      {"backward", ::toJson(graph.backward)},
      {"forward_backward", ::toJson(graph.forwardBackward)},
      {"kernels", std::move(compiled)},
  };
}
