//===- runtime/reference/Compare.h - Results against results ---*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "lathe/workload.h"
#include "runtime/io/LossResult.h"

#include "llvm/ADT/ArrayRef.h"

#include <string>
#include <vector>

namespace lathe {

/// |got - want| / |want| in the Euclidean norm, and |got| where `want` is all zero. Infinite when the sizes differ; NaN
/// when just one of two matching elements is NaN; NaN or infinite when one of them is infinite.
double relativeL2(llvm::ArrayRef<double> got, llvm::ArrayRef<double> want);

/// The largest |got - want| / (1 + |want|): small when each element is near in absolute or in relative terms. Infinite
/// and NaN as in `relativeL2`.
double mixedError(llvm::ArrayRef<double> got, llvm::ArrayRef<double> want);

/// The outcome for one value of a result.
struct Comparison {
  std::string name;
  double error = 0;
  double tolerance = 0;
  bool ok = false;
};

/// Compares everything that `want` has, in a fixed order: gradients by `relativeL2`, all else by `mixedError`. The
/// tolerances follow the workload's arithmetic: 1e-5 for fp32 `ieee`; for bf16, fp16 and tf32 1e-2 for gradients and
/// 2e-3 for all else. A NaN is right only where `want` has one, and an infinity never: how far apart
/// two values beyond the range lie cannot be told.
std::vector<Comparison> compare(const LossResult& got, const LossResult& want, const Workload& workload);

} // namespace lathe
