//===- tuning/LinePipe.h - Lines over pipes ---------------------*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Error.h"

#include <optional>
#include <string>

namespace lathe {

/// Why no line came.
enum class LineEnd : uint8_t { TimedOut, Closed };

/// Reads and writes lines over two descriptors, which it does not own.
class LinePipe {
public:
  LinePipe(int in, int out) : in_(in), out_(out) {}

  /// The next line without its end; none when `seconds` (none: no limit) pass or the other side closes first: `end`
  /// says which. The error is that of a read that fails, or of a line longer than kLongestLine.
  llvm::Expected<std::optional<std::string>> read(std::optional<double> seconds, LineEnd& end);
  /// An error when the other side has closed. The signal for that must be ignored.
  llvm::Error write(llvm::StringRef line) const;

private:
  int in_;
  int out_;
  /// What was read past the last line.
  std::string rest_;
};

} // namespace lathe
