//===- runtime/inspect/Plots.h - Plots of an inspection as SVG --------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "lathe/inspect.h"

namespace lathe {

/// The products of `plan` under the roofs of its target: FLOPs a second over FLOPs a byte, both logarithmic. Measured
/// times where there are any, else predicted ones. Empty when the plan has no product.
std::string rooflinePlot(const PlanInspection& plan);

/// Every config of `landscape` by its predicted time, fastest first, with the measured times where there are any.
std::string landscapePlot(const Landscape& landscape);

} // namespace lathe
