//===- runtime/cache/Bundle.h - A cache in one file -------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// A bundle is a tar archive with a `manifest.json` first, which lists every other file with its length and SHA-256,
/// and then the files of a cache by their paths below the root.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/cache/CacheTools.h"

namespace lathe {

struct Exported {
  int64_t kernels = 0;
  /// Workloads and architectures with tuning results.
  int64_t results = 0;
  /// Damaged in the cache, and left out.
  int64_t refused = 0;
  /// Size of the bundle.
  uint64_t bytes = 0;
};

/// Writes the good kernels and the tuning results of the cache `root` to `file`, replacing it: those for `arch`, or all
/// when it is empty. The same cache gives the same bytes. An error when there is nothing to write.
llvm::Expected<Exported> exportBundle(llvm::StringRef root, llvm::StringRef file, llvm::StringRef arch);

/// Adds the content of the bundle `file` to the cache `root`, as mergeCache does. Everything is checked before anything
/// is added: the archive, the manifest against every file and every file against the manifest, the paths, and each
/// entry as a load would. ErrorCode::Corrupt says what is wrong, and then the cache is as it was.
llvm::Expected<Merged> importBundle(llvm::StringRef root, llvm::StringRef file);

} // namespace lathe
