//===- runtime/io/Case.h - A problem in a file -----------------*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// A case is one problem with its tensors, and often its right results, in a safetensors file.
///
/// Tensors: `input` `[2B, T, H]` (BF16, F16 or F32), `weight` `[V, H]` and, where there is one, `bias` `[V]` of the
/// same dtype, and `target` `[2B, T]` (I64). Expected values are F32 or F64: `expected.loss`,
/// `expected.preference_loss`, `expected.nll_loss`, `expected.chosen_logits_mean` and `expected.rejected_logits_mean`
/// (scalars, all or none of them), `expected.chosen_logps`, `expected.rejected_logps` `[B]`, `expected.per_token_logps`
/// `[2B, T]`, and the gradients `expected.grad_input`, `expected.grad_weight` and `expected.grad_bias`.
///
/// Metadata (text; each has a default): `beta`, `gamma`, `alpha`, `label_smoothing`, `softcap` (0: none), `logit_scale`
/// (absent: none), `ignore_index`, `compute_nll`, `logit_means`, `grad_input`, `grad_weight`, `grad_bias` (`true` or
/// `false`), `precision`, `grad_weight_dtype` (as in a workload).
///
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Error.h"
#include "lathe/workload.h"
#include "runtime/io/LossResult.h"

#include "llvm/ADT/StringRef.h"

#include <optional>
#include <string>
#include <vector>

namespace lathe {

/// One problem. The tensors are row-major, dense, in `workload.dtype`.
struct Case {
  Workload workload;
  Shape shape;
  Scalars scalars;
  std::string input;
  std::string weight;
  /// Empty when the workload has no bias.
  std::string bias;
  std::vector<int64_t> target;
  /// The right results, where known. Rewards and diagnostics are not kept in files.
  std::optional<LossResult> expected;
};

/// Reads a case: ErrorCode::Io for a file that cannot be read, ErrorCode::Corrupt for one that is not a case (the
/// message names file, tensor or metadata, and value).
llvm::Expected<Case> loadCase(llvm::StringRef path);
/// Writes `value` so that `loadCase` gives it back. Pinned sizes of the workload are not kept.
llvm::Error saveCase(llvm::StringRef path, const Case& value);

/// A case of random numbers, the same for the same arguments: input and weight are normal such that a logit has
/// `logitStd` as its standard deviation; the bias has a quarter of it. Each sequence has a masked prefix (a prompt) and
/// a masked suffix (padding) that together take about `maskedFraction` of its tokens, and at least one valid token when
/// that is below 1. `workload`, `shape` and `scalars` must be valid.
Case makeRandomCase(const Workload& workload, const Shape& shape, const Scalars& scalars, uint64_t seed,
                    double logitStd, double maskedFraction);

/// Writes what was computed for `value`, in F64: the expected tensors' names without `expected.`, and `chosen_rewards`
/// and `rejected_rewards`. The case's options and the diagnostics are in the metadata; the inputs are not written.
llvm::Error saveResult(llvm::StringRef path, const Case& value, const LossResult& result);

} // namespace lathe
