//===- cli/PlanInputs.cpp - What a plan is made from ------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/PlanInputs.h"

#include "cli/Device.h"

using namespace lathe;
using namespace lathe::cli;

llvm::Expected<PlanInputs> lathe::cli::resolvePlanInputs(const WorkloadOptions& workload, llvm::StringRef arch,
                                                         const PlanFlags& flags, const Session& session) {
  llvm::Expected<WorkloadInput> input = workload.resolve();
  if (!input) return input.takeError();
  llvm::Expected<Target> target = chooseTarget(arch, session.environment);
  if (!target) return target.takeError();
  llvm::Expected<PlanRequest> request = flags.resolve(input->workload, *target, input->shape.rows());
  if (!request) return request.takeError();
  return PlanInputs{*input, *target, *request};
}

void lathe::cli::addStepOption(CLI::App& verb, std::string& step) {
  std::vector<std::string> steps = {"all"};
  for (size_t kind = 0; kind < kKernelKindCount; ++kind) steps.push_back(toString(static_cast<KernelKind>(kind)).str());
  verb.add_option("--step", step, "One kernel, or all (default all)")->check(CLI::IsMember(steps));
}
