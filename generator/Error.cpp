//===- generator/Error.cpp - The error type used inside Lathe -------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "generator/Error.h"

#include "llvm/Support/raw_ostream.h"

using namespace lathe;

char LatheError::ID = 0;

void LatheError::log(llvm::raw_ostream& os) const {
  os << message_;
}

std::error_code LatheError::convertToErrorCode() const {
  return llvm::inconvertibleErrorCode();
}

ErrorSummary lathe::takeSummary(llvm::Error error) {
  ErrorSummary summary{ErrorCode::Internal, ""};
  bool first = true;
  llvm::handleAllErrors(std::move(error), [&](const llvm::ErrorInfoBase& info) {
    if (const auto* own = info.isA<LatheError>() ? static_cast<const LatheError*>(&info) : nullptr; own && first)
      summary.code = own->code();
    if (!first) summary.message += "\n";
    summary.message += info.message();
    first = false;
  });
  return summary;
}
