//===- cli/Models.h - Shapes of well-known models --------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Error.h"

#include "llvm/ADT/ArrayRef.h"

#include <optional>
#include <string>

namespace lathe::cli {

/// The output layer of a published language model; all are bf16 and have no bias.
struct Model {
  llvm::StringLiteral name;
  int64_t hidden;
  int64_t vocab;
  /// c of the soft cap on the final logits.
  std::optional<double> softcap;
};

llvm::ArrayRef<Model> models();
/// The error lists the known names.
llvm::Expected<Model> findModel(llvm::StringRef name);

} // namespace lathe::cli
