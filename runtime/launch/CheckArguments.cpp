//===- runtime/launch/CheckArguments.cpp - Checks before a launch -----------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/launch/CheckArguments.h"

#include "generator/Workload.h"

using namespace lathe;

namespace {

/// What a pointer must be.
enum class Presence : uint8_t { Required, Optional, Forbidden };

struct PointerRule {
  const char* name;
  const void* value;
  uintptr_t alignment;
  Presence presence;
  /// Why the pointer is required or forbidden.
  const char* reason;
};

llvm::Error checkPointer(const PointerRule& rule) {
  if (!rule.value) {
    if (rule.presence != Presence::Required) return llvm::Error::success();
    return makeError(ErrorCode::InvalidArgument, "{0} is null; {1}", rule.name, rule.reason);
  }
  if (rule.presence == Presence::Forbidden)
    return makeError(ErrorCode::InvalidArgument, "{0} is {1}, but {2}; pass null", rule.name, rule.value, rule.reason);
  if (reinterpret_cast<uintptr_t>(rule.value) % rule.alignment != 0)
    return makeError(ErrorCode::InvalidArgument, "{0} is {1}, which is not a multiple of {2} bytes", rule.name,
                     rule.value, rule.alignment);
  return llvm::Error::success();
}

constexpr Presence presentIf(bool wanted, bool possible) {
  if (!possible) return Presence::Forbidden;
  return wanted ? Presence::Required : Presence::Optional;
}

} // namespace

llvm::Error lathe::checkArguments(const PlanGraph& plan, const RunArguments& run, WantedResults wanted) {
  const Workload& workload = plan.workload;
  if (wanted.gradients && !workload.anyGradient())
    return makeError(ErrorCode::InvalidArgument,
                     "gradients were asked of a plan whose workload has none; set gradInput, gradWeight or gradBias");
  const char* inputs = "every run needs it";
  const PointerRule rules[] = {
      {"input", run.input, 16, Presence::Required, inputs},
      {"weight", run.weight, 16, Presence::Required, inputs},
      {"target", run.target, 8, Presence::Required, inputs},
      {"workspace", run.workspace, 256, Presence::Required, inputs},
      {"bias", run.bias, 16, presentIf(true, workload.bias),
       workload.bias ? "the workload has a bias" : "the workload has no bias"},
      {"gradInput", run.gradInput, 16, presentIf(wanted.gradients, workload.gradInput),
       workload.gradInput ? "the workload has this gradient" : "the workload has no such gradient"},
      {"gradWeight", run.gradWeight, 16, presentIf(wanted.gradients, workload.gradWeight),
       workload.gradWeight ? "the workload has this gradient" : "the workload has no such gradient"},
      {"gradBias", run.gradBias, 16, presentIf(wanted.gradients, workload.gradBias),
       workload.gradBias ? "the workload has this gradient" : "the workload has no such gradient"},
      {"chosenLogitsMean", run.chosenLogitsMean, 4, presentIf(false, workload.logitMeans),
       "the workload has no logit means"},
      {"rejectedLogitsMean", run.rejectedLogitsMean, 4, presentIf(false, workload.logitMeans),
       "the workload has no logit means"},
      {"loss", run.loss, 4, Presence::Optional, ""},
      {"preferenceLoss", run.preferenceLoss, 4, Presence::Optional, ""},
      {"nll", run.nll, 4, Presence::Optional, ""},
      {"chosenLogps", run.chosenLogps, 4, Presence::Optional, ""},
      {"rejectedLogps", run.rejectedLogps, 4, Presence::Optional, ""},
      {"chosenRewards", run.chosenRewards, 4, Presence::Optional, ""},
      {"rejectedRewards", run.rejectedRewards, 4, Presence::Optional, ""},
      {"perTokenLogps", run.perTokenLogps, 4, Presence::Optional, ""},
      {"diagnostics", run.diagnostics, 4, Presence::Optional, ""},
      {"upstream", run.upstream, 4, Presence::Optional, ""},
  };
  for (const PointerRule& rule : rules)
    if (llvm::Error error = checkPointer(rule)) return error;
  if (run.workspaceBytes < plan.workspaceBytes)
    return makeError(ErrorCode::Workspace, "the workspace has {0} bytes; the plan needs {1}", run.workspaceBytes,
                     plan.workspaceBytes);
  return validate(workload, run.scalars);
}
