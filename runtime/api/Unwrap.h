//===- runtime/api/Unwrap.h - From llvm::Error to exceptions ----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Error.h"

namespace lathe {

/// The edge between the library, which returns errors, and its API, which throws them.
[[noreturn]] inline void raise(llvm::Error error) {
  const ErrorSummary summary = takeSummary(std::move(error));
  throw Exception(summary.code, summary.message);
}

inline void throwIfError(llvm::Error error) {
  if (error) raise(std::move(error));
}

template <class T> T unwrap(llvm::Expected<T> value) {
  if (!value) raise(value.takeError());
  return std::move(*value);
}

} // namespace lathe
