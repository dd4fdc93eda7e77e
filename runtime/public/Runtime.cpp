//===- runtime/public/Runtime.cpp - The C++ API -----------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "lathe/runtime.h"

#include "generator/Workload.h"
#include "runtime/api/PlanDescription.h"
#include "runtime/api/RuntimeImplementation.h"
#include "runtime/api/RuntimeOptions.h"
#include "runtime/api/Unwrap.h"
#include "tuning/OnlineTuner.h"

#include <cmath>

using namespace lathe;

Runtime::Runtime(const RuntimeOptions& options) {
  const Environment environment = withOptions(Environment::fromProcess(), options);
  implementation_ = std::make_shared<Implementation>(
      environment, CompilerOptions{.threads = environment.compileThreads.value_or(0), .spillLimit = kToleratedSpill},
      LibraryOpeners::fromEnvironment(environment));
  implementation_->setTuner(std::make_unique<OnlineTuner>(*implementation_));
}

Plan Runtime::plan(const Workload& workload, const Shape& shape, const PlanOptions& options) {
  const PlanRequest request = requestOf(options);
  if (options.tune != Tune::Never && !(std::isfinite(options.tuneSeconds) && options.tuneSeconds > 0))
    throw Exception(ErrorCode::InvalidArgument,
                    "tuneSeconds is " + std::to_string(options.tuneSeconds) + "; it must be positive");
  if (options.tune == Tune::Now)
    implementation_->tuner()->tuneNow(workload, shape, request, options.device, options.tuneSeconds);
  std::shared_ptr<const Plan::Implementation> plan =
      unwrap(implementation_->plan(workload, shape, request, options.device));
  if (options.tune == Tune::Background) implementation_->tuner()->tuneInBackground(plan, request, options.tuneSeconds);
  return Plan(std::move(plan));
}

Plan::Plan(std::shared_ptr<const Implementation> implementation) : implementation_(std::move(implementation)) {}

const Workload& Plan::workload() const {
  return implementation_->plan.graph().workload;
}
const Shape& Plan::shape() const {
  return implementation_->plan.graph().shape;
}
int64_t Plan::workspaceBytes() const {
  return implementation_->plan.graph().workspaceBytes;
}

std::string Plan::describe() const {
  const Implementation& current = implementation_->current();
  std::vector<KernelPointer> kernels;
  for (const LoadedKernel::Pointer& loaded : current.plan.kernels()) kernels.push_back(loaded->pointer());
  llvm::json::Value json = toJson(current.plan.graph(), kernels);
  if (current.tuned) (*json.getAsObject())["tuned"] = toJson(*current.tuned);
  return llvm::formatv("{0:2}", json);
}

void Plan::forward(const RunArguments& arguments, StreamHandle stream) const {
  throwIfError(implementation_->forward(arguments, static_cast<CUstream>(stream)));
}
void Plan::backward(const RunArguments& arguments, StreamHandle stream) const {
  throwIfError(implementation_->backward(arguments, static_cast<CUstream>(stream)));
}
void Plan::run(const RunArguments& arguments, StreamHandle stream) const {
  throwIfError(implementation_->run(arguments, static_cast<CUstream>(stream)));
}
