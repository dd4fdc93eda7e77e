//===- cli/Text.h - Numbers for people -------------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Error.h"
#include "runtime/inspect/Quantities.h"

#include "llvm/Support/JSON.h"

#include <cstdint>
#include <string>

namespace lathe::cli {

using lathe::bytesText;
using lathe::flopsText;
using lathe::timeText;

/// `3.14159`, `1.25e-06`, `nan`: six significant digits.
std::string numberText(double value);
/// An error as tables show it: `1.2e-06`, `0`, `nan`.
std::string errorText(double value);

/// A number that is not finite has no JSON: null.
llvm::json::Value jsonNumber(double value);
llvm::json::Array jsonNumbers(const std::vector<double>& values);

/// Bytes from `500M` or `2G`; `option` is for the message.
llvm::Expected<int64_t> parseBytes(llvm::StringRef option, llvm::StringRef text);
/// Seconds from `90s`, `30m`, `12h`, `7d` or `2w`.
llvm::Expected<int64_t> parseAge(llvm::StringRef option, llvm::StringRef text);

} // namespace lathe::cli
