//===- runtime/compile/Nvrtc.h - The run-time compiler ---------*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// NVRTC, opened at run time, as a plain table of function pointers, and the one thing asked of it: a cubin for a unit
/// of CUDA C++. The units include the embedded templates and nothing else, so no header of a CUDA toolkit is needed.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Error.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <nvrtc.h>

#include <optional>
#include <string>
#include <vector>

namespace lathe {

/// The version of an NVRTC library.
struct NvrtcVersion {
  int major = 0;
  int minor = 0;

  /// `13.0`
  std::string text() const { return std::to_string(major) + "." + std::to_string(minor); }
  friend bool operator==(const NvrtcVersion&, const NvrtcVersion&) = default;
};

/// The entry points of NVRTC that Lathe calls. Copyable; any pointer may be replaced.
struct Nvrtc {
  decltype(&::nvrtcVersion) getVersion = nullptr;
  decltype(&::nvrtcGetErrorString) getErrorString = nullptr;
  decltype(&::nvrtcGetNumSupportedArchs) getNumSupportedArchs = nullptr;
  decltype(&::nvrtcGetSupportedArchs) getSupportedArchs = nullptr;
  decltype(&::nvrtcCreateProgram) createProgram = nullptr;
  decltype(&::nvrtcCompileProgram) compileProgram = nullptr;
  decltype(&::nvrtcGetCUBINSize) getCubinSize = nullptr;
  decltype(&::nvrtcGetCUBIN) getCubin = nullptr;
  decltype(&::nvrtcGetProgramLogSize) getProgramLogSize = nullptr;
  decltype(&::nvrtcGetProgramLog) getProgramLog = nullptr;
  decltype(&::nvrtcDestroyProgram) destroyProgram = nullptr;
  /// The library that the table comes from, as it was asked for.
  std::string path;

  llvm::Expected<NvrtcVersion> version() const;
  /// The architectures that it compiles for, as numbers (75, 80, ...), in rising order.
  llvm::Expected<std::vector<int>> supportedArchitectures() const;
};

/// Calls `visit(name, pointer)` for every entry of `nvrtc`, `name` being that of the C function.
template <typename Visit> void forEachEntry(Nvrtc& nvrtc, Visit visit) {
  visit("nvrtcVersion", nvrtc.getVersion);
  visit("nvrtcGetErrorString", nvrtc.getErrorString);
  visit("nvrtcGetNumSupportedArchs", nvrtc.getNumSupportedArchs);
  visit("nvrtcGetSupportedArchs", nvrtc.getSupportedArchs);
  visit("nvrtcCreateProgram", nvrtc.createProgram);
  visit("nvrtcCompileProgram", nvrtc.compileProgram);
  visit("nvrtcGetCUBINSize", nvrtc.getCubinSize);
  visit("nvrtcGetCUBIN", nvrtc.getCubin);
  visit("nvrtcGetProgramLogSize", nvrtc.getProgramLogSize);
  visit("nvrtcGetProgramLog", nvrtc.getProgramLog);
  visit("nvrtcDestroyProgram", nvrtc.destroyProgram);
}

/// Opens NVRTC. With `path`, that library and no other. Else the first found of libnvrtc.so.13, .12 and libnvrtc.so: in
/// each of `searchFolders` in order, then wherever the system's loader looks. The error, ErrorCode::MissingLibrary,
/// lists what was tried and says how to install it.
llvm::Expected<Nvrtc> openNvrtc(llvm::StringRef path, llvm::ArrayRef<std::string> searchFolders);

/// The version of the library that `openNvrtc` would open, as far as the names of files tell: beside libnvrtc.so.13
/// lies libnvrtc-builtins.so.13.0. Takes microseconds, where opening NVRTC takes milliseconds, or tens of them when it
/// has to be read from a disk. None when the names do not tell.
std::optional<NvrtcVersion> nvrtcVersionByName(llvm::StringRef path, llvm::ArrayRef<std::string> searchFolders);

/// One unit to compile.
struct CompileRequest {
  /// Names the unit in messages and logs.
  std::string name;
  /// The `extern "C" __global__` function in it.
  std::string entry;
  /// CUDA C++; may include the embedded templates by their names.
  std::string source;
  /// `sm_80`, `sm_90a`, ...
  std::string arch;
  /// Options besides `defaultOptions(arch)`, for example `-lineinfo`.
  std::vector<std::string> options;
};

/// What NVRTC made of a unit.
struct CompileOutput {
  std::string cubin;
  /// Warnings; empty when there is nothing to say.
  std::string log;
};

/// The options of every compilation for `arch`: language level, accurate arithmetic, no precompiled headers.
std::vector<std::string> defaultOptions(llvm::StringRef arch);

/// Compiles `request`. Safe to call from several threads at once. A rejected source is ErrorCode::Compile with NVRTC's
/// log and the lines around each error; an architecture that this NVRTC does not know is ErrorCode::Unsupported.
llvm::Expected<CompileOutput> compile(const Nvrtc& nvrtc, const CompileRequest& request);

} // namespace lathe
