//===- lathe/error.h - The exception of the C++ API ------------*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace lathe {

/// What kind of thing went wrong. The values are those of `lathe_status` in the C API.
enum class ErrorCode : int32_t {
  /// A fault in Lathe itself.
  Internal = 1,
  /// An argument of a call is wrong: a null or misaligned pointer, a shape, a device ordinal.
  InvalidArgument = 2,
  /// A workload, configuration or case description is wrong.
  InvalidWorkload = 3,
  /// The request is valid, but this GPU, driver or build cannot serve it.
  Unsupported = 4,
  /// A file or folder cannot be read or written.
  Io = 5,
  /// A file was read but is not what it should be: truncated, foreign, or altered.
  Corrupt = 6,
  /// libcuda or libnvrtc cannot be opened, or lacks a function.
  MissingLibrary = 7,
  /// NVRTC rejected a generated source, or the kernel breaks a resource limit.
  Compile = 8,
  /// A call of the CUDA driver failed.
  Driver = 9,
  /// The workspace handed over, or the limit on it, is too small.
  Workspace = 10,
};

/// The one exception type of Lathe's C++ API.
class __attribute__((visibility("default"))) Exception : public std::runtime_error {
public:
  Exception(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

private:
  ErrorCode code_;
};

} // namespace lathe
