//===- runtime/cache/CacheTools.cpp - Looking after a cache -----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/cache/CacheTools.h"

#include "runtime/cache/TuningFile.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

#include <chrono>
#include <tuple>

using namespace lathe;

namespace {

constexpr const char* kExtensions[] = {".json", ".cubin", ".cu"};
constexpr const char* kWorkload = "workload.json";

/// How old, in seconds, leftovers must be before they are removed.
struct LeftoverAges {
  /// Files that a writer may still be about to rename or complete.
  int64_t unfinished = 3600;
  int64_t setAside = 24 * 3600;
};
/// Less than any age, even that of files from a clock that is ahead.
constexpr int64_t kNoAge = INT64_MIN;

std::string joined(llvm::StringRef folder, const llvm::Twine& name) {
  llvm::SmallString<256> path(folder);
  llvm::sys::path::append(path, name);
  return std::string(path);
}

int64_t secondsNow() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Calls `visit(path)` for everything in `folder`, in a fixed order; nothing when it cannot be read.
template <class Visit> void forEachIn(llvm::StringRef folder, Visit visit) {
  std::vector<std::string> paths;
  std::error_code code;
  for (llvm::sys::fs::directory_iterator it(folder, code, /*follow_symlinks=*/false), end; !code && it != end;
       it.increment(code))
    paths.push_back(it->path());
  llvm::sort(paths);
  for (const std::string& path : paths) visit(llvm::StringRef(path));
}

bool isDigestName(llvm::StringRef name) {
  return name.size() == 64 && llvm::all_of(name, [](char c) { return llvm::isDigit(c) || (c >= 'a' && c <= 'f'); });
}
bool isArchName(llvm::StringRef name) {
  return name.consume_front("sm_") && !name.empty() && llvm::all_of(name, llvm::isAlnum);
}

/// Whether `path` is a folder itself: what a link leads to is not below the root.
bool isFolder(llvm::StringRef path) {
  llvm::sys::fs::file_status status;
  return !llvm::sys::fs::status(path, status, /*follow=*/false) && llvm::sys::fs::is_directory(status);
}

/// Calls `visit` for every folder of a workload.
template <class Visit> void forEachWorkload(llvm::StringRef root, Visit visit) {
  const std::string layout = joined(root, "v1");
  if (!isFolder(layout)) return;
  forEachIn(layout, [&](llvm::StringRef path) {
    if (isDigestName(llvm::sys::path::filename(path)) && isFolder(path)) visit(path);
  });
}
/// Calls `visit` for every folder of an architecture in that of a workload.
template <class Visit> void forEachArch(llvm::StringRef workloadPath, Visit visit) {
  forEachIn(workloadPath, [&](llvm::StringRef path) {
    if (isArchName(llvm::sys::path::filename(path)) && isFolder(path)) visit(path);
  });
}

/// Size and time of an entry; none when its record vanished meanwhile.
std::optional<CacheEntry> describe(const Digest& workload, llvm::StringRef arch, llvm::StringRef folder,
                                   llvm::StringRef hex) {
  CacheEntry entry{workload, arch.str(), hex.str(), 0, 0};
  bool hasRecord = false;
  for (const char* extension : kExtensions) {
    llvm::sys::fs::file_status status;
    if (llvm::sys::fs::status(joined(folder, hex + extension), status)) continue;
    entry.bytes += status.getSize();
    if (llvm::StringRef(extension) != ".json") continue;
    entry.lastUsed = llvm::sys::toTimeT(status.getLastModificationTime());
    hasRecord = true;
  }
  return hasRecord ? std::optional(entry) : std::nullopt;
}

/// Whether the entry is gone. Its record goes first: without it the other files no longer count.
bool removeEntry(llvm::StringRef folder, llvm::StringRef hex) {
  if (llvm::sys::fs::remove(joined(folder, hex + ".json"))) return false;
  llvm::sys::fs::remove(joined(folder, hex + ".cubin"));
  llvm::sys::fs::remove(joined(folder, hex + ".cu"));
  return true;
}

/// Whether `name` is one that the cache gives to files for good: `<kernel digest>.cubin`, `plan.json`.
bool isOwnName(llvm::StringRef name) {
  if (name == kTuningFile || name == kTuningJournal || name == kWorkload) return true;
  const auto [stem, extension] = name.split('.');
  return isDigestName(stem) && (extension == "json" || extension == "cubin" || extension == "cu");
}
/// Whether `name` is an own name with `mark` (`.tmp-`, `.bad-`) and more behind it.
bool isMarked(llvm::StringRef name, llvm::StringRef mark) {
  return name.contains(mark) && isOwnName(name.split(mark).first);
}
/// Whether `path` is part of a kernel whose record was never written, or is already removed.
bool lacksRecord(llvm::StringRef path) {
  const llvm::StringRef stem = llvm::sys::path::stem(path);
  return isDigestName(stem) && isOwnName(llvm::sys::path::filename(path)) &&
         !llvm::sys::fs::exists(joined(llvm::sys::path::parent_path(path), stem + ".json"));
}

/// Removes what interrupted writers and repairs left behind.
void removeLeftovers(llvm::StringRef folder, LeftoverAges ages) {
  const int64_t now = secondsNow();
  forEachIn(folder, [&](llvm::StringRef path) {
    const llvm::StringRef name = llvm::sys::path::filename(path);
    const bool isSetAside = isMarked(name, ".bad-");
    if (!isSetAside && !isMarked(name, ".tmp-") && !lacksRecord(path)) return;
    llvm::sys::fs::file_status status;
    if (llvm::sys::fs::status(path, status)) return;
    const int64_t age = now - llvm::sys::toTimeT(status.getLastModificationTime());
    if (age > (isSetAside ? ages.setAside : ages.unfinished)) llvm::sys::fs::remove(path);
  });
}

void removeAllLeftovers(llvm::StringRef root, LeftoverAges ages) {
  forEachWorkload(root, [&](llvm::StringRef workloadPath) {
    removeLeftovers(workloadPath, ages);
    forEachArch(workloadPath, [&](llvm::StringRef archPath) { removeLeftovers(archPath, ages); });
  });
}

/// Removes the folders that have become empty, and the documents of workloads without kernels.
void removeEmptyFolders(llvm::StringRef root) {
  forEachWorkload(root, [&](llvm::StringRef workloadPath) {
    bool hasArch = false;
    forEachArch(workloadPath, [&](llvm::StringRef archPath) {
      // Succeeds only on an empty folder.
      llvm::sys::fs::remove(archPath);
      hasArch |= llvm::sys::fs::exists(archPath);
    });
    if (hasArch) return;
    llvm::sys::fs::remove(joined(workloadPath, kWorkload));
    llvm::sys::fs::remove(workloadPath);
  });
}

/// Copies the description of a workload that `target` lacks.
llvm::Error mergeDescription(const Cache& target, const Cache& source, const Digest& workload) {
  if (target.loadDocument(workload, "", kWorkload)) return llvm::Error::success();
  const auto text = source.loadDocument(workload, "", kWorkload);
  return text ? target.storeDocument(workload, "", kWorkload, *text) : llvm::Error::success();
}

/// Joins the tuning results in the folder `from` into those in `into`; counts what is damaged.
llvm::Error mergeTuning(llvm::StringRef into, llvm::StringRef from, Merged& merged) {
  llvm::Expected<TuningDocument> results = TuningFile(from.str()).read();
  if (!results) {
    llvm::consumeError(results.takeError());
    ++merged.refused;
    return llvm::Error::success();
  }
  if (results->plans.empty() && results->measurements.empty()) return llvm::Error::success();
  return TuningFile(into.str()).fold(*results);
}

/// Merges descriptions and tuning results, also of workloads whose kernels were pruned.
llvm::Error mergeDocuments(const Cache& target, const Cache& source, Merged& merged) {
  llvm::Error errors = llvm::Error::success();
  const auto note = [&](llvm::Error error) { errors = llvm::joinErrors(std::move(errors), std::move(error)); };
  forEachWorkload(*source.root(), [&](llvm::StringRef workloadPath) {
    const Digest workload = llvm::cantFail(Digest::parse(llvm::sys::path::filename(workloadPath)));
    note(mergeDescription(target, source, workload));
    forEachArch(workloadPath, [&](llvm::StringRef archPath) {
      note(mergeTuning(entryFolder(*target.root(), workload, llvm::sys::path::filename(archPath)), archPath, merged));
    });
  });
  return errors;
}

/// Whether `error` means that another process removed the entry while it was about to be read.
bool hasVanished(const ErrorSummary& error, llvm::StringRef folder, llvm::StringRef hex) {
  return error.code == ErrorCode::Io && !llvm::sys::fs::exists(joined(folder, hex + ".json"));
}

/// Whether all three files of `entry` are there and right in the cache `root`.
bool isGood(llvm::StringRef root, const CacheEntry& entry) {
  llvm::Expected<CachedKernel> kernel = readEntry(entry.folder(root), entry.hex, /*withSource=*/true);
  if (kernel) return kernel->record.arch == entry.arch;
  llvm::consumeError(kernel.takeError());
  return false;
}

} // namespace

std::vector<CacheEntry> lathe::listCache(llvm::StringRef root) {
  std::vector<CacheEntry> entries;
  forEachWorkload(root, [&](llvm::StringRef workloadPath) {
    const Digest workload = llvm::cantFail(Digest::parse(llvm::sys::path::filename(workloadPath)));
    forEachArch(workloadPath, [&](llvm::StringRef folder) {
      forEachIn(folder, [&](llvm::StringRef path) {
        const llvm::StringRef stem = llvm::sys::path::stem(path);
        if (llvm::sys::path::extension(path) != ".json" || !isDigestName(stem)) return;
        if (const auto entry = describe(workload, llvm::sys::path::filename(folder), folder, stem))
          entries.push_back(*entry);
      });
    });
  });
  return entries;
}

std::vector<CachePlace> lathe::listPlaces(llvm::StringRef root) {
  std::vector<CachePlace> places;
  forEachWorkload(root, [&](llvm::StringRef workloadPath) {
    const Digest workload = llvm::cantFail(Digest::parse(llvm::sys::path::filename(workloadPath)));
    forEachArch(workloadPath, [&](llvm::StringRef archPath) {
      places.push_back({workload, llvm::sys::path::filename(archPath).str()});
    });
  });
  return places;
}

llvm::Expected<CacheEntry> lathe::findEntry(llvm::StringRef root, llvm::StringRef prefix) {
  prefix.consume_front("sha256:");
  std::vector<CacheEntry> found;
  for (const CacheEntry& entry : listCache(root))
    if (llvm::StringRef(entry.hex).starts_with(prefix)) found.push_back(entry);
  if (found.empty())
    return makeError(ErrorCode::InvalidArgument,
                     "no kernel in {0} has a digest that begins with \"{1}\"; lathe cache ls shows all", root, prefix);
  if (llvm::all_of(found, [&](const CacheEntry& entry) { return entry.hex == found.front().hex; }))
    return found.front();
  return makeError(ErrorCode::InvalidArgument,
                   "{0} kernels in {1} have digests that begin with \"{2}\"; give more digits", found.size(), root,
                   prefix);
}

std::vector<DamagedEntry> lathe::verifyCache(llvm::StringRef root, bool repair) {
  std::vector<DamagedEntry> damaged;
  for (const CacheEntry& entry : listCache(root)) {
    const std::string folder = entry.folder(root);
    llvm::Expected<CachedKernel> kernel = readEntry(folder, entry.hex, /*withSource=*/true);
    if (kernel && kernel->record.arch == entry.arch) continue;
    ErrorSummary summary{ErrorCode::Corrupt, "the record is for another architecture"};
    if (!kernel) summary = takeSummary(kernel.takeError());
    if (hasVanished(summary, folder, entry.hex)) continue;
    damaged.push_back({entry, summary.message});
    DamagedEntry& one = damaged.back();
    if (!repair) continue;
    // One that this process lacks the means to read may be a good one.
    one.isSetAside = summary.code != ErrorCode::Io && setAside(folder, entry.hex);
    if (!one.isSetAside)
      one.reason += summary.code == ErrorCode::Io ? "; it is not set aside" : "; it cannot be set aside";
  }
  return damaged;
}

Removed lathe::pruneCache(llvm::StringRef root, const PruneLimits& limits) {
  const int64_t now = secondsNow();
  std::vector<CacheEntry> entries = listCache(root);
  llvm::sort(entries, [](const CacheEntry& a, const CacheEntry& b) {
    return std::tie(a.lastUsed, a.hex, a.workload) < std::tie(b.lastUsed, b.hex, b.workload);
  });
  uint64_t total = 0;
  for (const CacheEntry& entry : entries) total += entry.bytes;

  Removed removed;
  for (const CacheEntry& entry : entries) {
    const bool tooOld = limits.maxAgeSeconds && now - entry.lastUsed > *limits.maxAgeSeconds;
    const bool tooMuch = limits.maxBytes && total > *limits.maxBytes;
    if (!tooOld && !tooMuch) continue;
    if (!removeEntry(entry.folder(root), entry.hex)) continue;
    total -= entry.bytes;
    removed.entries += 1;
    removed.bytes += entry.bytes;
  }
  removeAllLeftovers(root, LeftoverAges());
  removeEmptyFolders(root);
  return removed;
}

Removed lathe::clearCache(llvm::StringRef root) {
  const Removed removed = pruneCache(root, {.maxBytes = std::nullopt, .maxAgeSeconds = kNoAge});
  forEachWorkload(root, [&](llvm::StringRef workloadPath) {
    llvm::sys::fs::remove(joined(workloadPath, kWorkload));
    forEachArch(workloadPath, [&](llvm::StringRef archPath) {
      llvm::sys::fs::remove(joined(archPath, kTuningFile));
      llvm::sys::fs::remove(joined(archPath, kTuningJournal));
    });
  });
  removeAllLeftovers(root, {kNoAge, kNoAge});
  removeEmptyFolders(root);
  return removed;
}

llvm::Expected<Merged> lathe::mergeCache(llvm::StringRef into, llvm::StringRef from) {
  if (!llvm::sys::fs::is_directory(from))
    return makeError(ErrorCode::Io, "{0} is not a folder; give the root of a cache, the folder that holds v1", from);
  const Cache target(into.str(), {}, [](llvm::StringRef) {});
  const Cache source(from.str(), {}, [](llvm::StringRef) {});
  Merged merged;
  for (const CacheEntry& entry : listCache(from)) {
    const std::string folder = entry.folder(from);
    llvm::Expected<CachedKernel> kernel = readEntry(folder, entry.hex, /*withSource=*/true);
    if (!kernel) {
      const ErrorSummary summary = takeSummary(kernel.takeError());
      if (hasVanished(summary, folder, entry.hex)) continue;
      if (summary.code == ErrorCode::Io) return makeError(summary.code, "{0}", summary.message);
      ++merged.refused;
      continue;
    }
    if (kernel->record.arch != entry.arch) {
      ++merged.refused;
      continue;
    }
    const KernelKey key{entry.workload, entry.arch, kernel->record.kernelDigest};
    if (isGood(into, entry)) {
      ++merged.kept;
      continue;
    }
    if (llvm::Error error = target.store(key, *kernel)) return error;
    ++merged.added;
  }
  if (llvm::Error error = mergeDocuments(target, source, merged)) return error;
  return merged;
}
