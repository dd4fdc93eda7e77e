//===- runtime/reference/Reference.h - The loss on the host ----*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// The fused linear + SimPO loss as its formulas say it, on the CPU: what every kernel is measured against.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Error.h"
#include "lathe/workload.h"
#include "runtime/io/LossResult.h"

namespace lathe {

/// One run. Nothing is owned; the tensors are row-major and dense, in `workload.dtype`, at any alignment.
struct Problem {
  const Workload& workload;
  const Shape& shape;
  const Scalars& scalars;
  /// `[2B, T, H]`.
  const void* input = nullptr;
  /// `[V, H]`.
  const void* weight = nullptr;
  /// `[V]`; unused when the workload has no bias.
  const void* bias = nullptr;
  /// `[2B, T]`.
  const int64_t* target = nullptr;
  /// Every gradient is multiplied by this.
  double upstreamScale = 1;
  /// Bytes for the logits of one block of rows; at least one row is always taken. A smaller block saves memory alone:
  /// the result is the same but for the order of sums.
  int64_t blockBytes = int64_t(64) << 20;
};

/// Computes the loss, and the gradients that the workload asks for, in `Real` (double or float). Besides the result it
/// needs a copy of the weight in `Real` and a block of logits. A bad target counts as a valid token whose
/// log-probability is NaN, so that `loss` and all that depends on the token are NaN; the diagnostics name it. The error
/// is that of an invalid workload, shape, scalar or null pointer.
template <class Real> llvm::Expected<LossResult> computeReference(const Problem& problem);

extern template llvm::Expected<LossResult> computeReference<double>(const Problem&);
extern template llvm::Expected<LossResult> computeReference<float>(const Problem&);

} // namespace lathe
