//===- generator/Workload.h - Parsing and printing workloads ---*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// The text form of a `Workload`. Its canonical JSON (RFC 8785) has every field, sorted, and nothing else:
///
/// \code{.json}
/// {"bias":false,"dtype":"bf16","grad_bias":false,"grad_input":true,"grad_weight":true,"grad_weight_dtype":"bf16",
///  "hidden":4096,"logit_means":true,"logit_scale":false,"nll":true,"op":"fused_linear_simpo_loss",
///  "precision":"ieee","softcap":false,"vocab":128256}
/// \endcode
///
/// with `"sequences"` and `"tokens"` only where they are pinned. A parser accepts any field order, and defaults for all
/// fields but `hidden`, `vocab` and `dtype`.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Digest.h"
#include "generator/Error.h"
#include "lathe/workload.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/JSON.h"

namespace lathe {

llvm::StringRef toString(DType type);
llvm::StringRef toString(Precision precision);
llvm::Expected<DType> parseDType(llvm::StringRef text);
llvm::Expected<Precision> parsePrecision(llvm::StringRef text);

/// Checks every field of `workload`; the error names the field, its value and the values it may have.
llvm::Error validate(const Workload& workload);
/// Checks `shape` for `workload` (even number of sequences, pinned sizes, fewer than 2^31 tokens in all).
llvm::Error validate(const Workload& workload, const Shape& shape);
/// Checks the scalars that `workload` uses: all finite, soft cap positive, label smoothing in [0, 0.5].
llvm::Error validate(const Workload& workload, const Scalars& scalars);

llvm::Expected<Workload> parseWorkload(llvm::StringRef json);
llvm::Expected<Workload> workloadFromJson(const llvm::json::Value& json);
llvm::json::Value toJson(const Workload& workload);

/// The canonical JSON of `workload`, UTF-8, without a final newline.
std::string canonicalJson(const Workload& workload);
/// SHA-256 of the canonical JSON.
Digest workloadDigest(const Workload& workload);

} // namespace lathe
