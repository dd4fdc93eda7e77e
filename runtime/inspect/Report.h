//===- runtime/inspect/Report.h - An inspection as a page -------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "lathe/inspect.h"

namespace lathe {

/// `plan` as one HTML page that needs nothing else: the steps, resources, a roofline plot, the tuning landscape, every
/// source beside its machine code, and where all of it came from. What the plan says is escaped, whatever it says.
std::string renderReport(const PlanInspection& plan);

} // namespace lathe
