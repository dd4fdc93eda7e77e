//===- runtime/cache/Bundle.cpp - A cache in one file -----------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/cache/Bundle.h"

#include "generator/CanonicalJson.h"
#include "generator/Workload.h"
#include "runtime/cache/Tar.h"
#include "runtime/cache/TuningFile.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

#include <map>
#include <set>

using namespace lathe;

namespace {

constexpr llvm::StringLiteral kManifest = "manifest.json";
constexpr llvm::StringLiteral kFormat = "lathe.bundle/1";
constexpr llvm::StringLiteral kWorkload = "workload.json";

/// The files of a bundle by their paths; the order makes its bytes depend on the content alone.
using Files = std::map<std::string, std::string>;

/// `v1/<digest>/<arch>/`
std::string pathOf(const Digest& workload, llvm::StringRef arch, const llvm::Twine& name) {
  return ("v1/" + workload.hex() + "/" + (arch.empty() ? "" : arch + "/") + name).str();
}

llvm::json::Value manifestOf(const Files& files) {
  llvm::json::Array list;
  for (const auto& [path, contents] : files)
    list.push_back(llvm::json::Object{
        {"path", path}, {"bytes", static_cast<int64_t>(contents.size())}, {"sha256", Digest::of(contents).hex()}});
  return llvm::json::Object{{"format", kFormat}, {"lathe_version", LATHE_VERSION}, {"files", std::move(list)}};
}

/// Adds `workload.json` where the cache has it.
void addDescription(const Cache& cache, const Digest& workload, Files& files) {
  if (std::optional<std::string> text = cache.loadDocument(workload, "", kWorkload))
    files[pathOf(workload, "", kWorkload)] = std::move(*text);
}

void addKernels(llvm::StringRef root, const Cache& cache, llvm::StringRef arch, Files& files, Exported& exported) {
  for (const CacheEntry& entry : listCache(root)) {
    if (!arch.empty() && entry.arch != arch) continue;
    llvm::Expected<CachedKernel> kernel = readEntry(entry.folder(root), entry.hex, /*withSource=*/true);
    if (!kernel || kernel->record.arch != entry.arch) {
      if (!kernel) llvm::consumeError(kernel.takeError());
      ++exported.refused;
      continue;
    }
    files[pathOf(entry.workload, entry.arch, entry.hex + ".cubin")] = std::move(kernel->cubin);
    files[pathOf(entry.workload, entry.arch, entry.hex + ".cu")] = std::move(kernel->source);
    files[pathOf(entry.workload, entry.arch, entry.hex + ".json")] =
        llvm::formatv("{0:2}\n", kernel->record.toJson()).str();
    addDescription(cache, entry.workload, files);
    ++exported.kernels;
  }
}

void addResults(llvm::StringRef root, const Cache& cache, llvm::StringRef arch, Files& files, Exported& exported) {
  for (const CachePlace& place : listPlaces(root)) {
    if (!arch.empty() && place.arch != arch) continue;
    llvm::Expected<TuningDocument> results = TuningFile(entryFolder(root, place.workload, place.arch)).read();
    if (!results) {
      llvm::consumeError(results.takeError());
      ++exported.refused;
      continue;
    }
    if (results->plans.empty() && results->measurements.empty()) continue;
    files[pathOf(place.workload, place.arch, kTuningFile)] = results->text();
    addDescription(cache, place.workload, files);
    ++exported.results;
  }
}

llvm::Error bad(llvm::StringRef file, const llvm::Twine& what) {
  return makeError(ErrorCode::Corrupt, "the bundle {0} is refused: {1}; nothing was imported", file, what.str());
}

/// Whether `path` is one that an export writes. Nothing else reaches the file system, so no path can lead out of the
/// folder that is imported to.
bool isBundlePath(llvm::StringRef path) {
  llvm::SmallVector<llvm::StringRef> parts;
  path.split(parts, '/');
  const auto isHex = [](llvm::StringRef text) {
    return text.size() == 64 && llvm::all_of(text, [](char c) { return llvm::isDigit(c) || (c >= 'a' && c <= 'f'); });
  };
  if (parts.size() < 3 || parts[0] != "v1" || !isHex(parts[1])) return false;
  if (parts.size() == 3) return parts[2] == kWorkload;
  llvm::StringRef arch = parts[2];
  if (parts.size() != 4 || !arch.consume_front("sm_") || arch.empty() || arch.size() > 8 ||
      !llvm::all_of(arch, llvm::isAlnum))
    return false;
  if (parts[3] == kTuningFile) return true;
  const auto [stem, extension] = parts[3].split('.');
  return isHex(stem) && (extension == "json" || extension == "cubin" || extension == "cu");
}

/// Holds the files against the manifest, which is the first of them.
llvm::Error checkManifest(llvm::StringRef file, llvm::ArrayRef<TarFile> files) {
  if (files.empty() || files.front().path != kManifest) return bad(file, "it does not begin with a manifest.json");
  llvm::Expected<llvm::json::Value> json = parseJson(files.front().contents);
  if (!json) return bad(file, "its manifest is no JSON: " + takeSummary(json.takeError()).message);
  const llvm::json::Object* manifest = json->getAsObject();
  const llvm::json::Array* list = manifest ? manifest->getArray("files") : nullptr;
  if (!list || manifest->getString("format") != kFormat)
    return bad(file, "its manifest is not of the format " + kFormat);
  std::map<std::string, const llvm::json::Object*> listed;
  for (const llvm::json::Value& entry : *list) {
    const llvm::json::Object* object = entry.getAsObject();
    const auto path = object ? object->getString("path") : std::nullopt;
    if (!path || !listed.emplace(path->str(), object).second)
      return bad(file, "its manifest has an entry without a path, or twice");
  }
  for (const TarFile& one : files.drop_front()) {
    const auto found = listed.find(one.path);
    if (found == listed.end()) return bad(file, one.path + " is not in its manifest, or is there twice");
    const llvm::json::Object& entry = *found->second;
    if (entry.getInteger("bytes") != static_cast<int64_t>(one.contents.size()) ||
        entry.getString("sha256") != Digest::of(one.contents).hex())
      return bad(file, one.path + " is not as its manifest says: the length or the SHA-256 differs");
    if (!isBundlePath(one.path)) return bad(file, "the path " + one.path + " is none of a cache");
    listed.erase(found);
  }
  if (!listed.empty()) return bad(file, listed.begin()->first + " is in its manifest, but not in the bundle");
  return llvm::Error::success();
}

/// A folder of its own beside the cache, removed at the end.
class StagingFolder {
public:
  static llvm::Expected<StagingFolder> create() {
    llvm::SmallString<128> path;
    if (const std::error_code code = llvm::sys::fs::createUniqueDirectory("lathe-import", path))
      return makeError(ErrorCode::Io, "cannot create a temporary folder: {0}", code.message());
    return StagingFolder(std::string(path));
  }
  StagingFolder(StagingFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  StagingFolder& operator=(StagingFolder&&) = delete;
  ~StagingFolder() {
    if (!path_.empty()) llvm::sys::fs::remove_directories(path_);
  }
  const std::string& path() const { return path_; }

private:
  explicit StagingFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

/// Checks what no kernel's record vouches for: documents, and parts of kernels that lack the others.
llvm::Error checkContent(llvm::StringRef file, llvm::ArrayRef<TarFile> files) {
  std::set<std::string> paths;
  for (const TarFile& one : files) paths.insert(one.path);
  for (const TarFile& one : files.drop_front()) {
    const llvm::StringRef name = llvm::sys::path::filename(one.path);
    if (name == kTuningFile) {
      llvm::Expected<TuningDocument> results = TuningDocument::parse(one.contents);
      if (!results) return bad(file, one.path + ": " + takeSummary(results.takeError()).message);
    } else if (name == kWorkload) {
      llvm::Expected<Workload> workload = parseWorkload(one.contents);
      if (!workload) return bad(file, one.path + ": " + takeSummary(workload.takeError()).message);
      if (one.path != pathOf(workloadDigest(*workload), "", kWorkload))
        return bad(file, one.path + " describes another workload");
    } else {
      const std::string stem = one.path.substr(0, one.path.rfind('.'));
      for (const char* extension : {".json", ".cubin", ".cu"})
        if (!paths.contains(stem + extension)) return bad(file, one.path + " lacks its " + extension);
    }
  }
  return llvm::Error::success();
}

} // namespace

llvm::Expected<Exported> lathe::exportBundle(llvm::StringRef root, llvm::StringRef file, llvm::StringRef arch) {
  const Cache cache(root.str(), {}, [](llvm::StringRef) {});
  Exported exported;
  Files files;
  addKernels(root, cache, arch, files, exported);
  addResults(root, cache, arch, files, exported);
  if (exported.kernels == 0 && exported.results == 0)
    return makeError(ErrorCode::InvalidArgument, "there is nothing to export in {0}{1}{2}", root,
                     arch.empty() ? "" : " for ", arch);
  const std::string manifest = llvm::formatv("{0:2}\n", manifestOf(files)).str();
  std::vector<TarFile> list{{kManifest.str(), manifest}};
  for (const auto& [path, contents] : files) list.push_back({path, contents});
  llvm::Expected<std::string> archive = writeTar(list);
  if (!archive) return archive.takeError();
  exported.bytes = archive->size();
  if (llvm::Error error = writeAtomically(file, *archive)) return error;
  return exported;
}

llvm::Expected<Merged> lathe::importBundle(llvm::StringRef root, llvm::StringRef file) {
  llvm::sys::fs::file_status status;
  if (const std::error_code code = llvm::sys::fs::status(file, status))
    return makeError(ErrorCode::Io, "cannot read the bundle {0}: {1}", file, code.message());
  if (!llvm::sys::fs::is_regular_file(status)) return bad(file, "it is not a regular file");
  // Never mapped: another program may truncate it meanwhile.
  auto buffer = llvm::MemoryBuffer::getFile(file, /*IsText=*/false, /*RequiresNullTerminator=*/true,
                                            /*IsVolatile=*/true);
  if (!buffer) return makeError(ErrorCode::Io, "cannot read the bundle {0}: {1}", file, buffer.getError().message());
  llvm::Expected<std::vector<TarFile>> files = readTar((*buffer)->getBuffer());
  if (!files) return bad(file, takeSummary(files.takeError()).message);
  if (llvm::Error error = checkManifest(file, *files)) return error;
  if (llvm::Error error = checkContent(file, *files)) return error;

  llvm::Expected<StagingFolder> staging = StagingFolder::create();
  if (!staging) return staging.takeError();
  for (const TarFile& one : llvm::ArrayRef(*files).drop_front())
    if (llvm::Error error = writeAtomically(staging->path() + "/" + one.path, one.contents)) return error;
  if (const std::vector<DamagedEntry> damaged = verifyCache(staging->path(), /*repair=*/false); !damaged.empty())
    return bad(file, damaged.front().entry.hex + ": " + damaged.front().reason);
  return mergeCache(root, staging->path());
}
