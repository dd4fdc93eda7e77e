//===- runtime/api/HostRun.h - A run on the CPU -----------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Error.h"
#include "lathe/runtime.h"

namespace lathe {

/// Computes what `Plan::run` does with the host reference in double precision: every pointer in `run` is host memory,
/// gradients are asked for by their pointers, the workspace is not used.
llvm::Error runOnHost(const Workload& workload, const Shape& shape, const RunArguments& run);

} // namespace lathe
