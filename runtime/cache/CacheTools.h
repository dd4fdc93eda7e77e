//===- runtime/cache/CacheTools.h - Looking after a cache -------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// What `lathe cache` does. All of these work on one root, touch nothing outside `<root>/v1`, leave files that are not
/// Lathe's alone, and put up with other processes that use or prune the cache meanwhile. Below the root, symbolic links
/// to folders are not followed.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/cache/Cache.h"

namespace lathe {

/// One kernel in a cache.
struct CacheEntry {
  Digest workload;
  std::string arch;
  /// Digits of the kernel digest.
  std::string hex;
  /// Of its three files together.
  uint64_t bytes = 0;
  /// When it was last used, to the day; seconds since 1970.
  int64_t lastUsed = 0;

  /// The folder it lies in, below `root`.
  std::string folder(llvm::StringRef root) const { return entryFolder(root, workload, arch); }
};

/// All kernels, by workload, architecture and digest. A missing folder is an empty cache.
std::vector<CacheEntry> listCache(llvm::StringRef root);

/// A folder that may hold tuning results.
struct CachePlace {
  Digest workload;
  std::string arch;
};
/// Every architecture's folder, by workload and architecture.
std::vector<CachePlace> listPlaces(llvm::StringRef root);

/// The one kernel whose digest begins with `prefix` (with or without `sha256:`); the error tells none from many. Where
/// several workloads have it, the first of them.
llvm::Expected<CacheEntry> findEntry(llvm::StringRef root, llvm::StringRef prefix);

/// A damaged entry and what is wrong with it.
struct DamagedEntry {
  CacheEntry entry;
  std::string reason;
  /// Whether it no longer counts; the reason says why not.
  bool isSetAside = false;
};
/// Checks every entry as a load would, and its source; with `repair` sets the damaged ones aside.
std::vector<DamagedEntry> verifyCache(llvm::StringRef root, bool repair);

/// What was removed; what may not be removed is not counted.
struct Removed {
  int64_t entries = 0;
  uint64_t bytes = 0;
};
struct PruneLimits {
  std::optional<uint64_t> maxBytes = std::nullopt;
  std::optional<int64_t> maxAgeSeconds = std::nullopt;
};
/// Removes entries that were not used for `maxAgeSeconds`, then the least recently used until `maxBytes` are kept, and
/// files of interrupted writers that are older than an hour and set-aside entries that are older than a day. Tuning
/// results (plan.json) stay.
Removed pruneCache(llvm::StringRef root, const PruneLimits& limits);
/// Removes every entry, document and leftover; other files stay.
Removed clearCache(llvm::StringRef root);

struct Merged {
  int64_t added = 0;
  /// Already there and good.
  int64_t kept = 0;
  /// Damaged in the source, and left there.
  int64_t refused = 0;
};
/// Copies the good entries of `from` that `into` lacks, and joins the tuning results of both. An error says what could
/// not be read or written.
llvm::Expected<Merged> mergeCache(llvm::StringRef into, llvm::StringRef from);

} // namespace lathe
