//===- cli/Text.cpp - Numbers for people -----------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/Text.h"

#include "runtime/cache/Environment.h"

#include "llvm/Support/Format.h"

#include <cmath>
#include <limits>

using namespace lathe;
using namespace lathe::cli;

namespace {

std::string printed(const char* format, double value) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format(format, value);
  return text;
}

} // namespace

std::string lathe::cli::numberText(double value) {
  return printed("%.6g", value);
}

std::string lathe::cli::errorText(double value) {
  return value == 0 ? "0" : printed("%.1e", value);
}

llvm::json::Value lathe::cli::jsonNumber(double value) {
  if (std::isfinite(value)) return value;
  return nullptr;
}

llvm::json::Array lathe::cli::jsonNumbers(const std::vector<double>& values) {
  llvm::json::Array array;
  for (const double value : values) array.push_back(jsonNumber(value));
  return array;
}

llvm::Expected<int64_t> lathe::cli::parseBytes(llvm::StringRef option, llvm::StringRef text) {
  const std::optional<uint64_t> bytes = parseSize(text);
  if (bytes && *bytes <= uint64_t(std::numeric_limits<int64_t>::max())) return static_cast<int64_t>(*bytes);
  return makeError(ErrorCode::InvalidArgument, "{0} is \"{1}\"; it must be a number of bytes such as 500M or 2G",
                   option, text);
}

llvm::Expected<int64_t> lathe::cli::parseAge(llvm::StringRef option, llvm::StringRef text) {
  constexpr struct {
    char suffix;
    int64_t seconds;
  } kUnits[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}, {'w', 7 * 86400}};
  for (const auto& unit : kUnits) {
    int64_t number = 0;
    if (!text.ends_with(llvm::StringRef(&unit.suffix, 1)) || text.drop_back().getAsInteger(10, number)) continue;
    if (number >= 0 && number <= std::numeric_limits<int64_t>::max() / unit.seconds) return number * unit.seconds;
  }
  return makeError(ErrorCode::InvalidArgument, "{0} is \"{1}\"; it must be a time such as 12h, 7d or 2w", option, text);
}
