//===- tests/support/ResultChecks.h - Results against float64 --*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/io/Case.h"
#include "runtime/reference/Compare.h"
#include "runtime/reference/Reference.h"
#include "tests/support/Failures.h"

namespace lathe::test {

/// The right results for `value`, in float64.
inline LossResult referenceOf(const Case& value, double upstream = 1.0) {
  return require(computeReference<double>({.workload = value.workload,
                                           .shape = value.shape,
                                           .scalars = value.scalars,
                                           .input = value.input.data(),
                                           .weight = value.weight.data(),
                                           .bias = value.bias.empty() ? nullptr : value.bias.data(),
                                           .target = value.target.data(),
                                           .upstreamScale = upstream}));
}

/// Checks that everything in `want` is met within the tolerances of the workload's arithmetic.
inline void checkClose(const LossResult& got, const LossResult& want, const Workload& workload) {
  for (const Comparison& comparison : compare(got, want, workload)) {
    INFO(comparison.name << ": error " << comparison.error << ", tolerance " << comparison.tolerance);
    CHECK(comparison.ok);
  }
  CHECK(got.diagnostics == want.diagnostics);
}

} // namespace lathe::test
