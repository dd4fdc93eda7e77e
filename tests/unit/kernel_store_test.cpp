//===- tests/unit/kernel_store_test.cpp - Kernels, found or compiled ------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/kernels/KernelStore.h"

#include "generator/Workload.h"
#include "runtime/cache/Environment.h"
#include "tests/support/CacheSamples.h"
#include "tests/support/FaultyNvrtc.h"
#include "tests/support/ScratchFolder.h"

#include <catch2/catch.hpp>

#include <barrier>
#include <set>
#include <thread>
#include <variant>

using namespace lathe;
using namespace lathe::test;
using Catch::Matchers::Contains;

namespace {

const Workload kWorkload{.hidden = 64, .vocab = 300};

Nvrtc realNvrtc() {
  return require(openNvrtc("", Environment::fromProcess().cudaSearchFolders));
}

Specialization unitOf(const std::string& entry, const std::string& body, llvm::StringRef arch) {
  const std::string text = "extern \"C\" __global__ void " + entry + "(int* x) { " + body + " }\n";
  return {.kind = KernelKind::Loss,
          .target = require(parseTarget(arch)),
          .config = std::nullopt,
          .entry = entry,
          .unit = text,
          .sourceDigest = Digest::of(text),
          .threads = 32,
          .sharedBytes = 0};
}

Specialization goodUnit(const std::string& entry, llvm::StringRef arch = "sm_90a") {
  return unitOf(entry, "x[threadIdx.x] += 1;", arch);
}

Specialization badUnit(const std::string& entry) {
  return unitOf(entry, "x = unknown_" + entry + ";", "sm_90a");
}

/// What `store` has for each of `batches`, each asked for on a thread of its own, all at once.
std::vector<std::variant<std::vector<KernelPointer>, ErrorSummary>>
getAtOnce(KernelStore& store, llvm::ArrayRef<std::vector<Specialization>> batches) {
  std::vector<std::variant<std::vector<KernelPointer>, ErrorSummary>> results(batches.size());
  std::barrier start(static_cast<std::ptrdiff_t>(batches.size()));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < batches.size(); ++i)
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      llvm::Expected<std::vector<KernelPointer>> kernels = store.get(batches[i], kWorkload);
      if (kernels)
        results[i] = std::move(*kernels);
      else
        results[i] = takeSummary(kernels.takeError());
    });
  for (std::thread& thread : threads) thread.join();
  return results;
}

/// A folder for a cache, an NVRTC that counts, and the warnings of all stores.
class Fixture {
public:
  /// A store that shares nothing but the folder with the others.
  KernelStore& store() {
    return keep([this]() -> llvm::Expected<Nvrtc> { return nvrtc.table(); });
  }
  KernelStore& storeWithoutNvrtc() {
    return keep([]() -> llvm::Expected<Nvrtc> {
      return makeError(ErrorCode::MissingLibrary, "there is no NVRTC here; install it");
    });
  }
  KernelStore& storeWithNvrtc(const Nvrtc& table) {
    return keep([table]() -> llvm::Expected<Nvrtc> { return table; });
  }

  size_t compilations() const { return nvrtc.callCount("nvrtcCompileProgram"); }

  ScratchFolder folder;
  std::string root = folder.file("cache");
  FaultyNvrtc nvrtc{realNvrtc()};
  std::vector<std::string> warnings;

  /// A store with this NVRTC, kept until the end.
  KernelStore& keep(KernelStore::OpenNvrtc open, KernelStore::NvrtcVersionByName version = nullptr) {
    const auto warn = [this](llvm::StringRef message) { warnings.push_back(message.str()); };
    caches_.push_back(std::make_unique<Cache>(root, std::vector<std::string>(), warn));
    stores_.push_back(std::make_unique<KernelStore>(caches_.back().get(), std::move(open), CompilerOptions{}, warn,
                                                    std::move(version)));
    return *stores_.back();
  }

private:
  std::vector<std::unique_ptr<Cache>> caches_;
  std::vector<std::unique_ptr<KernelStore>> stores_;
};

} // namespace

TEST_CASE("a kernel is compiled once, then found in memory, then in the cache") {
  Fixture fixture;
  KernelStore& store = fixture.store();
  const std::vector<Specialization> units{goodUnit("first"), goodUnit("second")};
  const std::vector<KernelPointer> compiled = require(store.get(units, kWorkload));
  REQUIRE(compiled.size() == 2);
  CHECK(fixture.compilations() == 2);
  for (size_t i = 0; i < units.size(); ++i) {
    CHECK(compiled[i]->origin == KernelOrigin::Compiled);
    CHECK(compiled[i]->specialization.entry == units[i].entry);
    CHECK(compiled[i]->compileMilliseconds > 0);
    CHECK(require(readCubinEntries(compiled[i]->cubin)) == std::vector<std::string>{units[i].entry});
  }

  CHECK(require(store.get(units, kWorkload)) == compiled);
  CHECK(fixture.compilations() == 2);

  const std::vector<KernelPointer> found = require(fixture.store().get(units, kWorkload));
  CHECK(fixture.compilations() == 2);
  for (size_t i = 0; i < units.size(); ++i) {
    CHECK(found[i]->origin == KernelOrigin::Cache);
    CHECK(found[i]->cubin == compiled[i]->cubin);
    CHECK(found[i]->digest == compiled[i]->digest);
    CHECK(found[i]->info.registers == compiled[i]->info.registers);
    CHECK(found[i]->compileMilliseconds == 0);
  }
  CHECK(fixture.warnings.empty());
}

TEST_CASE("only what is missing is compiled, and the order is kept") {
  Fixture fixture;
  require(fixture.store().get({goodUnit("second")}, kWorkload));
  KernelStore& store = fixture.store();
  require(store.get({goodUnit("third")}, kWorkload));
  const std::vector<KernelPointer> kernels =
      require(store.get({goodUnit("first"), goodUnit("second"), goodUnit("third")}, kWorkload));
  CHECK(fixture.compilations() == 3);
  CHECK(kernels[0]->specialization.entry == "first");
  CHECK(kernels[1]->specialization.entry == "second");
  CHECK(kernels[2]->specialization.entry == "third");
  CHECK(kernels[1]->origin == KernelOrigin::Cache);
}

TEST_CASE("nothing asked for gives nothing and opens nothing") {
  Fixture fixture;
  CHECK(require(fixture.storeWithoutNvrtc().get({}, kWorkload)).empty());
}

TEST_CASE("kernels of one source for two architectures are two kernels") {
  Fixture fixture;
  const std::vector<KernelPointer> kernels =
      require(fixture.store().get({goodUnit("same", "sm_80"), goodUnit("same", "sm_90a")}, kWorkload));
  CHECK(kernels[0]->info.sm == 80);
  CHECK(kernels[1]->info.sm == 90);
  CHECK(kernels[0]->digest != kernels[1]->digest);
}

TEST_CASE("the cache holds the record, the source and the workload of a kernel") {
  Fixture fixture;
  const Specialization unit = goodUnit("kept");
  const KernelPointer kernel = require(fixture.store().get({unit}, kWorkload)).front();
  const Digest workload = workloadDigest(kWorkload);
  const CachedKernel entry =
      require(readEntry(entryFolder(fixture.root, workload, "sm_90a"), kernel->digest.hex(), /*withSource=*/true));
  CHECK(entry.source == unit.unit);
  CHECK(entry.cubin == kernel->cubin);
  CHECK(entry.record.entry == "kept");
  CHECK(entry.record.registers == kernel->info.registers);
  CHECK(entry.record.nvrtcVersion == require(realNvrtc().version()).text());
  const Cache cache(fixture.root, {}, [](llvm::StringRef) {});
  CHECK(cache.loadDocument(workload, "", "workload.json") == canonicalJson(kWorkload) + "\n");
}

TEST_CASE("a cache that cannot be written is only a warning") {
  Fixture fixture;
  writeAll(fixture.folder.file("file"), "not a folder");
  fixture.root = fixture.folder.file("file") + "/cache";
  const std::vector<KernelPointer> kernels = require(fixture.store().get({goodUnit("first")}, kWorkload));
  CHECK(kernels.front()->origin == KernelOrigin::Compiled);
  REQUIRE(fixture.warnings.size() == 1);
  CHECK_THAT(fixture.warnings[0], Contains("not kept in the cache") && Contains(fixture.root));
}

TEST_CASE("without a cache kernels are compiled and kept in memory") {
  FaultyNvrtc nvrtc(realNvrtc());
  KernelStore store(
      nullptr, [&]() -> llvm::Expected<Nvrtc> { return nvrtc.table(); }, {},
      [](llvm::StringRef text) { FAIL(text.str()); });
  const std::vector<KernelPointer> kernels = require(store.get({goodUnit("first")}, kWorkload));
  CHECK(require(store.get({goodUnit("first")}, kWorkload)) == kernels);
  CHECK(nvrtc.callCount("nvrtcCompileProgram") == 1);
}

TEST_CASE("without NVRTC a cached kernel is found by its source, and without both the error is clear") {
  Fixture fixture;
  require(fixture.store().get({goodUnit("kept")}, kWorkload));

  KernelStore& store = fixture.storeWithoutNvrtc();
  const std::vector<KernelPointer> kernels = require(store.get({goodUnit("kept")}, kWorkload));
  CHECK(kernels.front()->origin == KernelOrigin::Cache);

  const ErrorSummary missing = requireError(store.get({goodUnit("kept"), goodUnit("fresh")}, kWorkload));
  CHECK(missing.code == ErrorCode::MissingLibrary);
  CHECK_THAT(missing.message, Contains("there is no NVRTC here; install it"));

  // Of another workload: the cache keeps kernels by workload.
  const Workload other{.hidden = 65, .vocab = 300};
  CHECK(requireError(fixture.storeWithoutNvrtc().get({goodUnit("kept")}, other)).code == ErrorCode::MissingLibrary);
}

TEST_CASE("a kernel by another NVRTC is compiled anew where one is at hand, and taken where none is") {
  Fixture fixture;
  Nvrtc other = fixture.nvrtc.table();
  other.getVersion = [](int* major, int* minor) {
    *major = 12;
    *minor = 9;
    return NVRTC_SUCCESS;
  };
  const KernelPointer old = require(fixture.storeWithNvrtc(other).get({goodUnit("kept")}, kWorkload)).front();
  CHECK(require(fixture.storeWithoutNvrtc().get({goodUnit("kept")}, kWorkload)).front()->digest == old->digest);
  const KernelPointer fresh = require(fixture.store().get({goodUnit("kept")}, kWorkload)).front();
  CHECK(fresh->origin == KernelOrigin::Compiled);
  CHECK(fresh->digest != old->digest);
}

TEST_CASE("NVRTC stays closed while the cache has all kernels of its version") {
  Fixture fixture;
  require(fixture.store().get({goodUnit("kept")}, kWorkload));
  const NvrtcVersion version = require(realNvrtc().version());
  int opened = 0;
  const auto storeThatKnows = [&](std::optional<NvrtcVersion> known) -> KernelStore& {
    return fixture.keep(
        [&]() -> llvm::Expected<Nvrtc> {
          ++opened;
          return fixture.nvrtc.table();
        },
        [known] { return known; });
  };
  KernelStore& store = storeThatKnows(version);
  CHECK(require(store.get({goodUnit("kept")}, kWorkload)).front()->origin == KernelOrigin::Cache);
  CHECK(opened == 0);
  const std::vector<KernelPointer> both = require(store.get({goodUnit("kept"), goodUnit("fresh")}, kWorkload));
  CHECK(both[1]->origin == KernelOrigin::Compiled);
  CHECK(opened == 1);
  CHECK(fixture.compilations() == 2);

  // One that is mistaken, or does not know, costs an opened library and nothing else.
  for (const std::optional<NvrtcVersion> known : {std::optional(NvrtcVersion{version.major, version.minor + 1}), {}}) {
    opened = 0;
    CHECK(require(storeThatKnows(known).get({goodUnit("kept")}, kWorkload)).front()->origin == KernelOrigin::Cache);
    CHECK(opened == 1);
  }
  CHECK(fixture.compilations() == 2);
}

TEST_CASE("a cached file that is no kernel is compiled anew with a warning") {
  Fixture fixture;
  const KernelPointer good = require(fixture.store().get({goodUnit("kept")}, kWorkload)).front();
  const std::string folder = entryFolder(fixture.root, workloadDigest(kWorkload), "sm_90a");
  // An entry that is whole, but whose cubin holds another kernel.
  CachedKernel entry = require(readEntry(folder, good->digest.hex()));
  entry.cubin = require(fixture.store().get({goodUnit("stranger")}, kWorkload)).front()->cubin;
  entry.record.cubinBytes = entry.cubin.size();
  entry.record.cubinDigest = Digest::of(entry.cubin);
  fixture.warnings.clear();
  llvm::sys::fs::remove(folder + "/" + good->digest.hex() + ".json");
  require(Cache(fixture.root, {}, [](llvm::StringRef) {
          }).store({workloadDigest(kWorkload), "sm_90a", good->digest}, entry));

  const KernelPointer fresh = require(fixture.store().get({goodUnit("kept")}, kWorkload)).front();
  CHECK(fresh->origin == KernelOrigin::Compiled);
  CHECK(fresh->cubin == good->cubin);
  REQUIRE_FALSE(fixture.warnings.empty());
  CHECK_THAT(fixture.warnings[0], Contains(good->digest.hex()) && Contains("kept"));
}

TEST_CASE("every compile error is told, and the good kernels are kept") {
  Fixture fixture;
  const ErrorSummary error =
      requireError(fixture.store().get({badUnit("one"), goodUnit("intact"), badUnit("two")}, kWorkload));
  CHECK(error.code == ErrorCode::Compile);
  CHECK_THAT(error.message, Contains("unknown_one") && Contains("unknown_two") && !Contains("intact"));
  CHECK(fixture.nvrtc.livePrograms() == 0);

  CHECK(require(fixture.store().get({goodUnit("intact")}, kWorkload)).front()->origin == KernelOrigin::Cache);
  CHECK(fixture.compilations() == 3);
}

TEST_CASE("the good kernels of a failed batch stay in memory") {
  FaultyNvrtc nvrtc(realNvrtc());
  KernelStore store(
      nullptr, [&]() -> llvm::Expected<Nvrtc> { return nvrtc.table(); }, {},
      [](llvm::StringRef text) { FAIL(text.str()); });
  requireError(store.get({goodUnit("intact"), badUnit("one")}, kWorkload));
  CHECK(nvrtc.callCount("nvrtcCompileProgram") == 2);
  require(store.get({goodUnit("intact")}, kWorkload));
  CHECK(nvrtc.callCount("nvrtcCompileProgram") == 2);
  requireError(store.get({goodUnit("intact"), badUnit("one")}, kWorkload));
  CHECK(nvrtc.callCount("nvrtcCompileProgram") == 3);
}

TEST_CASE("a kernel asked for twice in one batch is compiled once") {
  Fixture fixture;
  const std::vector<KernelPointer> kernels =
      require(fixture.store().get({goodUnit("same"), goodUnit("same")}, kWorkload));
  CHECK(kernels[0] == kernels[1]);
  CHECK(fixture.compilations() == 1);
  const ErrorSummary error = requireError(fixture.store().get({badUnit("same"), badUnit("same")}, kWorkload));
  CHECK(llvm::StringRef(error.message).count("identifier \"unknown_same\" is undefined") == 1);
  CHECK(fixture.compilations() == 2);
}

TEST_CASE("threads that want the same kernels compile each once and share it") {
  Fixture fixture;
  const Specialization a = goodUnit("a"), b = goodUnit("b"), c = goodUnit("c");
  // Each batch overlaps the others, in another order: threads wait for each other's kernels.
  const auto results = getAtOnce(fixture.store(), {{a, b}, {b, c}, {c, a}, {c, b, a}, {a, b}, {b}});
  CHECK(fixture.compilations() == 3);
  std::set<KernelPointer> distinct;
  for (const auto& result : results) {
    REQUIRE(std::holds_alternative<std::vector<KernelPointer>>(result));
    for (const KernelPointer& kernel : std::get<std::vector<KernelPointer>>(result)) distinct.insert(kernel);
  }
  CHECK(distinct.size() == 3);
}

TEST_CASE("a failed compilation reaches all who wait for it, and the next request tries again") {
  Fixture fixture;
  KernelStore& store = fixture.store();
  // Long enough for all threads to have asked.
  fixture.nvrtc.beforeCompilations([] { std::this_thread::sleep_for(std::chrono::seconds(1)); });
  fixture.nvrtc.failNext("nvrtcCompileProgram", NVRTC_ERROR_OUT_OF_MEMORY);
  const Specialization unit = goodUnit("kernel");
  for (const auto& result : getAtOnce(store, {{unit}, {unit}, {unit}, {unit}})) {
    REQUIRE(std::holds_alternative<ErrorSummary>(result));
    CHECK_THAT(std::get<ErrorSummary>(result).message, Contains("NVRTC_ERROR_OUT_OF_MEMORY"));
  }
  CHECK(fixture.compilations() == 1);
  fixture.nvrtc.beforeCompilations([] {});
  for (const auto& result : getAtOnce(store, {{unit}, {unit}}))
    CHECK(std::holds_alternative<std::vector<KernelPointer>>(result));
  CHECK(fixture.compilations() == 2);
}

TEST_CASE("a fault of any NVRTC function is a clean error, and the next attempt succeeds") {
  Nvrtc names;
  forEachEntry(names, [](llvm::StringRef name, auto&) {
    // The first has no result, the others are not called or cannot fail the compilation.
    if (name == "nvrtcGetErrorString" || name.contains("SupportedArchs") || name.contains("ProgramLog") ||
        name == "nvrtcDestroyProgram")
      return;
    Fixture fixture;
    KernelStore& store = fixture.store();
    fixture.nvrtc.failNext(name, NVRTC_ERROR_OUT_OF_MEMORY);
    INFO(name.str());
    const ErrorSummary error = requireError(store.get({goodUnit("kernel")}, kWorkload));
    CHECK_THAT(error.message, Contains("NVRTC_ERROR_OUT_OF_MEMORY") || Contains(name.str()));
    CHECK(fixture.nvrtc.livePrograms() == 0);
    CHECK(require(store.get({goodUnit("kernel")}, kWorkload)).front()->origin == KernelOrigin::Compiled);
    CHECK(fixture.nvrtc.livePrograms() == 0);
  });
}
