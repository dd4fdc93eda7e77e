//===- tests/unit/explain_test.cpp - Where a cubin comes from ---------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/inspect/Explain.h"

#include "generator/Config.h"
#include "tests/support/CacheSamples.h"
#include "tests/support/ScratchFolder.h"

using namespace lathe;
using namespace lathe::test;
using Catch::Contains;

namespace {

std::string realCubin() {
  return readAll(LATHE_TEST_DATA "/cubin/shared_sm_90a_cuda13.cubin");
}

/// A cache with one kernel whose cubin is real.
class Fixture {
public:
  Fixture() { keep(root(), kernel); }
  std::string root() const { return folder.file("cache"); }

  ScratchFolder folder;
  CachedKernel kernel = [] {
    CachedKernel sample = sampleKernel("logits", realCubin());
    sample.record.entry = "shared_user";
    return sample;
  }();
};

} // namespace

TEST_CASE("A digest leads to the kernel's record, source and workload") {
  Fixture fixture;
  const std::string hex = fixture.kernel.record.kernelDigest.hex();
  writeAll(entryFolder(fixture.root(), sampleWorkload(), "") + "/workload.json", "{\"vocab\":1000}\n");
  const std::vector<std::string> roots = {fixture.folder.file("empty"), fixture.root()};
  for (const std::string& what : {"sha256:" + hex, hex.substr(0, 8)})
    CHECK(require(explainKernel(what, roots)).kernelDigest == fixture.kernel.record.kernelDigest.text());
  const KernelExplanation explanation = require(explainKernel(hex, roots));
  CHECK(explanation.known);
  CHECK(explanation.cacheRoot == fixture.root());
  CHECK(explanation.kernelDigest == fixture.kernel.record.kernelDigest.text());
  CHECK(explanation.step == "logits");
  CHECK(explanation.created == "2026-01-02T03:04:05Z");
  CHECK(explanation.latheVersion == "0.1.0");
  CHECK(explanation.workload == "{\"vocab\":1000}");
  CHECK(explanation.workloadDigest == sampleWorkload().text());
  CHECK(explanation.source == fixture.kernel.source);
  REQUIRE(explanation.entries.size() == 1);
  CHECK(explanation.entries.front().resources.threads == 256);
  CHECK(explanation.entries.front().resources.occupancy.blocks > 0);
}

TEST_CASE("A cubin is found in a cache by its bytes") {
  Fixture fixture;
  const std::string path = fixture.folder.file("renamed.bin");
  writeAll(path, fixture.kernel.cubin);
  const KernelExplanation explanation = require(explainKernel(path, {fixture.root()}));
  CHECK(explanation.known);
  CHECK(explanation.kernelDigest == fixture.kernel.record.kernelDigest.text());
  CHECK(explanation.cacheRoot == fixture.root());
}

TEST_CASE("A cubin from elsewhere is explained from itself alone") {
  ScratchFolder folder;
  const std::string path = folder.file("foreign.cubin");
  writeAll(path, realCubin());
  const KernelExplanation explanation = require(explainKernel(path, {}));
  CHECK_FALSE(explanation.known);
  CHECK(explanation.arch == "sm_90a");
  REQUIRE(explanation.entries.size() == 1);
  CHECK(explanation.entries.front().name == "shared_user");
  CHECK(explanation.entries.front().resources.registers > 0);
  CHECK(explanation.cubinDigest == Digest::of(realCubin()).text());
}

TEST_CASE("A record beside a cubin counts only when it is for these bytes") {
  Fixture fixture;
  const std::string beside = fileOf(fixture.root(), fixture.kernel, ".json");
  ScratchFolder folder;
  writeAll(folder.file("one.json"), readAll(beside));
  writeAll(folder.file("one.cubin"), fixture.kernel.cubin);
  CHECK(require(explainKernel(folder.file("one.cubin"), {})).known);
  writeAll(folder.file("two.json"), readAll(beside));
  writeAll(folder.file("two.cubin"), readAll(LATHE_TEST_DATA "/cubin/shared_sm_80_cuda12.cubin"));
  const KernelExplanation other = require(explainKernel(folder.file("two.cubin"), {}));
  CHECK_FALSE(other.known);
  CHECK(other.arch == "sm_80");
}

TEST_CASE("Tuned plans with the kernel's config tell who tuned it and when") {
  Fixture fixture;
  const llvm::json::Value config = toJson(Config{.blockM = 128});
  CachedKernel kernel = sampleKernel("tuned", realCubin());
  kernel.record.config = config;
  keep(fixture.root(), kernel);
  const std::string plan = R"({"run":"0123","date":"2026-03-04T05:06:07Z","lathe_version":"0.1.0","median_ms":2.5,)"
                           R"("setting":{"device":"NVIDIA H200"},"choices":{"configs":{"logits":)";
  const auto record = [&](const llvm::json::Value& json) { return plan + llvm::formatv("{0}", json).str() + "}}}"; };
  writeAll(entryFolder(fixture.root(), sampleWorkload(), "sm_90a") + "/plan.json",
           R"({"plans":[)" + record(config) + "," + record(toJson(Config{.blockM = 256})) + "]}");
  const KernelExplanation explanation = require(explainKernel(kernel.record.kernelDigest.hex(), {fixture.root()}));
  REQUIRE(explanation.tuning.size() == 1);
  CHECK(explanation.tuning.front().device == "NVIDIA H200");
  CHECK(explanation.tuning.front().date == "2026-03-04T05:06:07Z");
  CHECK(explanation.tuning.front().medianMilliseconds == 2.5);
}

TEST_CASE("What is neither a kernel nor a cubin is refused with a reason") {
  Fixture fixture;
  const std::vector<std::string> roots = {fixture.root()};
  const ErrorSummary unknown = requireError(explainKernel("ffffffff", roots));
  CHECK(unknown.code == ErrorCode::InvalidArgument);
  CHECK_THAT(unknown.message, Contains("ffffffff") && Contains(fixture.root()));
  CHECK_THAT(requireError(explainKernel("no such thing", roots)).message, Contains("lathe cache ls"));
  CHECK(requireError(explainKernel(fixture.folder.path(), roots)).code == ErrorCode::InvalidArgument);

  const std::string path = fixture.folder.file("damaged.cubin");
  const std::string cubin = realCubin();
  for (const size_t bytes : {size_t(0), size_t(16), size_t(100), cubin.size() / 2}) {
    writeAll(path, llvm::StringRef(cubin).take_front(bytes));
    CHECK(requireError(explainKernel(path, roots)).code == ErrorCode::Corrupt);
  }
  writeAll(path, "#!/bin/sh\n");
  CHECK(requireError(explainKernel(path, roots)).code == ErrorCode::Corrupt);
}
