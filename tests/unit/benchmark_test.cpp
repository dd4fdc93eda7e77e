//===- tests/unit/benchmark_test.cpp - Reports of benchmarks --------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "generator/CanonicalJson.h"
#include "generator/Workload.h"
#include "tests/support/RuntimeSamples.h"
#include "tests/support/TuningSamples.h"
#include "tuning/KernelIndex.h"
#include "tuning/SvgPlot.h"

#include "llvm/ADT/StringExtras.h"

#include <cmath>

using namespace lathe;
using namespace lathe::test;
using Catch::Contains;

namespace {

BenchResult sampleResult(int64_t sequences, BenchPass pass, bool tuned) {
  BenchResult result;
  result.item = {"llama-3-8b", {.hidden = 4096, .vocab = 128256}, {sequences, 1024}};
  result.pass = pass;
  result.tuned = tuned;
  result.choices = sampleChoices();
  result.timing = summarize({18.0, 18.25, 18.5});
  result.flops = 12.9e12;
  result.workspaceBytes = 1 << 20;
  result.checks = {{"loss", 1e-4, 2e-3, true}, {"grad_input", 5e-3, 1e-2, true}};
  result.setting = sampleSetting();
  result.driverRelease = "580.65.06";
  result.date = "2026-01-02T03:04:05Z";
  auto kernel = std::make_shared<Kernel>();
  kernel->specialization =
      specialize(KernelKind::Logits, result.item.workload, require(parseTarget("sm_90a")), result.choices.configs);
  kernel->cubin = "cubin";
  result.kernels = {kernel};
  return result;
}

const llvm::json::Object& objectAt(const llvm::json::Value& record, std::vector<const char*> path) {
  const llvm::json::Object* object = record.getAsObject();
  for (const char* name : path) {
    REQUIRE(object);
    object = object->getObject(name);
  }
  REQUIRE(object);
  return *object;
}

std::string digestOf(const llvm::json::Value& value) {
  return Digest::of(require(canonicalJson(value))).text();
}

/// A record as other harnesses write it: no workload document, sizes in the external id.
std::string foreignRecord(llvm::StringRef id, llvm::StringRef benchmark = "fused_linear_simpo_loss/forward",
                          int64_t median = 58808769) {
  using llvm::json::Object;
  Object spec{{"status", "passed"},
              {"timing", Object{{"latencyNs", Object{{"median", median}}}}},
              {"sourceNative", Object{{"benchmark", benchmark}, {"externalId", id}}}};
  Object run{{"kind", "BenchmarkRun"}, {"metadata", Object{{"title", "theirs"}}}, {"spec", std::move(spec)}};
  Object environment{{"spec", Object{{"hardware", Object{{"product", "NVIDIA A100"}}}}}};
  return llvm::formatv("{0}",
                       llvm::json::Value(Object{{"run", std::move(run)}, {"environment", std::move(environment)}}));
}

} // namespace

TEST_CASE("a record names every document by the digest of its canonical JSON") {
  const BenchResult result = sampleResult(4, BenchPass::Full, true);
  const llvm::json::Value record = require(toKernelIndex(result, BenchOptions()));
  const llvm::json::Object& all = *record.getAsObject();
  for (const auto& [part, kind] :
       {std::pair{"run", "BenchmarkRun"}, {"protocol", "BenchmarkProtocol"}, {"environment", "ExecutionEnvironment"}}) {
    const llvm::json::Object& document = objectAt(record, {part});
    CHECK(document.getString("apiVersion") == "kernelindex.dev/v1alpha1");
    CHECK(document.getString("kind") == kind);
    CHECK(objectAt(record, {part, "metadata"}).getString("name")->size() > 5);
    objectAt(record, {part, "spec"});
  }
  const llvm::json::Object& spec = objectAt(record, {"run", "spec"});
  for (const char* part : {"workload", "protocol", "environment", "implementation"})
    CHECK(spec.getString(std::string(part) + "Digest") == digestOf(*all.get(part)));
  CHECK(objectAt(record, {"run", "spec", "timing", "latencyNs"}).getInteger("median") == 18250000);
  const llvm::json::Array& measurements = *spec.getArray("measurements");
  REQUIRE(measurements.size() == 2);
  CHECK(measurements[0].getAsObject()->getString("unit") == "ns");
  CHECK(measurements[0].getAsObject()->getInteger("value") == std::llround(result.timing.p20 * 1e6));
  // What says whether it is right, with what it was made, and of what.
  CHECK(spec.getArray("correctness")->size() == 2);
  const llvm::json::Object& software = objectAt(record, {"environment", "spec", "software"});
  CHECK(software.getString("driver") == "580.65.06");
  CHECK(software.getString("cuda") == "13.0");
  CHECK(software.getString("nvrtc") == "13.0");
  const llvm::json::Object& implementation = objectAt(record, {"implementation"});
  CHECK(implementation.getString("revision")->size() >= 7);
  const llvm::json::Object& artifact = *implementation.getArray("artifacts")->front().getAsObject();
  CHECK(artifact.getString("cubinDigest") == Digest::of("cubin").text());
  CHECK(artifact.getString("sourceDigest") == result.kernels[0]->specialization.sourceDigest.text());
}

TEST_CASE("an own record is read back as the same workload, size and pass") {
  for (const BenchPass pass : {BenchPass::Forward, BenchPass::Full}) {
    const BenchResult result = sampleResult(8, pass, false);
    const llvm::json::Value record = require(toKernelIndex(result, BenchOptions()));
    const ImportedRun run = require(parseKernelIndex(llvm::formatv("{0}", record).str()));
    CHECK(run.item.shape == result.item.shape);
    CHECK(run.item.workload == workloadFor(result.item.workload, pass));
    CHECK(run.pass == pass);
    CHECK(run.median == Approx(18.25));
    CHECK(run.device == "NVIDIA H200");
  }
}

TEST_CASE("a foreign record is read by its external id") {
  const ImportedRun run =
      require(parseKernelIndex(foreignRecord("x/forward/liger/a100/batch4-hidden4096-seq1024-vocab128256-bf16/2024")));
  CHECK(run.item.shape == Shape{4, 1024});
  CHECK(run.item.workload.hidden == 4096);
  CHECK(run.item.workload.vocab == 128256);
  CHECK(run.item.workload.dtype == DType::BF16);
  CHECK(run.pass == BenchPass::Forward);
  CHECK(run.median == Approx(58.808769));
  CHECK(run.device == "NVIDIA A100");
  CHECK(run.title == "theirs");
}

TEST_CASE("a record that cannot be run again says what it lacks") {
  const auto messageOf = [](llvm::StringRef json) { return requireError(parseKernelIndex(json)).message; };
  CHECK_THAT(messageOf("[]"), Contains("no run"));
  CHECK_THAT(messageOf("{"), Contains("byte"));
  CHECK_THAT(messageOf(R"({"run": {"spec": {}}})"), Contains("BenchmarkRun"));
  CHECK_THAT(messageOf(foreignRecord("nothing")), Contains("external id"));
  CHECK_THAT(messageOf(foreignRecord("batch3-hidden1-seq1-vocab9-bf16")), Contains("even"));
  CHECK_THAT(messageOf(foreignRecord("batch99999999999999999999-hidden1-seq1-vocab9-bf16")), Contains("too large"));
  CHECK_THAT(messageOf(foreignRecord("batch4-hidden8-seq1-vocab9-bf16", "softmax/forward")), Contains("softmax"));
  CHECK_THAT(messageOf(foreignRecord("batch4-hidden8-seq1-vocab9-bf16", "fused_linear_simpo_loss/sideways")),
             Contains("sideways"));
  CHECK_THAT(messageOf(foreignRecord("batch4-hidden8-seq1-vocab9-bf16", "fused_linear_simpo_loss/full", 0)),
             Contains("median"));
}

TEST_CASE("CSV has a line for every result, and the plot a line for every kind") {
  const std::vector<BenchResult> results = {sampleResult(4, BenchPass::Full, true),
                                            sampleResult(2, BenchPass::Full, true),
                                            sampleResult(4, BenchPass::Forward, false)};
  const std::string csv = toCsv(results);
  CHECK(llvm::StringRef(csv).count('\n') == 4);
  const size_t columns = llvm::StringRef(csv).split('\n').first.count(',');
  llvm::SmallVector<llvm::StringRef> lines;
  llvm::StringRef(csv).split(lines, '\n', -1, /*KeepEmpty=*/false);
  for (const llvm::StringRef line : lines) CHECK(line.count(',') == columns);
  CHECK_THAT(csv, Contains("llama-3-8b,4,1024,full,tuned,18.2500"));

  const std::string svg = benchSvg(results);
  CHECK(llvm::StringRef(svg).count("<polyline") == 2);
  CHECK(llvm::StringRef(svg).count("<circle") == 3);
  CHECK_THAT(svg, Contains("llama-3-8b, forward, default"));
}

TEST_CASE("a plot escapes its texts and leaves out what has no place") {
  const Plot plot{"a < b & c", "x", "y", {{"odd <series>", {{1, 2, 1, 3}, {NAN, 1, 1, 1}, {2, INFINITY, 0, 0}}, true}}};
  const std::string svg = toSvg(plot);
  CHECK_THAT(svg, Contains("a &lt; b &amp; c") && Contains("odd &lt;series&gt;"));
  CHECK(llvm::StringRef(svg).count("<circle") == 1);
  CHECK_FALSE(llvm::StringRef(svg).contains("nan"));
  CHECK_FALSE(llvm::StringRef(svg).contains("inf"));
  CHECK_THAT(toSvg({"empty", "", "", {}}), Contains("</svg>"));
}

TEST_CASE("a benchmark of wrong results is an error, and frees what it took") {
  FakeDriver fake;
  const auto runtime = makeRuntime(fake);
  const WorkItem item{"small", smallWorkload(), kSmallShape};
  // Kernels on the fake device compute nothing.
  const ErrorSummary error = requireError(benchmark(*runtime, item, BenchOptions()));
  CHECK_THAT(error.message, Contains("is wrong") && Contains("forward"));
  CHECK(fake.allocatedBytes() == 0);
  BenchOptions none;
  none.rounds = 0;
  CHECK(requireError(benchmark(*runtime, item, none)).code == ErrorCode::InvalidArgument);
  CHECK(requireError(benchmark(*runtime, {"odd", smallWorkload(), {3, 1}}, BenchOptions())).code ==
        ErrorCode::InvalidArgument);
}
