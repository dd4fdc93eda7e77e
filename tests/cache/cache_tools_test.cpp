//===- tests/cache/cache_tools_test.cpp - Looking after a cache -----------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/cache/CacheTools.h"
#include "runtime/cache/TuningFile.h"
#include "tests/support/CacheSamples.h"
#include "tests/support/ScratchFolder.h"
#include "tests/support/TuningSamples.h"

#include "llvm/Support/Program.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace lathe;
using namespace lathe::test;
using Catch::Contains;

namespace {

constexpr int64_t kHour = 3600;
constexpr int64_t kDay = 24 * kHour;

void setAge(llvm::StringRef path, int64_t seconds) {
  const timespec time{::time(nullptr) - seconds, 0};
  const timespec times[] = {time, time};
  REQUIRE(::utimensat(AT_FDCWD, path.str().c_str(), times, 0) == 0);
}

bool has(llvm::StringRef root, const CachedKernel& kernel) {
  return Cache(root.str(), {}, [](llvm::StringRef) {}).load(keyOf(kernel)).has_value();
}

/// The text of results with one plan and one measurement of `run`.
std::string resultsOf(const std::string& run, const std::string& date) {
  TuningDocument document;
  document.plans = {samplePlan(run, date)};
  document.measurements = {sampleMeasurement(run, 0)};
  return document.text();
}

std::string folderIn(llvm::StringRef root) {
  return entryFolder(root, sampleWorkload(), "sm_90a");
}

/// Three kernels of the same size that were last used 1, 10 and 100 days ago.
std::vector<CachedKernel> keepThree(llvm::StringRef root) {
  std::vector<CachedKernel> kernels{sampleKernel("a"), sampleKernel("b"), sampleKernel("c")};
  int64_t age = kDay - kHour;
  for (const CachedKernel& kernel : kernels) {
    keep(root, kernel);
    setAge(fileOf(root, kernel, ".json"), age);
    age *= 10;
  }
  return kernels;
}

} // namespace

TEST_CASE("The list has every kernel with the size of its files, and nothing else") {
  const ScratchFolder root;
  CHECK(listCache(root.path()).empty());
  CHECK(listCache(root.file("missing")).empty());
  const std::vector<CachedKernel> kernels = keepThree(root.path());
  writeAll(folderIn(root.path()) + "/notes.json", "{}");
  writeAll(folderIn(root.path()) + "/plan.json", "{}");
  REQUIRE_FALSE(llvm::sys::fs::create_directories(root.file("v1/not-a-digest/sm_90a")));

  const std::vector<CacheEntry> entries = listCache(root.path());
  REQUIRE(entries.size() == 3);
  CHECK(llvm::is_sorted(entries, [](const CacheEntry& a, const CacheEntry& b) { return a.hex < b.hex; }));
  for (const CachedKernel& kernel : kernels) {
    const auto entry =
        llvm::find_if(entries, [&](const CacheEntry& e) { return e.hex == kernel.record.kernelDigest.hex(); });
    REQUIRE(entry != entries.end());
    CHECK(entry->workload == sampleWorkload());
    CHECK(entry->arch == "sm_90a");
    CHECK(entry->bytes == readAll(fileOf(root.path(), kernel, ".cubin")).size() +
                              readAll(fileOf(root.path(), kernel, ".cu")).size() +
                              readAll(fileOf(root.path(), kernel, ".json")).size());
  }
}

TEST_CASE("A prefix finds one kernel, and errors tell none from many") {
  const ScratchFolder root;
  const std::vector<CachedKernel> kernels = keepThree(root.path());
  const std::string hex = kernels[1].record.kernelDigest.hex();
  CHECK(require(findEntry(root.path(), hex)).hex == hex);
  CHECK(require(findEntry(root.path(), "sha256:" + hex.substr(0, 20))).hex == hex);
  CHECK_THAT(requireError(findEntry(root.path(), "")).message, Contains("3 kernels") && Contains("more digits"));
  const ErrorSummary none = requireError(findEntry(root.path(), "xyz"));
  CHECK(none.code == ErrorCode::InvalidArgument);
  CHECK_THAT(none.message, Contains("\"xyz\"") && Contains(root.path()));

  // The same kernel under a second workload is no second answer.
  const KernelKey second{Digest::of("second workload"), "sm_90a", kernels[1].record.kernelDigest};
  require(Cache(root.path(), {}, [](llvm::StringRef) {}).store(second, kernels[1]));
  CHECK(require(findEntry(root.path(), hex)).hex == hex);
}

TEST_CASE("Verification reports damage, and with repair sets it aside") {
  const ScratchFolder root;
  const std::vector<CachedKernel> kernels = keepThree(root.path());
  CHECK(verifyCache(root.path(), /*repair=*/false).empty());
  writeAll(fileOf(root.path(), kernels[0], ".cubin"), "altered");
  REQUIRE_FALSE(llvm::sys::fs::remove(fileOf(root.path(), kernels[1], ".cu")));

  const std::vector<DamagedEntry> damaged = verifyCache(root.path(), /*repair=*/false);
  REQUIRE(damaged.size() == 2);
  for (const DamagedEntry& entry : damaged) CHECK_FALSE(entry.reason.empty());
  for (const DamagedEntry& entry : damaged) CHECK_FALSE(entry.isSetAside);
  const std::vector<DamagedEntry> repaired = verifyCache(root.path(), /*repair=*/true);
  CHECK(repaired.size() == 2);
  for (const DamagedEntry& entry : repaired) CHECK(entry.isSetAside);
  CHECK(verifyCache(root.path(), /*repair=*/true).empty());
  CHECK(listCache(root.path()).size() == 1);
  CHECK(has(root.path(), kernels[2]));
}

TEST_CASE("Verification finds a source that was edited; a load does not mind it") {
  const ScratchFolder root;
  const CachedKernel kernel = sampleKernel("a");
  keep(root.path(), kernel);
  writeAll(fileOf(root.path(), kernel, ".cu"), kernel.source + " ");
  CHECK(has(root.path(), kernel));
  const std::vector<DamagedEntry> damaged = verifyCache(root.path(), /*repair=*/false);
  REQUIRE(damaged.size() == 1);
  CHECK_THAT(damaged[0].reason, Contains("source"));
}

TEST_CASE("Pruning by age removes what was not used for that long") {
  const ScratchFolder root;
  const std::vector<CachedKernel> kernels = keepThree(root.path());
  const Removed removed = pruneCache(root.path(), {.maxBytes = std::nullopt, .maxAgeSeconds = 5 * kDay});
  CHECK(removed.entries == 2);
  CHECK(has(root.path(), kernels[0]));
  CHECK_FALSE(has(root.path(), kernels[1]));
  CHECK_FALSE(has(root.path(), kernels[2]));
  CHECK(namesIn(folderIn(root.path())).size() == 3);
}

TEST_CASE("Pruning by size removes the least recently used first, and no more than needed") {
  const ScratchFolder root;
  const std::vector<CachedKernel> kernels = keepThree(root.path());
  uint64_t total = 0;
  for (const CacheEntry& entry : listCache(root.path())) total += entry.bytes;
  CHECK(pruneCache(root.path(), {.maxBytes = total, .maxAgeSeconds = std::nullopt}).entries == 0);
  const Removed removed = pruneCache(root.path(), {.maxBytes = total - 1, .maxAgeSeconds = std::nullopt});
  CHECK(removed.entries == 1);
  CHECK(removed.bytes == total / 3);
  CHECK(has(root.path(), kernels[0]));
  CHECK(has(root.path(), kernels[1]));
  CHECK_FALSE(has(root.path(), kernels[2]));
  // A load counts as use: what was the oldest is now kept.
  setAge(fileOf(root.path(), kernels[0], ".json"), 20 * kDay);
  CHECK(has(root.path(), kernels[1]));
  CHECK(pruneCache(root.path(), {.maxBytes = total / 3, .maxAgeSeconds = std::nullopt}).entries == 1);
  CHECK(has(root.path(), kernels[1]));
}

TEST_CASE("What may not be removed is not reported as removed") {
  if (::getuid() != 0) {
    WARN("skipped: needs root, to become another user");
    return;
  }
  const ScratchFolder folder;
  REQUIRE(::chmod(folder.path().c_str(), 0755) == 0);
  const std::string root = folder.file("cache");
  const std::vector<CachedKernel> kernels = keepThree(root);
  writeAll(fileOf(root, kernels[0], ".cubin"), "altered");
  // The child exits with 0 when all is as it should be; Catch2 must not be used in it.
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(3);
    const Removed removed = clearCache(root);
    if (removed.entries != 0 || removed.bytes != 0) ::_exit(1);
    const std::vector<DamagedEntry> damaged = verifyCache(root, /*repair=*/true);
    const bool isTold = damaged.size() == 1 && !damaged[0].isSetAside &&
                        llvm::StringRef(damaged[0].reason).contains("cannot be set aside");
    ::_exit(isTold ? 0 : 2);
  }
  REQUIRE(child > 0);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(listCache(root).size() == 3);
}

TEST_CASE("Pruning keeps tuning results, and removes leftovers once they are old") {
  const ScratchFolder root;
  const CachedKernel kernel = sampleKernel("a");
  keep(root.path(), kernel);
  const std::string folder = folderIn(root.path());
  const std::string orphan = Digest::of("orphan").hex();
  const auto fill = [&](llvm::StringRef age, int64_t seconds) {
    for (const std::string& name : {orphan + ".cubin", orphan + ".json.tmp-7-" + age.str(),
                                    orphan + ".cu.bad-" + age.str(), "notes.tmp-" + age.str()}) {
      writeAll(folder + "/" + name, "x");
      setAge(folder + "/" + name, seconds);
    }
  };
  writeAll(folder + "/plan.json", "{}");
  setAge(folder + "/plan.json", 1000 * kDay);

  fill("young", kHour / 2);
  pruneCache(root.path(), {});
  CHECK(namesIn(folder).size() == 8);
  fill("old", 2 * kDay);
  pruneCache(root.path(), {});
  // Gone: the orphan, the old temporary file and the old set-aside file. Somebody's notes stay.
  CHECK(namesIn(folder).size() == 8);
  CHECK_FALSE(llvm::sys::fs::exists(folder + "/" + orphan + ".json.tmp-7-old"));
  CHECK_FALSE(llvm::sys::fs::exists(folder + "/" + orphan + ".cu.bad-old"));
  CHECK_FALSE(llvm::sys::fs::exists(folder + "/" + orphan + ".cubin"));
  CHECK(llvm::sys::fs::exists(folder + "/notes.tmp-old"));
  CHECK(llvm::sys::fs::exists(folder + "/" + orphan + ".json.tmp-7-young"));
  CHECK(llvm::sys::fs::exists(folder + "/plan.json"));
  CHECK(has(root.path(), kernel));
}

TEST_CASE("Clearing removes what is the cache's and leaves foreign files and other versions") {
  const ScratchFolder root;
  keepThree(root.path());
  const Cache cache(root.path(), {}, [](llvm::StringRef) {});
  require(cache.storeDocument(sampleWorkload(), "", "workload.json", "{}"));
  require(cache.storeDocument(sampleWorkload(), "sm_90a", "plan.json", "{}"));
  const std::string leftover = folderIn(root.path()) + "/" + Digest::of("x").hex() + ".cubin.tmp-1-2";
  writeAll(leftover, "x");
  REQUIRE_FALSE(llvm::sys::fs::create_directories(root.file("v2/" + sampleWorkload().hex() + "/sm_90a")));
  const std::string second = root.file("v2/" + sampleWorkload().hex() + "/sm_90a/") + Digest::of("x").hex() + ".json";
  const std::vector<std::string> foreign{root.file("README"),
                                         root.file("v1/README"),
                                         second,
                                         root.file("v1/" + Digest::of("a file").hex()),
                                         root.file("v1/" + sampleWorkload().hex() + "/sm_file"),
                                         folderIn(root.path()) + "/notes.txt"};
  for (const std::string& path : foreign) writeAll(path, "mine");

  CHECK(clearCache(root.path()).entries == 3);
  for (const std::string& path : foreign) CHECK(readAll(path) == "mine");
  CHECK(namesIn(folderIn(root.path())) == std::vector<std::string>{"notes.txt"});
  CHECK(listCache(root.path()).empty());
}

TEST_CASE("Clearing removes files whose time lies in the future, and a record without content") {
  const ScratchFolder root;
  const CachedKernel kernel = sampleKernel("a");
  keep(root.path(), kernel);
  setAge(fileOf(root.path(), kernel, ".json"), -2 * kDay);
  const std::string leftover = folderIn(root.path()) + "/" + Digest::of("x").hex() + ".cubin.tmp-1-2";
  writeAll(leftover, "x");
  setAge(leftover, -2 * kDay);
  writeAll(folderIn(root.path()) + "/" + Digest::of("y").hex() + ".json", "");
  CHECK(verifyCache(root.path(), /*repair=*/false).size() == 1);
  CHECK(clearCache(root.path()).entries == 2);
  CHECK(namesIn(root.file("v1")).empty());
}

TEST_CASE("Symbolic links to folders are not followed, so nothing outside v1 is touched") {
  const ScratchFolder folder;
  const std::string outside = folder.file("outside");
  keepThree(outside);
  const std::string workloadName = "/v1/" + sampleWorkload().hex();
  const auto link = [](const std::string& target, const std::string& path) {
    REQUIRE_FALSE(llvm::sys::fs::create_directories(llvm::sys::path::parent_path(path)));
    REQUIRE(::symlink(target.c_str(), path.c_str()) == 0);
  };
  link(outside + "/v1", folder.file("layout/v1"));
  link(outside + workloadName, folder.file("workload") + workloadName);
  link(outside + workloadName + "/sm_90a", folder.file("arch") + workloadName + "/sm_90a");
  for (const char* name : {"layout", "workload", "arch"}) {
    INFO(name);
    const std::string root = folder.file(name);
    CHECK(listCache(root).empty());
    CHECK(clearCache(root).entries == 0);
    CHECK(pruneCache(root, {.maxBytes = 0, .maxAgeSeconds = 0}).entries == 0);
    CHECK(listCache(outside).size() == 3);
  }
  CHECK(verifyCache(outside, /*repair=*/false).empty());

  // A root that is itself a link is the user's choice.
  link(outside, folder.file("root"));
  CHECK(clearCache(folder.file("root")).entries == 3);
}

TEST_CASE("Removing an entry whose file is a link removes the link alone") {
  const ScratchFolder root;
  const CachedKernel kernel = sampleKernel("k");
  keep(root.path(), kernel);
  const std::string cubin = fileOf(root.path(), kernel, ".cubin");
  REQUIRE_FALSE(llvm::sys::fs::rename(cubin, root.file("elsewhere")));
  REQUIRE(::symlink(root.file("elsewhere").c_str(), cubin.c_str()) == 0);
  CHECK(has(root.path(), kernel));
  CHECK(clearCache(root.path()).entries == 1);
  CHECK(readAll(root.file("elsewhere")) == kernel.cubin);
}

TEST_CASE("Names that only resemble the cache's own are left alone") {
  const ScratchFolder root;
  keep(root.path(), sampleKernel("k"));
  const std::string hex = Digest::of("x").hex();
  const std::string shorter = hex.substr(1);
  const std::string upper = llvm::StringRef(hex).upper();
  const std::vector<std::string> names{shorter + ".json",
                                       upper + "F.cubin",
                                       hex + ".json.swp",
                                       hex + ".cubin~",
                                       hex + ".json.tmp",
                                       hex,
                                       ".json",
                                       "-rf",
                                       "new\nline.json",
                                       "\xff\xfe.cubin",
                                       "100%.cu",
                                       "plan.json.old",
                                       std::string(250, 'n')};
  for (const std::string& name : names) {
    writeAll(folderIn(root.path()) + "/" + name, "mine");
    setAge(folderIn(root.path()) + "/" + name, 1000 * kDay);
  }
  CHECK(listCache(root.path()).size() == 1);
  CHECK(verifyCache(root.path(), /*repair=*/true).empty());
  CHECK(clearCache(root.path()).entries == 1);
  for (const std::string& name : names) {
    INFO(name);
    CHECK(readAll(folderIn(root.path()) + "/" + name) == "mine");
  }
}

TEST_CASE("Verification tells of an entry that is a folder or far too large, and repairs it") {
  const ScratchFolder root;
  const std::vector<CachedKernel> kernels = keepThree(root.path());
  REQUIRE_FALSE(llvm::sys::fs::remove(fileOf(root.path(), kernels[0], ".json")));
  REQUIRE_FALSE(llvm::sys::fs::create_directory(fileOf(root.path(), kernels[0], ".json")));
  REQUIRE(::truncate(fileOf(root.path(), kernels[1], ".cu").c_str(), int64_t(1) << 40) == 0);
  CHECK(verifyCache(root.path(), /*repair=*/true).size() == 2);
  CHECK(verifyCache(root.path(), /*repair=*/false).empty());
  CHECK(listCache(root.path()).size() == 1);
}

TEST_CASE("Clearing a cache without foreign files leaves an empty v1") {
  const ScratchFolder root;
  keepThree(root.path());
  clearCache(root.path());
  CHECK(namesIn(root.file("v1")).empty());
  CHECK(clearCache(root.path()).entries == 0);
  CHECK(clearCache(root.file("missing")).entries == 0);
}

TEST_CASE("A merge adds good entries, keeps those there and refuses damaged ones") {
  const ScratchFolder folder;
  const std::string into = folder.file("into");
  const std::string from = folder.file("from");
  const CachedKernel shared = sampleKernel("shared", "of the target");
  const CachedKernel broken = sampleKernel("broken");
  const CachedKernel fresh = sampleKernel("fresh");
  keep(into, shared);
  keep(from, sampleKernel("shared", "of the source"));
  keep(from, broken);
  keep(from, fresh);
  writeAll(fileOf(from, broken, ".cubin"), "altered");
  const Cache source(from, {}, [](llvm::StringRef) {});
  require(source.storeDocument(sampleWorkload(), "", "workload.json", "{}"));
  const std::string results = resultsOf("a", "2026-01-01T00:00:00Z");
  require(source.storeDocument(sampleWorkload(), "sm_90a", "plan.json", results));

  const Merged merged = require(mergeCache(into, from));
  CHECK(merged.added == 1);
  CHECK(merged.kept == 1);
  CHECK(merged.refused == 1);
  CHECK(has(into, fresh));
  CHECK_FALSE(has(into, broken));
  CHECK(readAll(fileOf(into, shared, ".cubin")) == "of the target");
  CHECK(readAll(fileOf(into, fresh, ".cu")) == fresh.source);
  CHECK(readAll(folderIn(into) + "/plan.json") == results);
  CHECK(verifyCache(into, /*repair=*/false).empty());
  // The source is as it was.
  CHECK(readAll(fileOf(from, broken, ".cubin")) == "altered");

  const Merged again = require(mergeCache(into, from));
  CHECK(again.added == 0);
  CHECK(again.kept == 2);
}

TEST_CASE("A merge copies documents whose kernels are there already or were pruned") {
  const ScratchFolder folder;
  const std::string into = folder.file("into");
  const std::string from = folder.file("from");
  keep(into, sampleKernel("k"));
  keep(from, sampleKernel("k"));
  const Cache source(from, {}, [](llvm::StringRef) {});
  const std::string results = resultsOf("a", "2026-01-01T00:00:00Z");
  require(source.storeDocument(sampleWorkload(), "sm_90a", "plan.json", results));
  const Digest pruned = Digest::of("workload without kernels");
  require(source.storeDocument(pruned, "", "workload.json", "{}"));
  require(source.storeDocument(pruned, "sm_80", "plan.json", results));

  const Merged merged = require(mergeCache(into, from));
  CHECK(merged.added == 0);
  CHECK(merged.kept == 1);
  const Cache target(into, {}, [](llvm::StringRef) {});
  CHECK(target.loadDocument(sampleWorkload(), "sm_90a", "plan.json") == results);
  CHECK(target.loadDocument(pruned, "", "workload.json") == "{}");
  CHECK(target.loadDocument(pruned, "sm_80", "plan.json") == results);
}

TEST_CASE("A merge joins the tuning results of both, journals included, and leaves out damaged ones") {
  const ScratchFolder folder;
  const Cache source(folder.file("from"), {}, [](llvm::StringRef) {});
  const Cache target(folder.file("into"), {}, [](llvm::StringRef) {});
  require(source.storeDocument(sampleWorkload(), "sm_90a", "plan.json", resultsOf("theirs", "2026-01-01T00:00:00Z")));
  require(target.storeDocument(sampleWorkload(), "sm_90a", "plan.json", resultsOf("ours", "2026-02-01T00:00:00Z")));
  require(TuningFile(folderIn(folder.file("from"))).append(sampleMeasurement("unfinished", 0)));
  require(source.storeDocument(sampleWorkload(), "sm_80", "plan.json", "damaged"));
  const std::string before = readAll(folderIn(folder.file("from")) + "/plan.jsonl");

  CHECK(require(mergeCache(folder.file("into"), folder.file("from"))).refused == 1);
  const TuningDocument joined = require(TuningFile(folderIn(folder.file("into"))).read());
  CHECK(joined.measurements.size() == 3);
  REQUIRE(joined.plans.size() == 1);
  CHECK(joined.plans[0].run == "ours");
  CHECK_FALSE(target.loadDocument(sampleWorkload(), "sm_80", "plan.json"));
  CHECK(readAll(folderIn(folder.file("from")) + "/plan.jsonl") == before);

  const std::string once = readAll(folderIn(folder.file("into")) + "/plan.json");
  require(mergeCache(folder.file("into"), folder.file("from")));
  CHECK(readAll(folderIn(folder.file("into")) + "/plan.json") == once);
}

TEST_CASE("A merge completes an entry of the target whose source is missing") {
  const ScratchFolder folder;
  const CachedKernel kernel = sampleKernel("k");
  keep(folder.file("into"), kernel);
  keep(folder.file("from"), kernel);
  REQUIRE_FALSE(llvm::sys::fs::remove(fileOf(folder.file("into"), kernel, ".cu")));
  CHECK(require(mergeCache(folder.file("into"), folder.file("from"))).added == 1);
  CHECK(verifyCache(folder.file("into"), /*repair=*/false).empty());
}

TEST_CASE("A merge replaces a damaged entry of the target by a good one") {
  const ScratchFolder folder;
  const CachedKernel kernel = sampleKernel("k");
  keep(folder.file("into"), kernel);
  keep(folder.file("from"), kernel);
  writeAll(fileOf(folder.file("into"), kernel, ".cubin"), "altered");
  CHECK(require(mergeCache(folder.file("into"), folder.file("from"))).added == 1);
  CHECK(has(folder.file("into"), kernel));
}

TEST_CASE("A merge from something that is no folder, or into one that cannot be, is an error") {
  const ScratchFolder folder;
  CHECK(requireError(mergeCache(folder.path(), folder.file("missing"))).code == ErrorCode::Io);
  keep(folder.file("from"), sampleKernel("k"));
  writeAll(folder.file("file"), "x");
  CHECK(requireError(mergeCache(folder.file("file"), folder.file("from"))).code == ErrorCode::Io);
}

TEST_CASE("Two caches copied over each other are one good cache") {
  const ScratchFolder folder;
  keep(folder.file("a"), sampleKernel("only a"));
  keep(folder.file("a"), sampleKernel("both"));
  keep(folder.file("b"), sampleKernel("only b"));
  keep(folder.file("b"), sampleKernel("both"));
  const auto program = llvm::sys::findProgramByName("cp");
  REQUIRE(program);
  const std::string from = folder.file("b/v1");
  const std::string into = folder.file("a");
  REQUIRE(llvm::sys::ExecuteAndWait(*program, {"cp", "-r", from, into}) == 0);
  CHECK(listCache(into).size() == 3);
  CHECK(verifyCache(into, /*repair=*/false).empty());
  CHECK(has(into, sampleKernel("only b")));
}
