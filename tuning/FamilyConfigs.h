//===- tuning/FamilyConfigs.h - Configs of one kernel family ---------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/CostModel.h"

namespace lathe {

/// The best legal config of `family` for every product that `workload` needs, as `chooseConfigs` ranks them; products
/// that it does not need keep the choice of `chooseConfigs`. The error names the product that the family cannot
/// compute.
llvm::Expected<GemmConfigs> chooseConfigsOf(Family family, const Workload& workload, const Target& target,
                                            int64_t rows);

} // namespace lathe
