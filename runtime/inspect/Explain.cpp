//===- runtime/inspect/Explain.cpp - Where a cubin comes from ---------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/inspect/Explain.h"

#include "generator/Config.h"
#include "runtime/cache/CacheTools.h"
#include "runtime/compile/Cubin.h"
#include "runtime/inspect/InspectionJson.h"
#include "runtime/inspect/Occupancy.h"
#include "runtime/inspect/TuningEvidence.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

using namespace lathe;

namespace {

llvm::Expected<std::string> readFile(const std::string& path) {
  llvm::sys::fs::file_status status;
  if (const std::error_code error = llvm::sys::fs::status(path, status))
    return makeError(ErrorCode::Io, "cannot read {0}: {1}", path, error.message());
  if (!llvm::sys::fs::is_regular_file(status))
    return makeError(ErrorCode::InvalidArgument, "{0} is no file; give a cubin, or the first digits of a digest", path);
  if (status.getSize() > kMostCubinBytes)
    return makeError(ErrorCode::Corrupt, "{0} has {1} bytes, more than any cubin ({2})", path, status.getSize(),
                     kMostCubinBytes);
  llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> buffer = llvm::MemoryBuffer::getFile(path);
  if (!buffer) return makeError(ErrorCode::Io, "cannot read {0}: {1}", path, buffer.getError().message());
  return (*buffer)->getBuffer().str();
}

/// A file that may be missing.
std::string readIfThere(const std::string& path) {
  llvm::Expected<std::string> text = readFile(path);
  if (text) return std::move(*text);
  llvm::consumeError(text.takeError());
  return "";
}

/// What the bytes say themselves.
llvm::Error readEntries(llvm::StringRef cubin, KernelExplanation& result) {
  llvm::Expected<std::vector<std::string>> names = readCubinEntries(cubin);
  if (!names) return names.takeError();
  for (const std::string& name : *names) {
    llvm::Expected<CubinInfo> info = readCubin(cubin, name);
    if (!info) return info.takeError();
    const Target target = targetOfCubin(info->sm, info->archSpecific);
    result.arch = target.arch();
    CubinEntry entry{name, {}};
    entry.resources.threads = info->maxThreads;
    entry.resources.registers = info->registers;
    entry.resources.staticSharedBytes = info->sharedBytes;
    entry.resources.stackBytes = info->localBytes;
    entry.resources.barriers = info->barriers;
    entry.resources.parameterBytes = info->parameterBytes;
    entry.resources.codeBytes = info->codeBytes;
    result.entries.push_back(std::move(entry));
  }
  return llvm::Error::success();
}

void addRecord(const KernelRecord& record, KernelExplanation& result) {
  result.known = true;
  result.kernelDigest = record.kernelDigest.text();
  result.sourceDigest = record.sourceDigest.text();
  result.step = record.kind;
  result.compileOptions = record.compileOptions;
  result.nvrtcVersion = record.nvrtcVersion;
  result.compileMilliseconds = record.compileMilliseconds;
  result.created = record.created;
  result.latheVersion = record.latheVersion;
  if (record.config) {
    result.configJson = llvm::formatv("{0}", *record.config).str();
    llvm::Expected<Config> config = parseConfig(*record.config);
    if (config)
      result.configText = toString(*config);
    else
      llvm::consumeError(config.takeError());
  }
  // Only the record knows what a launch adds to what the cubin declares.
  const Target target = [&] {
    llvm::Expected<Target> known = parseTarget(record.arch);
    if (known) return *known;
    llvm::consumeError(known.takeError());
    return Target{};
  }();
  for (CubinEntry& entry : result.entries) {
    if (entry.name != record.entry) continue;
    KernelResources& resources = entry.resources;
    resources.threads = static_cast<int>(std::min<int64_t>(record.threads, INT32_MAX));
    resources.dynamicSharedBytes = record.dynamicSharedBytes;
    if (target.sm > 0)
      resources.occupancy = occupancyOf(
          {resources.threads, resources.registers, resources.staticSharedBytes + resources.dynamicSharedBytes}, target);
  }
}

/// The workload above, and the tuning beside, the folder that a kernel lies in.
void addSurroundings(llvm::StringRef folder, KernelExplanation& result) {
  const llvm::StringRef workload = llvm::sys::path::parent_path(folder);
  result.workload = llvm::StringRef(readIfThere((workload + "/workload.json").str())).trim().str();
  llvm::Expected<Digest> digest = Digest::parse(llvm::sys::path::filename(workload));
  if (digest)
    result.workloadDigest = digest->text();
  else
    llvm::consumeError(digest.takeError());
  TuningEvidence evidence = readTuningEvidence(readIfThere((folder + "/plan.json").str()));
  for (TuningRecord& plan : evidence.plans)
    if (llvm::is_contained(plan.configs, std::pair(result.step, result.configText)))
      result.tuning.push_back(std::move(plan));
}

/// `kernel` lies in `folder` under the digits `hex`.
llvm::Expected<KernelExplanation> explainEntry(const std::string& root, const CacheEntry& entry) {
  const std::string folder = entry.folder(root);
  llvm::Expected<CachedKernel> kernel = readEntry(folder, entry.hex, /*withSource=*/true);
  if (!kernel) return kernel.takeError();
  KernelExplanation result;
  result.file = folder + "/" + entry.hex + ".cubin";
  result.cacheRoot = root;
  result.cubinBytes = static_cast<int64_t>(kernel->cubin.size());
  result.cubinDigest = kernel->record.cubinDigest.text();
  result.source = kernel->source;
  if (llvm::Error error = readEntries(kernel->cubin, result)) return error;
  addRecord(kernel->record, result);
  addSurroundings(folder, result);
  return result;
}

/// The record beside a cubin's file, if it is for these bytes.
std::optional<KernelRecord> recordBeside(llvm::StringRef path, const Digest& cubin) {
  llvm::SmallString<256> beside(path);
  llvm::sys::path::replace_extension(beside, ".json");
  llvm::Expected<KernelRecord> record = KernelRecord::parse(readIfThere(std::string(beside)));
  if (record && record->cubinDigest == cubin) return std::move(*record);
  if (!record) llvm::consumeError(record.takeError());
  return std::nullopt;
}

/// The kernel with these bytes in one of the caches.
std::optional<std::pair<std::string, CacheEntry>> findCubin(const Digest& cubin, llvm::ArrayRef<std::string> roots) {
  for (const std::string& root : roots)
    for (const CacheEntry& entry : listCache(root))
      if (recordBeside(entry.folder(root) + "/" + entry.hex + ".cubin", cubin)) return std::pair(root, entry);
  return std::nullopt;
}

llvm::Expected<KernelExplanation> explainFile(const std::string& path, llvm::ArrayRef<std::string> roots) {
  llvm::Expected<std::string> cubin = readFile(path);
  if (!cubin) return cubin.takeError();
  const Digest digest = Digest::of(*cubin);
  KernelExplanation result;
  result.file = path;
  result.cubinBytes = static_cast<int64_t>(cubin->size());
  result.cubinDigest = digest.text();
  if (llvm::Error error = readEntries(*cubin, result)) return error;
  if (const std::optional<KernelRecord> record = recordBeside(path, digest)) {
    addRecord(*record, result);
    llvm::SmallString<256> source(path);
    llvm::sys::path::replace_extension(source, ".cu");
    result.source = readIfThere(std::string(source));
    addSurroundings(llvm::sys::path::parent_path(path), result);
    return result;
  }
  if (const auto found = findCubin(digest, roots)) return explainEntry(found->first, found->second);
  return result;
}

bool isDigits(llvm::StringRef what) {
  what.consume_front("sha256:");
  return !what.empty() && llvm::all_of(what, llvm::isHexDigit);
}

llvm::Expected<KernelExplanation> explainDigest(llvm::StringRef what, llvm::ArrayRef<std::string> roots) {
  std::string reasons;
  for (const std::string& root : roots) {
    llvm::Expected<CacheEntry> entry = findEntry(root, what);
    if (entry) return explainEntry(root, *entry);
    reasons += (reasons.empty() ? "" : "; ") + takeSummary(entry.takeError()).message;
  }
  return makeError(ErrorCode::InvalidArgument, "there is neither a file nor a kernel {0}: {1}", what,
                   reasons.empty() ? "there is no cache to look in; give --cache-dir or set LATHE_CACHE_DIR" : reasons);
}

} // namespace

Target lathe::targetOfCubin(int sm, bool archSpecific) {
  Target target;
  target.sm = sm;
  target.archSpecific = archSpecific;
  llvm::Expected<Target> known = parseTarget(target.arch());
  if (known) return *known;
  llvm::consumeError(known.takeError());
  return target;
}

std::vector<std::string> lathe::cacheRoots(const Environment& environment) {
  std::vector<std::string> roots;
  if (environment.cacheDir) roots.push_back(*environment.cacheDir);
  llvm::append_range(roots, environment.cachePath);
  return roots;
}

llvm::Expected<KernelExplanation> lathe::explainKernel(llvm::StringRef what, llvm::ArrayRef<std::string> roots) {
  if (llvm::sys::fs::exists(what)) return explainFile(what.str(), roots);
  if (isDigits(what)) return explainDigest(what, roots);
  return makeError(ErrorCode::InvalidArgument,
                   "\"{0}\" is neither a file nor the digits of a digest; `lathe cache ls` lists digests", what);
}

llvm::json::Value lathe::toJson(const KernelExplanation& explanation) {
  llvm::json::Array entries, tuning;
  for (const CubinEntry& entry : explanation.entries)
    entries.push_back(
        llvm::json::Object{{"name", llvm::json::fixUTF8(entry.name)}, {"resources", toJson(entry.resources)}});
  for (const TuningRecord& record : explanation.tuning) tuning.push_back(toJson(record));
  llvm::json::Object object{
      {"file", explanation.file}, {"cubin_bytes", explanation.cubinBytes}, {"cubin_digest", explanation.cubinDigest},
      {"arch", explanation.arch}, {"entries", std::move(entries)},         {"known", explanation.known}};
  if (!explanation.known) return object;
  object["cache_root"] = explanation.cacheRoot;
  object["kernel_digest"] = explanation.kernelDigest;
  object["source_digest"] = explanation.sourceDigest;
  object["kernel"] = explanation.step;
  object["config"] = parsedJson(explanation.configJson);
  object["compile_options"] = llvm::json::Array(explanation.compileOptions);
  object["nvrtc_version"] = explanation.nvrtcVersion;
  object["compile_milliseconds"] = explanation.compileMilliseconds;
  object["created"] = explanation.created;
  object["lathe_version"] = explanation.latheVersion;
  object["workload"] = parsedJson(explanation.workload);
  object["workload_digest"] = explanation.workloadDigest;
  object["source"] = llvm::json::fixUTF8(explanation.source);
  object["tuning"] = std::move(tuning);
  return object;
}
