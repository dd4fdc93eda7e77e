//===- tests/cache/cache_test.cpp - Keeping and finding kernels -----------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/cache/Cache.h"
#include "runtime/cache/CacheTools.h"
#include "tests/support/CacheSamples.h"
#include "tests/support/ScratchFolder.h"

#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <functional>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace lathe;
using namespace lathe::test;
using Catch::Contains;

namespace {

/// A cache that collects its warnings.
struct WatchedCache {
  std::vector<std::string> warnings;
  Cache cache;

  explicit WatchedCache(std::optional<std::string> root, std::vector<std::string> layers = {})
      : cache(std::move(root), std::move(layers), [this](llvm::StringRef text) { warnings.push_back(text.str()); }) {}
};

/// Runs `work` in a child process, which exits with its result; Catch2 must not be used inside.
template <class Work> pid_t inChild(Work work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  REQUIRE(child > 0);
  return child;
}
int statusOf(pid_t child) {
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

/// Exit codes of a child that tries to store.
enum Outcome : int { kStored = 0, kIoError = 1, kOtherError = 2, kNoSetup = 3 };
Outcome tryStore(llvm::StringRef root, const CachedKernel& kernel) {
  llvm::Error error = Cache(root.str(), {}, [](llvm::StringRef) {}).store(keyOf(kernel), kernel);
  if (!error) return kStored;
  return takeSummary(std::move(error)).code == ErrorCode::Io ? kIoError : kOtherError;
}

/// Damages one file of a kernel.
struct Damage {
  const char* name;
  const char* extension;
  std::string (*apply)(std::string bytes);
};
const Damage kDamages[] = {
    {"truncated cubin", ".cubin", [](std::string bytes) { return bytes.substr(0, bytes.size() / 2); }},
    {"empty cubin", ".cubin", [](std::string) { return std::string(); }},
    {"longer cubin", ".cubin", [](std::string bytes) { return bytes + "x"; }},
    {"cubin with one bit flipped", ".cubin",
     [](std::string bytes) {
       bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
       return bytes;
     }},
    {"cubin of another kernel", ".cubin", [](std::string bytes) { return std::string(bytes.size(), 'o'); }},
    {"truncated record", ".json", [](std::string bytes) { return bytes.substr(0, bytes.size() / 2); }},
    {"empty record", ".json", [](std::string) { return std::string(); }},
    {"record that is no JSON", ".json",
     [](std::string) {
       return std::string("\x7f"
                          "ELF");
     }},
    {"record that is an array", ".json", [](std::string) { return std::string("[]"); }},
    {"record nested deeply", ".json", [](std::string) { return std::string(1 << 20, '['); }},
    {"record of another kernel", ".json",
     [](std::string) { return llvm::formatv("{0:2}", sampleKernel("another").record.toJson()).str(); }},
    {"record of another architecture", ".json",
     [](std::string bytes) { return bytes.replace(bytes.find("\"sm_90a\""), 8, "\"sm_100\""); }},
    {"record with one bit of a number flipped", ".json",
     [](std::string bytes) { return bytes.replace(bytes.find(": 256"), 5, ": 257"); }},
    {"record with one bit of a text flipped", ".json",
     [](std::string bytes) { return bytes.replace(bytes.find("logits"), 6, "lofits"); }},
    {"record whose NVRTC version was changed", ".json",
     [](std::string bytes) { return bytes.replace(bytes.find("13.0"), 4, "12.8"); }},
};

} // namespace

TEST_CASE("A stored kernel is found again with its cubin, its record and its source") {
  const ScratchFolder root;
  const CachedKernel kernel = sampleKernel("k");
  WatchedCache watched(root.path());
  CHECK_FALSE(watched.cache.load(keyOf(kernel)));
  require(watched.cache.store(keyOf(kernel), kernel));

  const auto found = watched.cache.load(keyOf(kernel));
  REQUIRE(found);
  CHECK(found->cubin == kernel.cubin);
  CHECK(found->record == kernel.record);
  CHECK(readAll(fileOf(root.path(), kernel, ".cu")) == kernel.source);
  CHECK(watched.warnings.empty());
  // Nothing but the three files is left.
  CHECK(namesIn(entryFolder(root.path(), sampleWorkload(), "sm_90a")).size() == 3);
}

TEST_CASE("A kernel is not found under another workload, architecture or digest") {
  const ScratchFolder root;
  const CachedKernel kernel = sampleKernel("k");
  keep(root.path(), kernel);
  WatchedCache watched(root.path());
  KernelKey key = keyOf(kernel);
  key.workload = Digest::of("another workload");
  CHECK_FALSE(watched.cache.load(key));
  key = keyOf(kernel);
  key.arch = "sm_80";
  CHECK_FALSE(watched.cache.load(key));
  key = keyOf(kernel);
  key.kernel = Digest::of("another kernel");
  CHECK_FALSE(watched.cache.load(key));
  CHECK(watched.warnings.empty());
}

TEST_CASE("The kernel digest changes with every part, and parts do not run into each other") {
  const Digest source = Digest::of("s");
  const Digest base = kernelDigest(source, {"-a", "-b"}, "13.0", "sm_90a");
  CHECK(base == kernelDigest(source, {"-a", "-b"}, "13.0", "sm_90a"));
  CHECK(base != kernelDigest(Digest::of("t"), {"-a", "-b"}, "13.0", "sm_90a"));
  CHECK(base != kernelDigest(source, {"-b", "-a"}, "13.0", "sm_90a"));
  CHECK(base != kernelDigest(source, {"-a-b"}, "13.0", "sm_90a"));
  CHECK(base != kernelDigest(source, {"-a"}, "-b", "sm_90a"));
  CHECK(base != kernelDigest(source, {"-a", "-b"}, "13.0", "sm_90"));
}

TEST_CASE("Layers are read after the root, in order, and are never written") {
  const ScratchFolder folder;
  CachedKernel first = sampleKernel("k", "from the first layer");
  const CachedKernel second = sampleKernel("k", "from the second layer");
  const CachedKernel onlySecond = sampleKernel("only there");
  keep(folder.file("first"), first);
  keep(folder.file("second"), second);
  keep(folder.file("second"), onlySecond);

  WatchedCache watched(folder.file("root"), {folder.file("missing"), folder.file("first"), folder.file("second")});
  CHECK(watched.cache.load(keyOf(first))->cubin == first.cubin);
  CHECK(watched.cache.load(keyOf(onlySecond)));
  CHECK_FALSE(llvm::sys::fs::exists(folder.file("root")));

  const CachedKernel own = sampleKernel("k", "from the root");
  keep(folder.file("root"), own);
  CHECK(watched.cache.load(keyOf(first))->cubin == own.cubin);
  CHECK(watched.warnings.empty());
}

TEST_CASE("Without a root layers are read, and storing is no error") {
  const ScratchFolder layer;
  const CachedKernel kernel = sampleKernel("k");
  keep(layer.path(), kernel);
  WatchedCache watched(std::nullopt, {layer.path()});
  CHECK(watched.cache.load(keyOf(kernel)));
  const CachedKernel other = sampleKernel("other");
  require(watched.cache.store(keyOf(other), other));
  CHECK_FALSE(watched.cache.load(keyOf(other)));
}

TEST_CASE("A damaged entry is a miss with a warning, is set aside, and can be stored anew") {
  const ScratchFolder root;
  const CachedKernel kernel = sampleKernel("k");
  for (const Damage& damage : kDamages) {
    INFO(damage.name);
    keep(root.path(), kernel);
    const std::string path = fileOf(root.path(), kernel, damage.extension);
    const std::string bytes = damage.apply(readAll(path));
    writeAll(path, bytes);

    WatchedCache watched(root.path());
    CHECK_FALSE(watched.cache.load(keyOf(kernel)));
    REQUIRE(watched.warnings.size() == 1);
    CHECK_THAT(watched.warnings[0], Contains(kernel.record.kernelDigest.hex()) && Contains("set aside"));
    // What was found can still be looked at; the next load says nothing more.
    int setAside = 0;
    const std::string folder = entryFolder(root.path(), sampleWorkload(), "sm_90a");
    for (const std::string& name : namesIn(folder)) {
      CHECK_THAT(name, Contains(".bad-"));
      if (llvm::StringRef(name).contains(damage.extension) && readAll(folder + "/" + name) == bytes) ++setAside;
      CHECK_FALSE(llvm::sys::fs::remove(folder + "/" + name));
    }
    CHECK(setAside == 1);
    CHECK_FALSE(watched.cache.load(keyOf(kernel)));
    CHECK(watched.warnings.size() == 1);

    require(watched.cache.store(keyOf(kernel), kernel));
    CHECK(watched.cache.load(keyOf(kernel)));
  }
}

TEST_CASE("A record without its cubin is damage, a cubin without its record is a miss") {
  const ScratchFolder root;
  const CachedKernel kernel = sampleKernel("k");
  keep(root.path(), kernel);
  WatchedCache watched(root.path());
  REQUIRE_FALSE(llvm::sys::fs::remove(fileOf(root.path(), kernel, ".cubin")));
  CHECK_FALSE(watched.cache.load(keyOf(kernel)));
  CHECK(watched.warnings.size() == 1);

  keep(root.path(), kernel);
  REQUIRE_FALSE(llvm::sys::fs::remove(fileOf(root.path(), kernel, ".json")));
  CHECK_FALSE(watched.cache.load(keyOf(kernel)));
  CHECK(watched.warnings.size() == 1);
}

TEST_CASE("An entry in the folder of another architecture is a miss with a warning and is set aside") {
  const ScratchFolder root;
  const CachedKernel kernel = sampleKernel("k");
  const KernelKey key{sampleWorkload(), "sm_80", kernel.record.kernelDigest};
  WatchedCache watched(root.path());
  require(watched.cache.store(key, kernel));
  CHECK(verifyCache(root.path(), /*repair=*/false).size() == 1);
  CHECK_FALSE(watched.cache.load(key));
  REQUIRE(watched.warnings.size() == 1);
  CHECK_THAT(watched.warnings[0], Contains("another architecture") && Contains("set aside"));
  CHECK(listCache(root.path()).empty());
}

TEST_CASE("A damaged entry of a layer stays where it is and the next layer serves") {
  const ScratchFolder folder;
  const CachedKernel kernel = sampleKernel("k");
  keep(folder.file("bad"), kernel);
  keep(folder.file("good"), kernel);
  writeAll(fileOf(folder.file("bad"), kernel, ".cubin"), "altered");
  WatchedCache watched(folder.file("root"), {folder.file("bad"), folder.file("good")});
  CHECK(watched.cache.load(keyOf(kernel)));
  REQUIRE(watched.warnings.size() == 1);
  CHECK_THAT(watched.warnings[0], Contains("skipped"));
  CHECK(readAll(fileOf(folder.file("bad"), kernel, ".cubin")) == "altered");
  CHECK(namesIn(entryFolder(folder.file("bad"), sampleWorkload(), "sm_90a")).size() == 3);
}

TEST_CASE("By source the newest kernel is found, whatever NVRTC compiled it") {
  const ScratchFolder root;
  CachedKernel older = sampleKernel("k", "older");
  CachedKernel newer = sampleKernel("k", "newer");
  newer.record.nvrtcVersion = "13.1";
  newer.record.kernelDigest =
      kernelDigest(newer.record.sourceDigest, newer.record.compileOptions, "13.1", newer.record.arch);
  newer.record.created = "2026-02-01T00:00:00Z";
  keep(root.path(), older);
  keep(root.path(), newer);
  keep(root.path(), sampleKernel("another"));

  WatchedCache watched(root.path());
  const auto load = [&] { return watched.cache.loadBySource(sampleWorkload(), "sm_90a", older.record.sourceDigest); };
  REQUIRE(load());
  CHECK(load()->cubin == "newer");
  // When the newest is damaged the one before it serves.
  writeAll(fileOf(root.path(), newer, ".cubin"), "altered");
  REQUIRE(load());
  CHECK(load()->cubin == "older");
  CHECK(watched.warnings.size() == 1);
  CHECK_FALSE(watched.cache.loadBySource(sampleWorkload(), "sm_90a", Digest::of("unknown")));
  CHECK_FALSE(watched.cache.loadBySource(sampleWorkload(), "sm_80", older.record.sourceDigest));
}

TEST_CASE("Documents are kept beside the kernels and beside the architectures") {
  const ScratchFolder folder;
  WatchedCache layer(folder.file("layer"));
  WatchedCache watched(folder.file("root"), {folder.file("layer")});
  CHECK_FALSE(watched.cache.loadDocument(sampleWorkload(), "sm_90a", "plan.json"));
  require(layer.cache.storeDocument(sampleWorkload(), "sm_90a", "plan.json", "{\"of\": \"layer\"}"));
  CHECK(watched.cache.loadDocument(sampleWorkload(), "sm_90a", "plan.json") == "{\"of\": \"layer\"}");
  require(watched.cache.storeDocument(sampleWorkload(), "sm_90a", "plan.json", "{\"of\": \"root\"}"));
  CHECK(watched.cache.loadDocument(sampleWorkload(), "sm_90a", "plan.json") == "{\"of\": \"root\"}");
  require(watched.cache.storeDocument(sampleWorkload(), "", "workload.json", "{}"));
  CHECK(readAll(folder.file("root/v1/" + sampleWorkload().hex() + "/workload.json")) == "{}");
}

TEST_CASE("A load notes the use of an entry that was not used for a day") {
  const ScratchFolder root;
  const CachedKernel kernel = sampleKernel("k");
  keep(root.path(), kernel);
  const std::string record = fileOf(root.path(), kernel, ".json");
  const auto age = [&] {
    struct stat status{};
    REQUIRE(::stat(record.c_str(), &status) == 0);
    return ::time(nullptr) - status.st_mtime;
  };
  const auto setAge = [&](time_t seconds) {
    const timespec time{::time(nullptr) - seconds, 0};
    const timespec times[] = {time, time};
    REQUIRE(::utimensat(AT_FDCWD, record.c_str(), times, 0) == 0);
  };
  WatchedCache watched(root.path());
  setAge(3600);
  REQUIRE(watched.cache.load(keyOf(kernel)));
  CHECK(age() >= 3600);
  setAge(2 * 24 * 3600);
  REQUIRE(watched.cache.load(keyOf(kernel)));
  CHECK(age() < 60);
}

TEST_CASE("A root below a file is an error of the store and a miss of the load") {
  const ScratchFolder folder;
  writeAll(folder.file("file"), "not a folder");
  const CachedKernel kernel = sampleKernel("k");
  WatchedCache watched(folder.file("file/cache"));
  CHECK_FALSE(watched.cache.load(keyOf(kernel)));
  const ErrorSummary summary = requireError(watched.cache.store(keyOf(kernel), kernel));
  CHECK(summary.code == ErrorCode::Io);
  CHECK_THAT(summary.message, Contains(folder.file("file/cache")));
}

TEST_CASE("A folder that may not be written is an error of the store and still serves loads") {
  if (::getuid() != 0) {
    WARN("skipped: needs root, to become another user");
    return;
  }
  const ScratchFolder folder;
  REQUIRE(::chmod(folder.path().c_str(), 0755) == 0);
  const CachedKernel kernel = sampleKernel("k");
  keep(folder.file("cache"), kernel);
  const auto asNobody = [&](auto work) {
    return statusOf(inChild([&] { return ::setgid(65534) == 0 && ::setuid(65534) == 0 ? work() : int(kNoSetup); }));
  };
  const int stored = asNobody([&] { return int(tryStore(folder.file("cache"), sampleKernel("other"))); });
  REQUIRE(WIFEXITED(stored));
  CHECK(WEXITSTATUS(stored) == kIoError);
  const int loaded = asNobody([&] {
    return Cache(folder.file("cache"), {}, [](llvm::StringRef) {}).load(keyOf(kernel)) ? int(kStored)
                                                                                       : int(kOtherError);
  });
  REQUIRE(WIFEXITED(loaded));
  CHECK(WEXITSTATUS(loaded) == kStored);
}

TEST_CASE("A damaged entry that cannot be set aside is a miss, and the warning says so") {
  if (::getuid() != 0) {
    WARN("skipped: needs root, to become another user");
    return;
  }
  const ScratchFolder folder;
  REQUIRE(::chmod(folder.path().c_str(), 0755) == 0);
  const CachedKernel kernel = sampleKernel("k");
  keep(folder.file("cache"), kernel);
  writeAll(fileOf(folder.file("cache"), kernel, ".cubin"), "altered");
  const int status = statusOf(inChild([&] {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) return int(kNoSetup);
    WatchedCache watched(folder.file("cache"));
    if (watched.cache.load(keyOf(kernel)) || watched.warnings.size() != 1) return int(kOtherError);
    return llvm::StringRef(watched.warnings[0]).contains("cannot be set aside") ? int(kStored) : int(kIoError);
  }));
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == kStored);
  CHECK(readAll(fileOf(folder.file("cache"), kernel, ".cubin")) == "altered");
}

TEST_CASE("A full disk is an error of the store and leaves nothing behind") {
  const ScratchFolder root;
  const CachedKernel kernel = sampleKernel("k", std::string(1 << 20, 'c'));
  const int status = statusOf(inChild([&] {
    const rlimit limit{64 << 10, 64 << 10};
    if (::signal(SIGXFSZ, SIG_IGN) == SIG_ERR || ::setrlimit(RLIMIT_FSIZE, &limit) != 0) return int(kNoSetup);
    return int(tryStore(root.path(), kernel));
  }));
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == kIoError);
  // The source was small enough; of the cubin nothing is there, and no entry came to be.
  CHECK(namesIn(entryFolder(root.path(), sampleWorkload(), "sm_90a")) ==
        std::vector<std::string>{kernel.record.kernelDigest.hex() + ".cu"});
  WatchedCache watched(root.path());
  CHECK_FALSE(watched.cache.load(keyOf(kernel)));
  CHECK(watched.warnings.empty());
}

TEST_CASE("Any folder name serves as a root") {
  const ScratchFolder folder;
  const CachedKernel kernel = sampleKernel("k");
  for (const char* name : {"100%%%%", "with space", "{0}", "new\nline", "quote\"'", "\xff\xfe", "-rf", "v1"}) {
    INFO(name);
    WatchedCache watched(folder.file(name));
    require(watched.cache.store(keyOf(kernel), kernel));
    CHECK(watched.cache.load(keyOf(kernel)));
    CHECK(namesIn(entryFolder(folder.file(name), sampleWorkload(), "sm_90a")).size() == 3);
    writeAll(fileOf(folder.file(name), kernel, ".cubin"), "altered");
    CHECK_FALSE(watched.cache.load(keyOf(kernel)));
    REQUIRE(watched.warnings.size() == 1);
    CHECK_THAT(watched.warnings[0], Contains(folder.file(name)) && Contains("set aside"));
  }
}

TEST_CASE("What is not a regular file, or far too large, is damage and is neither waited for nor read") {
  const ScratchFolder root;
  const CachedKernel kernel = sampleKernel("k");
  for (const char* extension : {".json", ".cubin"}) {
    const std::string path = fileOf(root.path(), kernel, extension);
    const std::function<bool()> replacements[] = {
        [&] { return ::mkfifo(path.c_str(), 0666) == 0; },
        [&] { return ::mkdir(path.c_str(), 0777) == 0; },
        [&] {
          writeAll(path, "");
          return ::truncate(path.c_str(), int64_t(1) << 40) == 0;
        },
    };
    for (const auto& replace : replacements) {
      INFO(extension << " replaced, case " << &replace - replacements);
      keep(root.path(), kernel);
      REQUIRE_FALSE(llvm::sys::fs::remove(path));
      REQUIRE(replace());
      // In a child, so that waiting or running out of memory ends the child alone.
      const int status = statusOf(inChild([&] {
        ::alarm(20);
        WatchedCache watched(root.path());
        if (watched.cache.load(keyOf(kernel)) || watched.warnings.size() != 1) return int(kOtherError);
        return llvm::StringRef(watched.warnings[0]).contains("set aside") ? int(kStored) : int(kIoError);
      }));
      REQUIRE(WIFEXITED(status));
      CHECK(WEXITSTATUS(status) == kStored);
      CHECK(listCache(root.path()).empty());
    }
  }
}

TEST_CASE("Documents that are not regular files or far too large are as if they were not there") {
  const ScratchFolder root;
  WatchedCache watched(root.path());
  require(watched.cache.storeDocument(sampleWorkload(), "sm_90a", "plan.json", "{}"));
  const std::string path = entryFolder(root.path(), sampleWorkload(), "sm_90a") + "/plan.json";
  REQUIRE(::truncate(path.c_str(), int64_t(1) << 40) == 0);
  CHECK_FALSE(watched.cache.loadDocument(sampleWorkload(), "sm_90a", "plan.json"));
  REQUIRE_FALSE(llvm::sys::fs::remove(path));
  REQUIRE(::mkfifo(path.c_str(), 0666) == 0);
  CHECK_FALSE(watched.cache.loadDocument(sampleWorkload(), "sm_90a", "plan.json"));
}

TEST_CASE("An entry that cannot be read for want of file descriptors stays as it is") {
  const ScratchFolder root;
  const CachedKernel kernel = sampleKernel("k");
  keep(root.path(), kernel);
  const int status = statusOf(inChild([&] {
    const int lowest = ::dup(0);
    const rlimit none{static_cast<rlim_t>(lowest), 1024};
    if (lowest < 0 || ::close(lowest) != 0 || ::setrlimit(RLIMIT_NOFILE, &none) != 0) return int(kNoSetup);
    WatchedCache watched(root.path());
    if (watched.cache.load(keyOf(kernel)) || watched.warnings.size() != 1) return int(kOtherError);
    return llvm::StringRef(watched.warnings[0]).contains("skipped") ? int(kStored) : int(kIoError);
  }));
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == kStored);
  WatchedCache watched(root.path());
  CHECK(watched.cache.load(keyOf(kernel)));
  CHECK(watched.warnings.empty());
}

TEST_CASE("A load while another program copies over the entry in place gives the whole kernel or none") {
  const ScratchFolder root;
  const CachedKernel kernel = sampleKernel("k", std::string(1 << 20, 'c'));
  keep(root.path(), kernel);
  const std::string path = fileOf(root.path(), kernel, ".cubin");
  // As `cp` does: empties the file and writes it again.
  const pid_t copier = inChild([&] {
    ::alarm(60);
    while (true) {
      const int file = ::open(path.c_str(), O_WRONLY | O_TRUNC);
      if (file < 0) continue;
      if (::write(file, kernel.cubin.data(), kernel.cubin.size()) < 0 || ::close(file) != 0) return 1;
    }
  });
  const int status = statusOf(inChild([&] {
    WatchedCache watched(root.path());
    for (int i = 0; i < 300; ++i) {
      const auto found = watched.cache.load(keyOf(kernel));
      if (found && found->cubin != kernel.cubin) return int(kOtherError);
      if (!found && tryStore(root.path(), kernel) != kStored) return int(kIoError);
    }
    return int(kStored);
  }));
  CHECK(::kill(copier, SIGKILL) == 0);
  CHECK(WIFSIGNALED(statusOf(copier)));
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == kStored);
}

TEST_CASE("A cache that is deleted while it is used is built anew") {
  const ScratchFolder folder;
  const CachedKernel kernel = sampleKernel("k");
  WatchedCache watched(folder.file("cache"));
  require(watched.cache.store(keyOf(kernel), kernel));
  REQUIRE_FALSE(llvm::sys::fs::remove_directories(folder.file("cache")));
  CHECK_FALSE(watched.cache.load(keyOf(kernel)));
  require(watched.cache.store(keyOf(kernel), kernel));
  CHECK(watched.cache.load(keyOf(kernel)));
}

TEST_CASE("Processes that race on a cold cache, some of them killed, leave only whole entries") {
  constexpr int kProcesses = 16;
  constexpr int kKernels = 24;
  const ScratchFolder root;
  std::vector<CachedKernel> kernels;
  for (int i = 0; i < kKernels; ++i)
    kernels.push_back(sampleKernel("k" + std::to_string(i), std::string(200'000 + i, char('a' + i))));

  // Every fourth process goes on storing until it is killed, so that it is always in the middle.
  const auto isVictim = [](int process) { return process % 4 == 0; };
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process)
    children.push_back(inChild([&] {
      // Nobody is left behind should the test end early.
      ::alarm(60);
      const Cache cache(root.path(), {}, [](llvm::StringRef) { ::_exit(kOtherError); });
      do {
        for (int i = 0; i < kKernels; ++i) {
          // Half of them start from the other end, so that they meet.
          const CachedKernel& kernel = kernels[process % 2 == 0 ? i : kKernels - 1 - i];
          if (const auto found = cache.load(keyOf(kernel)); found && found->cubin != kernel.cubin)
            return int(kOtherError);
          if (const Outcome outcome = tryStore(root.path(), kernel)) return int(outcome);
        }
      } while (isVictim(process));
      return int(kStored);
    }));
  for (int process = 0; process < kProcesses; ++process) {
    if (!isVictim(process)) continue;
    ::usleep(5000);
    CHECK(::kill(children[process], SIGKILL) == 0);
  }
  for (int process = 0; process < kProcesses; ++process) {
    INFO("process " << process);
    const int status = statusOf(children[process]);
    if (isVictim(process))
      CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
    else
      CHECK((WIFEXITED(status) && WEXITSTATUS(status) == kStored));
  }

  CHECK(listCache(root.path()).size() == kKernels);
  CHECK(verifyCache(root.path(), /*repair=*/false).empty());
  WatchedCache watched(root.path());
  for (const CachedKernel& kernel : kernels) {
    const auto found = watched.cache.load(keyOf(kernel));
    REQUIRE(found);
    CHECK(found->cubin == kernel.cubin);
  }
  CHECK(watched.warnings.empty());
}

TEST_CASE("Loads while another process prunes give whole kernels or none, without a warning") {
  constexpr int kKernels = 8;
  const ScratchFolder root;
  std::vector<CachedKernel> kernels;
  for (int i = 0; i < kKernels; ++i)
    kernels.push_back(sampleKernel("k" + std::to_string(i), std::string(50'000, char('a' + i))));
  for (int round = 0; round < 20; ++round) {
    for (const CachedKernel& kernel : kernels) keep(root.path(), kernel);
    std::vector<pid_t> loaders;
    for (int i = 0; i < 3; ++i)
      loaders.push_back(inChild([&] {
        ::alarm(60);
        const Cache cache(root.path(), {}, [](llvm::StringRef) { ::_exit(kIoError); });
        // Until all are pruned.
        for (int found = kKernels; found > 0;) {
          found = 0;
          for (const CachedKernel& kernel : kernels) {
            const auto loaded = cache.load(keyOf(kernel));
            if (loaded && loaded->cubin != kernel.cubin) return int(kOtherError);
            if (loaded) ++found;
          }
        }
        return int(kStored);
      }));
    // One after the other.
    for (uint64_t left = kKernels; left-- > 0;) {
      uint64_t total = 0;
      for (const CacheEntry& entry : listCache(root.path())) total += entry.bytes;
      CHECK(pruneCache(root.path(), {.maxBytes = total - 1, .maxAgeSeconds = std::nullopt}).entries == 1);
    }
    for (const pid_t loader : loaders) {
      const int status = statusOf(loader);
      REQUIRE(WIFEXITED(status));
      CHECK(WEXITSTATUS(status) == kStored);
    }
  }
}

TEST_CASE("Stores and loads while another process prunes and clears never fail for good") {
  const ScratchFolder root;
  std::vector<CachedKernel> kernels;
  for (int i = 0; i < 6; ++i)
    kernels.push_back(sampleKernel("k" + std::to_string(i), std::string(20'000, char('a' + i))));
  const pid_t pruner = inChild([&] {
    ::alarm(60);
    for (int i = 0;; ++i) i % 2 == 0 ? clearCache(root.path()) : pruneCache(root.path(), {.maxBytes = 50'000});
    return 0;
  });
  std::vector<pid_t> users;
  for (int user = 0; user < 4; ++user)
    users.push_back(inChild([&] {
      ::alarm(60);
      const Cache cache(root.path(), {}, [](llvm::StringRef) {});
      for (int i = 0; i < 60; ++i) {
        const CachedKernel& kernel = kernels[(i + user) % kernels.size()];
        const auto found = cache.load(keyOf(kernel));
        if (found && found->cubin != kernel.cubin) return int(kOtherError);
        // A folder that vanishes under the writer is an error, and one that says so.
        if (!found && tryStore(root.path(), kernel) == kOtherError) return int(kOtherError);
      }
      return int(kStored);
    }));
  for (const pid_t user : users) {
    const int status = statusOf(user);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == kStored);
  }
  CHECK(::kill(pruner, SIGKILL) == 0);
  CHECK(WIFSIGNALED(statusOf(pruner)));

  // Whatever the pruner was killed in, every kernel can be stored and found again.
  WatchedCache watched(root.path());
  for (const CachedKernel& kernel : kernels) {
    require(watched.cache.store(keyOf(kernel), kernel));
    CHECK(watched.cache.load(keyOf(kernel)));
  }
  CHECK(verifyCache(root.path(), /*repair=*/false).empty());
}

TEST_CASE("Files have the permissions that the umask allows") {
  const ScratchFolder root;
  const CachedKernel kernel = sampleKernel("k");
  const mode_t before = ::umask(027);
  keep(root.path(), kernel);
  ::umask(before);
  const auto modeOf = [](const std::string& path) {
    struct stat status{};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    return status.st_mode & 0777;
  };
  CHECK(modeOf(root.file("v1")) == 0750);
  CHECK(modeOf(entryFolder(root.path(), sampleWorkload(), "sm_90a")) == 0750);
  for (const char* extension : {".json", ".cubin", ".cu"})
    CHECK(modeOf(fileOf(root.path(), kernel, extension)) == 0640);
}

TEST_CASE("Loading a warm kernel of 100 kB takes little time", "[.benchmark]") {
  const ScratchFolder root;
  const CachedKernel kernel = sampleKernel("k", std::string(100'000, 'c'));
  keep(root.path(), kernel);
  WatchedCache watched(root.path());
  constexpr int kLoads = 1000;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kLoads; ++i) REQUIRE(watched.cache.load(keyOf(kernel)));
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
  WARN("one load: " << time.count() / kLoads << " microseconds");

  KernelKey missing = keyOf(kernel);
  missing.kernel = Digest::of("missing");
  const auto startMissing = std::chrono::steady_clock::now();
  for (int i = 0; i < kLoads; ++i) REQUIRE_FALSE(watched.cache.load(missing));
  const std::chrono::duration<double, std::micro> timeMissing = std::chrono::steady_clock::now() - startMissing;
  WARN("one look for a missing kernel: " << timeMissing.count() / kLoads << " microseconds");

  constexpr int kStores = 100;
  const auto startStores = std::chrono::steady_clock::now();
  for (int i = 0; i < kStores; ++i) keep(root.path(), kernel);
  const std::chrono::duration<double, std::micro> timeStores = std::chrono::steady_clock::now() - startStores;
  WARN("one store: " << timeStores.count() / kStores << " microseconds");
}
