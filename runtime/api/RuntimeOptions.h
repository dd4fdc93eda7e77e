//===- runtime/api/RuntimeOptions.h - Options of the C++ API ----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/CostModel.h"
#include "lathe/runtime.h"
#include "runtime/cache/Environment.h"

namespace lathe {

/// `environment` with what `options` say in its place.
Environment withOptions(Environment environment, const RuntimeOptions& options);

/// The request that `options` make.
PlanRequest requestOf(const PlanOptions& options);

} // namespace lathe
