//===- runtime/inspect/PlanParts.h - Steps and configs by name --------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/PlanGraph.h"

namespace lathe {

/// The step `name` of `graph`; the error lists those that it has.
llvm::Expected<KernelKind> findStep(const PlanGraph& graph, llvm::StringRef name);

/// `configs` with the config in `json` for the product that `step` names. Whether it is legal is for the plan to say.
llvm::Expected<GemmConfigs> withConfig(GemmConfigs configs, llvm::StringRef step, llvm::StringRef json);

} // namespace lathe
