//===- runtime/api/Runtime.cpp - The C++ API --------------------------------===//
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

using namespace lathe;

Runtime::Runtime(const RuntimeOptions& options) {
  const Environment environment = withOptions(Environment::fromProcess(), options);
  implementation_ = std::make_shared<Implementation>(
      environment, CompilerOptions{.threads = environment.compileThreads.value_or(0), .spillLimit = kToleratedSpill},
      LibraryOpeners::fromEnvironment(environment));
}

Plan Runtime::plan(const Workload& workload, const Shape& shape, const PlanOptions& options) {
  return Plan(unwrap(implementation_->plan(workload, shape, requestOf(options), options.device)));
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
  std::vector<KernelPointer> kernels;
  for (const LoadedKernel::Pointer& loaded : implementation_->plan.kernels()) kernels.push_back(loaded->pointer());
  return llvm::formatv("{0:2}", toJson(implementation_->plan.graph(), kernels));
}

void Plan::forward(const RunArguments& arguments, StreamHandle stream) const {
  throwIfError(implementation_->plan.forward(arguments, static_cast<CUstream>(stream)));
}
void Plan::backward(const RunArguments& arguments, StreamHandle stream) const {
  throwIfError(implementation_->plan.backward(arguments, static_cast<CUstream>(stream)));
}
void Plan::run(const RunArguments& arguments, StreamHandle stream) const {
  throwIfError(implementation_->plan.run(arguments, static_cast<CUstream>(stream)));
}
