//===- runtime/cache/Environment.h - What Lathe reads of its surroundings ---===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lathe {

/// Every environment variable that Lathe knows, read once where a program or library call begins. docs/cache.md lists
/// them for users.
struct Environment {
  /// LATHE_CACHE_DIR, else $XDG_CACHE_HOME/lathe, else ~/.cache/lathe. None: nothing is kept on disk.
  std::optional<std::string> cacheDir = std::nullopt;
  /// LATHE_CACHE_PATH: read-only caches, separated by colons, looked at after cacheDir.
  std::vector<std::string> cachePath;
  /// LATHE_CACHE_MAX_SIZE, for example 500M or 2G: what `lathe cache prune` keeps when it is told nothing else.
  std::optional<uint64_t> cacheMaxBytes = std::nullopt;
  /// LATHE_NVRTC and LATHE_LIBCUDA: libraries to open in place of those that would be found.
  std::optional<std::string> nvrtcPath = std::nullopt;
  std::optional<std::string> driverPath = std::nullopt;
  /// LATHE_NVDISASM: the disassembler to run.
  std::optional<std::string> nvdisasmPath = std::nullopt;
  /// Folders where NVRTC may be: of CUDA_HOME, CUDA_PATH, /usr/local/cuda, and the PyPI wheels in VIRTUAL_ENV.
  std::vector<std::string> cudaSearchFolders;
  /// LATHE_COMPILE_THREADS: compilations at once; none: all processors.
  std::optional<unsigned> compileThreads = std::nullopt;
  /// LATHE_LOG: trace, debug, info, warn, error or off.
  std::string logLevel = "warn";
  /// NO_COLOR is set.
  bool noColor = false;
  /// What was wrong with variables that were ignored.
  std::vector<std::string> warnings;

  using Lookup = llvm::function_ref<std::optional<std::string>(llvm::StringRef)>;
  /// Reads variables through `variable`; `home` is the home folder where HOME is not set, empty when there is none.
  static Environment fromVariables(Lookup variable, llvm::StringRef home);
  /// Reads those of this process.
  static Environment fromProcess();
};

/// Bytes from `1048576`, `500M` or `2G` (K, M, G and T are powers of 1024); none when it is anything else.
std::optional<uint64_t> parseSize(llvm::StringRef text);

} // namespace lathe
