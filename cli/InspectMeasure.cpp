//===- cli/InspectMeasure.cpp - Measured times of an inspection -------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/InspectMeasure.h"

#include "cli/CaseRun.h"
#include "tuning/Measure.h"

using namespace lathe;
using namespace lathe::cli;

namespace {

/// A request that makes `graph` again.
PlanRequest requestOf(const PlanGraph& graph) {
  PlanRequest request;
  request.strategy = graph.choices.strategy;
  if (graph.choices.strategy == Strategy::Chunked) request.chunkPairs = graph.choices.chunkPairs;
  request.configs = graph.choices.configs;
  return request;
}

llvm::Expected<GpuInfo> gpuFor(const PlanGraph& graph, Runtime::Implementation& runtime) {
  llvm::Expected<DeviceChoice> device = chooseDevice("cuda", runtime);
  if (!device) return device.takeError();
  const std::string here = device->gpu->target.arch();
  if (here == graph.target.arch()) return *device->gpu;
  return makeError(ErrorCode::InvalidArgument,
                   "--measure runs the plan on this machine's GPU, which is {0}, and the plan is for {1}; leave out "
                   "--arch",
                   here, graph.target.arch());
}

/// Notes the time of the step that `timing` has at `index`.
void note(const PlanTiming& timing, size_t index, llvm::MutableArrayRef<StepInspection> steps) {
  const Step& measured = timing.steps[index];
  for (StepInspection& step : steps)
    if (step.step == toString(measured.kind) && step.pairBegin == measured.pairBegin && !step.measuredMilliseconds) {
      step.measuredMilliseconds = timing.stepTimings[index].median;
      return;
    }
}

} // namespace

llvm::Error lathe::cli::measureSteps(const PlanGraph& graph, const Scalars& scalars, int repetitions,
                                     const Session& session, llvm::MutableArrayRef<StepInspection> steps) {
  const std::shared_ptr<Runtime::Implementation> runtime = makeRuntime(session.environment);
  llvm::Expected<GpuInfo> gpu = gpuFor(graph, *runtime);
  if (!gpu) return gpu.takeError();
  if (llvm::Error error = checkHostMemory(graph.workload, graph.shape)) return error;
  const Case value = makeRandomCase(graph.workload, graph.shape, scalars, /*seed=*/0, /*logitStd=*/1,
                                    /*maskedFraction=*/0);
  DeviceRunOptions options;
  options.request = requestOf(graph);
  options.device = gpu->ordinal;
  llvm::Expected<DeviceCase> uploaded = DeviceCase::upload(*runtime, value, options);
  if (!uploaded) return uploaded.takeError();
  llvm::Expected<PlanTiming> timing = measurePlan(*uploaded, options.twoCalls, repetitions);
  if (!timing) return timing.takeError();
  for (size_t i = 0; i < timing->steps.size(); ++i) note(*timing, i, steps);
  return llvm::Error::success();
}
