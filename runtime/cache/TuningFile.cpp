//===- runtime/cache/TuningFile.cpp - Tuning results on disk ----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/cache/TuningFile.h"

#include "generator/CanonicalJson.h"
#include "runtime/cache/Cache.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"

#include <chrono>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

using namespace lathe;

namespace {

std::error_code lastError() {
  return {errno, std::generic_category()};
}

llvm::Error ioError(const char* what, llvm::StringRef path) {
  return makeError(ErrorCode::Io, "cannot {0} {1}: {2}", what, path, lastError().message());
}

/// How long a writer waits for another, which holds the lock for milliseconds.
constexpr auto kPatience = std::chrono::seconds(10);
/// No journal is larger.
constexpr off_t kMostJournalBytes = off_t(64) << 20;

/// The journal, open and locked until the end of the scope.
class LockedJournal {
public:
  static llvm::Expected<LockedJournal> open(const std::string& path) {
    const llvm::StringRef folder = llvm::sys::path::parent_path(path);
    if (const std::error_code code = llvm::sys::fs::create_directories(folder))
      return makeError(ErrorCode::Io, "cannot create the folder {0}: {1}", folder, code.message());
    // Not blocking: to open a pipe is to wait for its other end.
    LockedJournal journal(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666), path);
    if (journal.file_ < 0) return ioError("open", path);
    struct stat status{};
    if (::fstat(journal.file_, &status) != 0) return ioError("read", path);
    if (!S_ISREG(status.st_mode)) return makeError(ErrorCode::Corrupt, "{0} is not a regular file", path);
    if (llvm::Error error = journal.lock()) return error;
    return journal;
  }

  LockedJournal(LockedJournal&& other) noexcept
      : file_(std::exchange(other.file_, -1)), path_(std::move(other.path_)) {}
  LockedJournal& operator=(LockedJournal&&) = delete;
  ~LockedJournal() {
    if (file_ >= 0) ::close(file_);
  }

  llvm::Error append(llvm::StringRef line) const {
    llvm::Expected<bool> torn = endsTorn();
    if (!torn) return torn.takeError();
    std::string bytes = ((*torn ? "\n" : "") + line + "\n").str();
    for (llvm::StringRef rest = bytes; !rest.empty();) {
      const ssize_t written = ::write(file_, rest.data(), rest.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return ioError("write", path_);
      rest = rest.drop_front(static_cast<size_t>(written));
    }
    if (::fdatasync(file_) != 0) return ioError("sync", path_);
    return llvm::Error::success();
  }

  llvm::Error clear() const {
    if (::ftruncate(file_, 0) != 0) return ioError("empty", path_);
    return llvm::Error::success();
  }

private:
  LockedJournal(int file, std::string path) : file_(file), path_(std::move(path)) {}

  llvm::Error lock() const {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
      // A file system without locks has to do without: lines that are appended whole rarely mix.
      if (errno == ENOLCK || errno == ENOTSUP || errno == ENOSYS) break;
      if (errno != EWOULDBLOCK && errno != EINTR) return ioError("lock", path_);
      if (std::chrono::steady_clock::now() > deadline)
        return makeError(ErrorCode::Io, "another process has held {0} locked for 10 s; end it and try again", path_);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return llvm::Error::success();
  }

  /// Whether the last line lacks its end, because its writer was killed.
  llvm::Expected<bool> endsTorn() const {
    const off_t size = ::lseek(file_, 0, SEEK_END);
    if (size < 0) return ioError("read", path_);
    if (size == 0) return false;
    char last = 0;
    if (::pread(file_, &last, 1, size - 1) != 1) return ioError("read", path_);
    return last != '\n';
  }

  int file_;
  std::string path_;
};

/// The bytes of a regular file; none when there is no such file or it cannot be read.
std::optional<std::string> contentOf(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return std::nullopt;
  std::optional<std::string> bytes;
  struct stat status{};
  if (::fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size <= kMostJournalBytes) {
    bytes.emplace(static_cast<size_t>(status.st_size), '\0');
    size_t done = 0;
    while (done < bytes->size()) {
      const ssize_t got = ::pread(file, bytes->data() + done, bytes->size() - done, static_cast<off_t>(done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      done += static_cast<size_t>(got);
    }
    bytes->resize(done);
  }
  ::close(file);
  return bytes;
}

} // namespace

std::string TuningFile::path(llvm::StringRef name) const {
  llvm::SmallString<256> path(folder_);
  llvm::sys::path::append(path, name);
  return std::string(path);
}

void TuningFile::readJournal(TuningDocument& document) const {
  const std::optional<std::string> bytes = contentOf(path(kTuningJournal));
  if (!bytes) return;
  TuningDocument journal;
  for (llvm::StringRef rest = *bytes; !rest.empty();) {
    llvm::StringRef line;
    std::tie(line, rest) = rest.split('\n');
    llvm::Expected<llvm::json::Value> json = parseJson(line);
    if (!json) {
      llvm::consumeError(json.takeError());
      continue;
    }
    llvm::Expected<TuningMeasurement> measurement = parseTuningMeasurement(*json);
    if (measurement)
      journal.measurements.push_back(std::move(*measurement));
    else
      llvm::consumeError(measurement.takeError());
  }
  document.join(journal);
}

llvm::Expected<TuningDocument> TuningFile::readFolded() const {
  const std::string file = path(kTuningFile);
  const std::optional<std::string> bytes = contentOf(file);
  if (!bytes && !llvm::sys::fs::exists(file)) return TuningDocument{};
  if (!bytes) return makeError(ErrorCode::Corrupt, "{0} cannot be read", file);
  llvm::Expected<TuningDocument> document = TuningDocument::parse(*bytes);
  if (document) return document;
  return makeError(ErrorCode::Corrupt, "{0}: {1}", file, takeSummary(document.takeError()).message);
}

llvm::Expected<TuningDocument> TuningFile::read() const {
  // The journal first: what a fold takes from it meanwhile is then found in plan.json.
  TuningDocument journal;
  readJournal(journal);
  llvm::Expected<TuningDocument> document = readFolded();
  if (!document) return document.takeError();
  document->join(journal);
  return document;
}

llvm::Error TuningFile::append(const TuningMeasurement& measurement) const {
  llvm::Expected<LockedJournal> journal = LockedJournal::open(path(kTuningJournal));
  if (!journal) return journal.takeError();
  return journal->append(llvm::formatv("{0}", toJson(measurement)).str());
}

llvm::Error TuningFile::fold(const TuningDocument& more) const {
  llvm::Expected<LockedJournal> lock = LockedJournal::open(path(kTuningJournal));
  if (!lock) return lock.takeError();
  llvm::Expected<TuningDocument> document = readFolded();
  if (!document) {
    llvm::consumeError(document.takeError());
    const auto stamp = std::chrono::system_clock::now().time_since_epoch().count();
    const std::string aside =
        llvm::formatv("{0}.bad-{1}-{2:x-}", path(kTuningFile), stamp, llvm::sys::Process::GetRandomNumber());
    if (const std::error_code code = llvm::sys::fs::rename(path(kTuningFile), aside))
      return makeError(ErrorCode::Io, "cannot set {0} aside: {1}", path(kTuningFile), code.message());
    document = TuningDocument{};
  }
  readJournal(*document);
  document->join(more);
  if (llvm::Error error = writeAtomically(path(kTuningFile), document->text())) return error;
  return lock->clear();
}
