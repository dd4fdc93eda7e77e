//===- generator/Error.h - The error type used inside Lathe ----*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "lathe/error.h"

#include "llvm/Support/Error.h"
#include "llvm/Support/FormatVariadic.h"

#include <string>

namespace lathe {

/// The one error that Lathe's own code makes: a code for programs and a message for people. The message says what was
/// wrong, the value seen, and what to do.
class LatheError : public llvm::ErrorInfo<LatheError> {
public:
  static char ID;

  LatheError(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

  ErrorCode code() const { return code_; }
  std::string message() const override { return message_; }
  void log(llvm::raw_ostream& os) const override;
  std::error_code convertToErrorCode() const override;

private:
  ErrorCode code_;
  std::string message_;
};

/// An error with a message in `llvm::formatv` syntax.
template <typename... Args> llvm::Error makeError(ErrorCode code, const char* format, Args&&... args) {
  return llvm::make_error<LatheError>(code, llvm::formatv(format, std::forward<Args>(args)...).str());
}

/// The code of `error`, and its message with those of all joined errors; consumes it.
struct ErrorSummary {
  ErrorCode code;
  std::string message;
};
ErrorSummary takeSummary(llvm::Error error);

} // namespace lathe
