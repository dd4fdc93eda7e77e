//===- tests/support/Failures.h - Errors in tests --------------*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Error.h"

#include <catch2/catch.hpp>

namespace lathe::test {

/// The value, or the end of the test with the error's message.
template <typename T> T require(llvm::Expected<T> expected) {
  if (!expected) FAIL(takeSummary(expected.takeError()).message);
  return std::move(*expected);
}

/// Success, or the end of the test with the error's message.
inline void require(llvm::Error error) {
  if (error) FAIL(takeSummary(std::move(error)).message);
}

/// The error; the test ends when there is none.
template <typename T> ErrorSummary requireError(llvm::Expected<T> expected) {
  if (expected) FAIL("an error was expected");
  return takeSummary(expected.takeError());
}

inline ErrorSummary requireError(llvm::Error error) {
  if (!error) FAIL("an error was expected");
  return takeSummary(std::move(error));
}

} // namespace lathe::test
