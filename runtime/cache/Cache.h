//===- runtime/cache/Cache.h - Compiled kernels on disk ---------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// A folder of plain files, safe to share between processes, to copy, to merge with rsync, or to mount read-only:
///
///     <root>/v1/<workload digest>/workload.json
///     <root>/v1/<workload digest>/<arch>/plan.json
///     <root>/v1/<workload digest>/<arch>/<kernel digest>.{cubin,cu,json}
///
/// Files are written under a temporary name and renamed; the .json of a kernel comes last and makes the entry count.
/// Nothing is locked: writers of the same entry write the same thing, and each goes on with what it has in memory.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/cache/KernelRecord.h"

#include <functional>
#include <optional>

namespace lathe {

/// Where a kernel is kept.
struct KernelKey {
  Digest workload;
  /// `sm_90a`
  std::string arch;
  Digest kernel;
};

/// A kernel as it is kept.
struct CachedKernel {
  std::string cubin;
  /// The unit that it was compiled from, with its includes replaced by their text.
  std::string source;
  KernelRecord record;
};

/// Immutable; safe to use from several threads and processes.
class Cache {
public:
  using Warn = std::function<void(llvm::StringRef)>;

  /// `root` may be none: then only `readOnlyLayers` are looked at and nothing is stored. Nothing is created before it
  /// is needed. `warn` hears of entries that are damaged or skipped; it is called from the threads that load and must
  /// not be empty.
  Cache(std::optional<std::string> root, std::vector<std::string> readOnlyLayers, Warn warn)
      : root_(std::move(root)), layers_(std::move(readOnlyLayers)), warn_(std::move(warn)) {}

  /// Finds a kernel in the root, then in the layers in order. Its length and SHA-256 are checked; a damaged entry is
  /// set aside (in the root) or skipped (in a layer) with a warning, as if it were not there. One that this process
  /// lacks the means to read is skipped with a warning.
  std::optional<CachedKernel> load(const KernelKey& key) const;
  /// The newest kernel compiled for `arch` from the source with digest `source`: for machines that have no NVRTC,
  /// whose version would be part of the key. Damage is treated as in `load`.
  std::optional<CachedKernel> loadBySource(const Digest& workload, llvm::StringRef arch, const Digest& source) const;
  /// Keeps a kernel in the root. An error means only that it was not kept.
  llvm::Error store(const KernelKey& key, const CachedKernel& kernel) const;

  /// A small file beside the kernels (`plan.json`), and one beside the architectures (`workload.json`) when `arch` is
  /// empty.
  std::optional<std::string> loadDocument(const Digest& workload, llvm::StringRef arch, llvm::StringRef name) const;
  llvm::Error storeDocument(const Digest& workload, llvm::StringRef arch, llvm::StringRef name,
                            llvm::StringRef text) const;

  const std::optional<std::string>& root() const { return root_; }
  const std::vector<std::string>& layers() const { return layers_; }

private:
  std::optional<CachedKernel> loadFrom(llvm::StringRef root, bool writable, const KernelKey& key) const;
  /// What `find(root, writable)` first finds, in the root and then in the layers.
  template <class Find> auto firstIn(Find find) const -> decltype(find(llvm::StringRef(), true));

  std::optional<std::string> root_;
  std::vector<std::string> layers_;
  Warn warn_;
};

/// The folder of a workload's kernels for `arch` (of the workload itself when `arch` is empty) below `root`.
std::string entryFolder(llvm::StringRef root, const Digest& workload, llvm::StringRef arch);

/// Reads the kernel `<folder>/<hex>.json` and its cubin, and checks both. ErrorCode::Io when there is no such entry or
/// this process lacks file descriptors or memory to read it, ErrorCode::Corrupt when it is damaged or cannot be read
/// for another reason. `withSource` also reads the .cu.
llvm::Expected<CachedKernel> readEntry(llvm::StringRef folder, llvm::StringRef hex, bool withSource = false);

/// Renames the files of a damaged entry to `<name>.bad-<time>-<random>`, so that it is rebuilt and can still be looked
/// at. False when it may not be renamed; the entry then stays.
bool setAside(llvm::StringRef folder, llvm::StringRef hex);

/// Writes `bytes` to `path` so that readers see the old file or the whole new one.
llvm::Error writeAtomically(llvm::StringRef path, llvm::StringRef bytes);

} // namespace lathe
