//===- runtime/cache/Cache.cpp - Compiled kernels on disk -------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/cache/Cache.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"

#include <chrono>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace lathe;

namespace {

std::string joined(llvm::StringRef folder, const llvm::Twine& name) {
  llvm::SmallString<256> path(folder);
  llvm::sys::path::append(path, name);
  return std::string(path);
}

llvm::Error ioError(const char* what, llvm::StringRef path, std::error_code code) {
  return makeError(ErrorCode::Io, "{0} {1}: {2}", what, path, code.message());
}
std::error_code lastError() {
  return {errno, std::generic_category()};
}

/// Records, sources and documents are far smaller.
constexpr uint64_t kMostTextBytes = uint64_t(16) << 20;

/// Whether a file could not be read for want of something that this process lacks, which says nothing about the file.
bool isShortage(std::error_code code) {
  return code == std::errc::too_many_files_open || code == std::errc::too_many_files_open_in_system ||
         code == std::errc::not_enough_memory;
}

/// Whether there is no such file, be it for a part of its path that is no folder.
bool isAbsence(std::error_code code) {
  return code == std::errc::no_such_file_or_directory || code == std::errc::not_a_directory;
}

/// ErrorCode::Io when the file is not there or the process lacks the means to read it, else ErrorCode::Corrupt.
llvm::Expected<std::string> readFile(llvm::StringRef path, uint64_t mostBytes) {
  const auto failure = [&](std::error_code code) {
    const bool isDamage = !isAbsence(code) && !isShortage(code);
    return makeError(isDamage ? ErrorCode::Corrupt : ErrorCode::Io, "cannot read {0}: {1}", path, code.message());
  };
  llvm::sys::fs::file_status status;
  if (const std::error_code code = llvm::sys::fs::status(path, status)) return failure(code);
  // To open a pipe is to wait for its writer.
  if (!llvm::sys::fs::is_regular_file(status)) return makeError(ErrorCode::Corrupt, "{0} is not a regular file", path);
  if (status.getSize() > mostBytes)
    return makeError(ErrorCode::Corrupt, "{0} has {1} bytes in place of at most {2}", path, status.getSize(),
                     mostBytes);
  // A mapped file that another program truncates ends this process; a volatile one with a terminator is never mapped.
  auto buffer = llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/true,
                                            /*IsVolatile=*/true);
  if (!buffer) return failure(buffer.getError());
  return (*buffer)->getBuffer().str();
}

/// Reads a file that belongs to an entry with a record: that it is not there is damage too.
llvm::Expected<std::string> readPart(llvm::StringRef path, uint64_t mostBytes) {
  llvm::Expected<std::string> bytes = readFile(path, mostBytes);
  if (bytes || llvm::sys::fs::exists(path)) return bytes;
  return makeError(ErrorCode::Corrupt, "{0}", llvm::toString(bytes.takeError()));
}

llvm::Error writeAll(int file, llvm::StringRef path, llvm::StringRef bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ioError("cannot write", path, lastError());
    bytes = bytes.drop_front(static_cast<size_t>(written));
  }
  // Data before name: after a crash the name never stands for less than the whole file.
  if (::fsync(file) != 0) return ioError("cannot sync", path, lastError());
  return llvm::Error::success();
}

/// Creates a file beside `path` that no other writer has; sets `name` to its path. Returns its descriptor.
llvm::Expected<int> createBeside(llvm::StringRef path, std::string& name) {
  std::error_code code;
  // Creation is exclusive, so that a name which is taken, by whatever process and machine, costs only another attempt.
  for (int attempt = 0; attempt < 64; ++attempt) {
    name = llvm::formatv("{0}.tmp-{1}-{2:x-8}", path, ::getpid(), llvm::sys::Process::GetRandomNumber()).str();
    int file = -1;
    code = llvm::sys::fs::openFileForWrite(name, file, llvm::sys::fs::CD_CreateNew);
    if (!code) return file;
    if (code != std::errc::file_exists) break;
  }
  return ioError("cannot create", name, code);
}

/// Makes the names in `folder` outlast a crash of the machine, as far as the file system can: what is lost nevertheless
/// is noticed and compiled again.
void syncFolder(llvm::StringRef folder) {
  const int file = ::open(folder.str().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return;
  ::fsync(file);
  ::close(file);
}

/// Entries that were used are the last to be pruned: the record's time says when, to the day.
void noteUse(llvm::StringRef recordPath) {
  struct stat status{};
  const std::string path = recordPath.str();
  if (::stat(path.c_str(), &status) != 0) return;
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  if (now - status.st_mtime > 24 * 3600) ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
}

/// Errors as of readEntry.
llvm::Expected<KernelRecord> readRecord(llvm::StringRef folder, llvm::StringRef hex) {
  const std::string path = joined(folder, hex + ".json");
  llvm::Expected<std::string> json = readFile(path, kMostTextBytes);
  if (!json) return json.takeError();
  llvm::Expected<KernelRecord> record = KernelRecord::parse(*json);
  if (!record) return record.takeError();
  if (record->kernelDigest.hex() != hex)
    return makeError(ErrorCode::Corrupt, "the record is of kernel {0}", record->kernelDigest.hex());
  const Digest digest = kernelDigest(record->sourceDigest, record->compileOptions, record->nvrtcVersion, record->arch);
  if (digest != record->kernelDigest)
    return makeError(ErrorCode::Corrupt, "the record's source, options, NVRTC and architecture are those of kernel {0}",
                     digest.hex());
  return record;
}

llvm::Expected<CachedKernel> readOnce(llvm::StringRef folder, llvm::StringRef hex, bool withSource) {
  llvm::Expected<KernelRecord> record = readRecord(folder, hex);
  if (!record) return record.takeError();
  CachedKernel kernel;
  kernel.record = std::move(*record);
  llvm::Expected<std::string> cubin = readPart(joined(folder, hex + ".cubin"), kernel.record.cubinBytes);
  if (!cubin) return cubin.takeError();
  if (cubin->size() != kernel.record.cubinBytes)
    return makeError(ErrorCode::Corrupt, "the cubin has {0} bytes in place of {1}", cubin->size(),
                     kernel.record.cubinBytes);
  if (Digest::of(*cubin) != kernel.record.cubinDigest)
    return makeError(ErrorCode::Corrupt, "the cubin's SHA-256 is not that of its record");
  kernel.cubin = std::move(*cubin);
  if (!withSource) return kernel;
  llvm::Expected<std::string> source = readPart(joined(folder, hex + ".cu"), kMostTextBytes);
  if (!source) return source.takeError();
  kernel.source = std::move(*source);
  return kernel;
}

/// Digits of the kernels in `folder` that were compiled from `source`, newest first.
std::vector<std::string> kernelsOfSource(llvm::StringRef folder, const Digest& source) {
  std::vector<std::pair<std::string, std::string>> found;
  std::error_code code;
  for (llvm::sys::fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
    const llvm::StringRef path = it->path();
    if (llvm::sys::path::extension(path) != ".json") continue;
    const llvm::StringRef hex = llvm::sys::path::stem(path);
    llvm::Expected<KernelRecord> record = readRecord(folder, hex);
    if (!record)
      llvm::consumeError(record.takeError());
    else if (record->sourceDigest == source)
      found.emplace_back(record->created, hex.str());
  }
  llvm::sort(found, std::greater<>());
  std::vector<std::string> digits;
  for (auto& [created, hex] : found) digits.push_back(std::move(hex));
  return digits;
}

} // namespace

std::string lathe::entryFolder(llvm::StringRef root, const Digest& workload, llvm::StringRef arch) {
  llvm::SmallString<256> path(root);
  llvm::sys::path::append(path, "v1", workload.hex(), arch);
  return std::string(path);
}

llvm::Error lathe::writeAtomically(llvm::StringRef path, llvm::StringRef bytes) {
  const llvm::StringRef parent = llvm::sys::path::parent_path(path);
  const llvm::StringRef folder = parent.empty() ? "." : parent;
  if (const std::error_code code = llvm::sys::fs::create_directories(folder, true, llvm::sys::fs::perms::all_all))
    return ioError("cannot create the folder", folder, code);
  std::string temporary;
  llvm::Expected<int> file = createBeside(path, temporary);
  if (!file) return file.takeError();
  llvm::Error error = writeAll(*file, temporary, bytes);
  if (::close(*file) != 0 && !error) error = ioError("cannot close", temporary, lastError());
  if (!error)
    if (const std::error_code code = llvm::sys::fs::rename(temporary, path)) error = ioError("cannot name", path, code);
  if (error)
    llvm::sys::fs::remove(temporary);
  else
    syncFolder(folder);
  return error;
}

llvm::Expected<CachedKernel> lathe::readEntry(llvm::StringRef folder, llvm::StringRef hex, bool withSource) {
  llvm::Expected<CachedKernel> kernel = readOnce(folder, hex, withSource);
  if (kernel) return kernel;
  ErrorSummary summary = takeSummary(kernel.takeError());
  if (summary.code != ErrorCode::Corrupt) return makeError(summary.code, "{0}", summary.message);
  // Another process may have replaced or removed the entry between the reads of its files: only damage that stays
  // counts.
  return readOnce(folder, hex, withSource);
}

bool lathe::setAside(llvm::StringRef folder, llvm::StringRef hex) {
  const auto stamp = std::chrono::system_clock::now().time_since_epoch().count();
  const std::string suffix = llvm::formatv(".bad-{0}-{1:x-}", stamp, llvm::sys::Process::GetRandomNumber()).str();
  const auto renamed = [&](const char* extension) {
    const std::string path = joined(folder, hex + extension);
    const std::error_code code = llvm::sys::fs::rename(path, path + suffix);
    // Another process may have done it already.
    return !code || code == std::errc::no_such_file_or_directory;
  };
  // The record goes first: without it the entry no longer counts.
  if (!renamed(".json")) return false;
  renamed(".cubin");
  renamed(".cu");
  return true;
}

std::optional<CachedKernel> Cache::loadFrom(llvm::StringRef root, bool writable, const KernelKey& key) const {
  const std::string folder = entryFolder(root, key.workload, key.arch);
  const std::string hex = key.kernel.hex();
  llvm::Expected<CachedKernel> kernel = readEntry(folder, hex);
  if (kernel && kernel->record.arch == key.arch) {
    if (writable) noteUse(joined(folder, hex + ".json"));
    return std::move(*kernel);
  }
  ErrorSummary summary{ErrorCode::Corrupt, "it is for another architecture"};
  if (!kernel) summary = takeSummary(kernel.takeError());
  if (summary.code != ErrorCode::Corrupt) {
    if (llvm::sys::fs::exists(joined(folder, hex + ".json"))) warn_("skipped a cache entry: " + summary.message);
    return std::nullopt;
  }
  const char* outcome = "skipped";
  if (writable) outcome = setAside(folder, hex) ? "set aside, to be rebuilt" : "skipped, as it cannot be set aside";
  warn_(llvm::formatv("damaged cache entry {0}/{1}: {2}; {3}", folder, hex, summary.message, outcome).str());
  return std::nullopt;
}

template <class Find> auto Cache::firstIn(Find find) const -> decltype(find(llvm::StringRef(), true)) {
  if (root_)
    if (auto found = find(llvm::StringRef(*root_), /*writable=*/true)) return found;
  for (const std::string& layer : layers_)
    if (auto found = find(llvm::StringRef(layer), /*writable=*/false)) return found;
  return std::nullopt;
}

std::optional<CachedKernel> Cache::load(const KernelKey& key) const {
  return firstIn([&](llvm::StringRef root, bool writable) { return loadFrom(root, writable, key); });
}

std::optional<CachedKernel> Cache::loadBySource(const Digest& workload, llvm::StringRef arch,
                                                const Digest& source) const {
  return firstIn([&](llvm::StringRef root, bool writable) -> std::optional<CachedKernel> {
    for (const std::string& hex : kernelsOfSource(entryFolder(root, workload, arch), source))
      if (auto kernel = loadFrom(root, writable, {workload, arch.str(), llvm::cantFail(Digest::parse(hex))}))
        return kernel;
    return std::nullopt;
  });
}

llvm::Error Cache::store(const KernelKey& key, const CachedKernel& kernel) const {
  if (!root_) return llvm::Error::success();
  const std::string base = joined(entryFolder(*root_, key.workload, key.arch), key.kernel.hex());
  if (llvm::Error error = writeAtomically(base + ".cu", kernel.source)) return error;
  if (llvm::Error error = writeAtomically(base + ".cubin", kernel.cubin)) return error;
  return writeAtomically(base + ".json", llvm::formatv("{0:2}\n", kernel.record.toJson()).str());
}

std::optional<std::string> Cache::loadDocument(const Digest& workload, llvm::StringRef arch,
                                               llvm::StringRef name) const {
  return firstIn([&](llvm::StringRef root, bool) -> std::optional<std::string> {
    llvm::Expected<std::string> text = readFile(joined(entryFolder(root, workload, arch), name), kMostTextBytes);
    if (text) return std::move(*text);
    llvm::consumeError(text.takeError());
    return std::nullopt;
  });
}

llvm::Error Cache::storeDocument(const Digest& workload, llvm::StringRef arch, llvm::StringRef name,
                                 llvm::StringRef text) const {
  if (!root_) return llvm::Error::success();
  return writeAtomically(joined(entryFolder(*root_, workload, arch), name), text);
}
