//===- tests/unit/inspector_test.cpp - Taking kernels apart -----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/inspect/Inspector.h"

#include "generator/CostModel.h"
#include "generator/Workload.h"
#include "runtime/inspect/PlanParts.h"
#include "runtime/inspect/Roofline.h"
#include "tests/support/CacheSamples.h"
#include "tests/support/InspectSamples.h"
#include "tests/support/ScratchFolder.h"

#include "llvm/ADT/STLExtras.h"

using namespace lathe;
using namespace lathe::test;
using Catch::Contains;

namespace {

const Workload kWorkload{.hidden = 256, .vocab = 1000};
constexpr Shape kShape{.sequences = 4, .tokens = 64};

PlanGraph graphFor(llvm::StringRef arch, const Workload& workload = kWorkload, const Shape& shape = kShape) {
  return require(makePlan(workload, shape, require(parseTarget(arch))));
}

/// An inspector with a cache of its own.
class Fixture {
public:
  explicit Fixture(std::optional<std::string> nvdisasm = std::nullopt) {
    environment_ = Environment::fromProcess();
    if (nvdisasm) environment_.nvdisasmPath = nvdisasm;
  }
  Inspector inspector() {
    return Inspector(
        environment_, &cache_, [this] { return openNvrtc("", environment_.cudaSearchFolders); },
        [](llvm::StringRef message) { WARN(message.str()); });
  }
  const Cache& cache() const { return cache_; }
  std::string root() const { return folder_.file("cache"); }

private:
  ScratchFolder folder_;
  Environment environment_;
  Cache cache_{folder_.file("cache"), {}, [](llvm::StringRef) {}};
};

const KernelInspection& kernelOf(const PlanInspection& plan, const std::string& step) {
  const auto found = llvm::find_if(plan.kernels, [&](const KernelInspection& kernel) { return kernel.step == step; });
  REQUIRE(found != plan.kernels.end());
  return *found;
}

} // namespace

TEST_CASE("Line information leaves the machine code and the digests of plans as they are") {
  const Nvrtc nvrtc = require(openNvrtc("", Environment::fromProcess().cudaSearchFolders));
  const std::string arch = GENERATE("sm_80", "sm_90a");
  const PlanGraph graph = graphFor(arch);
  const Specialization unit = specialize(KernelKind::Logits, graph.workload, graph.target, graph.choices.configs);
  const CompileRequest request{unit.entry + ".cu", unit.entry, unit.unit, arch, {}};
  const Compiler plain(nvrtc, {.threads = 1, .spillLimit = kAnySpill});
  const Compiler withLines(nvrtc, {.threads = 1, .spillLimit = kAnySpill, .lineInfo = true});
  const CompiledKernel first = require(plain.compile(request));
  const CompiledKernel second = require(withLines.compile(request));
  const std::string text = ".text." + unit.entry;
  CHECK(require(readCubinSection(first.cubin, text)) == require(readCubinSection(second.cubin, text)));
  CHECK(first.info == second.info);
  CHECK(require(readCubinSection(first.cubin, ".nv_debug_ptx_txt")).empty());
  CHECK_FALSE(require(readCubinSection(second.cubin, ".nv_debug_ptx_txt")).empty());

  CHECK(compileOptions(arch, {}) == defaultOptions(arch));
  CHECK(compileOptions(arch, {.lineInfo = true}).back() == "-lineinfo");
}

TEST_CASE("A plan is taken apart into steps, kernels, sources and PTX") {
  Fixture fixture;
  const PlanGraph graph = graphFor("sm_80");
  const PlanInspection plan = require(fixture.inspector().plan(graph));
  CHECK(plan.workloadDigest == workloadDigest(kWorkload).text());
  CHECK(plan.steps.size() == graph.forwardBackward.size());
  REQUIRE(plan.kernels.size() == graph.kernels().size());
  for (const KernelInspection& kernel : plan.kernels) {
    INFO(kernel.step);
    CHECK(kernel.resources.threads > 0);
    CHECK(kernel.resources.registers > 0);
    CHECK(kernel.resources.occupancy.blocks > 0);
    CHECK_THAT(kernel.ptx, Contains(".entry " + kernel.entry));
    REQUIRE_FALSE(kernel.sources.empty());
    CHECK(kernel.sources.front().name == kernel.entry + ".cu");
    CHECK_THAT(kernel.sources.front().text, Contains("struct Config"));
    CHECK(kernel.origin == "compiled");
  }
  const KernelInspection& logits = kernelOf(plan, "logits");
  REQUIRE(logits.tile);
  CHECK(logits.tile->tiles > 0);
  CHECK_FALSE(logits.configText.empty());
  CHECK(plan.landscapes.size() == 3);
}

TEST_CASE("The kernels of an inspection are found in the cache the next time") {
  Fixture fixture;
  const PlanGraph graph = graphFor("sm_80");
  const PlanInspection first = require(fixture.inspector().plan(graph, KernelKind::Logits));
  const PlanInspection second = require(fixture.inspector().plan(graph, KernelKind::Logits));
  REQUIRE(second.kernels.size() == 1);
  CHECK(second.kernels.front().origin == "cache");
  CHECK(second.kernels.front().kernelDigest == first.kernels.front().kernelDigest);
  // The digest shown is the one that plans use, not that of the cubin with lines.
  const Digest source = require(Digest::parse(first.kernels.front().sourceDigest));
  CHECK(first.kernels.front().kernelDigest ==
        kernelDigest(source, defaultOptions("sm_80"), first.nvrtcVersion, "sm_80").text());
}

TEST_CASE("Machine code knows its lines, and the hot loop makes the tile's products") {
  if (!machineDisassembler()) return;
  Fixture fixture;
  const std::string arch = GENERATE("sm_75", "sm_80", "sm_90a", "sm_120a");
  // Deep enough for a loop that is not unrolled.
  const PlanGraph graph = graphFor(arch, {.hidden = 2048, .vocab = 4096});
  const PlanInspection plan = require(fixture.inspector().plan(graph, KernelKind::Logits));
  const KernelInspection& kernel = plan.kernels.front();
  INFO(arch << ": " << kernel.configText << "; " << kernel.sassProblem);
  REQUIRE(kernel.sass);
  CHECK(kernel.mix.total() == static_cast<int64_t>(kernel.sass->instructions.size()));
  CHECK(kernel.mix[InstructionClass::Other] == 0);
  REQUIRE(kernel.hotLoop);
  const SassLoop& loop = kernel.loops[*kernel.hotLoop];
  CHECK(loop.flops > 0);
  CHECK(loop.instructions() < kernel.sass->instructions.size());
  CHECK(kernel.tile->iterations >= 1);
  size_t withLines = 0;
  for (const SassInstruction& instruction : kernel.sass->instructions) withLines += instruction.stack >= 0;
  CHECK(withLines > kernel.sass->instructions.size() / 2);
  for (const std::vector<SourcePlace>& stack : kernel.sass->stacks)
    for (const SourcePlace& place : stack) {
      INFO(place.file << ":" << place.line);
      CHECK(llvm::any_of(kernel.sources, [&](const SourceFile& file) {
        return file.name == place.file && static_cast<size_t>(place.line) <= llvm::StringRef(file.text).count('\n') + 1;
      }));
    }
}

TEST_CASE("Without a disassembler all but the machine code is there") {
  Fixture fixture("/nonexistent/nvdisasm");
  const PlanInspection plan = require(fixture.inspector().plan(graphFor("sm_80"), KernelKind::Logits));
  const KernelInspection& kernel = plan.kernels.front();
  CHECK_FALSE(kernel.sass);
  CHECK_THAT(kernel.sassProblem, Contains("/nonexistent/nvdisasm") && Contains("pip install"));
  CHECK_FALSE(kernel.ptx.empty());
  CHECK(kernel.resources.registers > 0);
  CHECK_FALSE(kernel.resources.spillInstructions);
  CHECK(plan.disassembler.empty());
}

TEST_CASE("Bytes that are no cubin are an error") {
  Fixture fixture;
  const CubinContext context{"f", require(parseTarget("sm_80")), 32, 0};
  CHECK(requireError(fixture.inspector().cubin("junk", context)).code == ErrorCode::Corrupt);
  CHECK(requireError(fixture.inspector().cubin("", context)).code == ErrorCode::Corrupt);
}

TEST_CASE("Measurements of a plan.json show in the landscape") {
  Fixture fixture("/nonexistent/nvdisasm");
  const PlanGraph graph = graphFor("sm_80");
  const std::string config = llvm::formatv("{0}", toJson(graph.choices.configs.logits)).str();
  const std::string choices = R"("choices":{"configs":{"logits":)" + config + "}}";
  const std::string json = R"({"plans":[{"run":"r","date":"2026-01-02T03:04:05Z","setting":{"device":"GPU"},)" +
                           choices + R"(,"median_ms":2.5},7,{}],"measurements":[{"subject":"logits",)" + choices +
                           R"(,"times_ms":[3,1,2]},{"subject":"logits",)" + choices +
                           R"(,"times_ms":[0.5],"failure":"wrong"},{"times_ms":{}},null]})";
  require(fixture.cache().storeDocument(workloadDigest(kWorkload), "sm_80", "plan.json", json));
  const PlanInspection plan = require(fixture.inspector().plan(graph, KernelKind::Logits));
  REQUIRE(plan.tuning.size() == 2);
  CHECK(plan.tuning.back().device == "GPU");
  REQUIRE(plan.landscapes.size() == 1);
  const auto chosen = llvm::find_if(plan.landscapes.front().points, [](const LandscapePoint& p) { return p.chosen; });
  REQUIRE(chosen != plan.landscapes.front().points.end());
  CHECK(chosen->measuredMilliseconds == 2.0);
}

TEST_CASE("File names of NVRTC become those of templates and units") {
  CHECK(sourceName("/tmp/somewhere/common/math.cuh") == "common/math.cuh");
  CHECK(sourceName("common/math.cuh") == "common/math.cuh");
  CHECK(sourceName("/tmp/lathe_logits.cu") == "lathe_logits.cu");
  CHECK(sourceName("/usr/include/math.h") == "/usr/include/math.h");
  CHECK(sourceName("/tmp/mycommon/math.cuh") == "/tmp/mycommon/math.cuh");
}

TEST_CASE("Floors name what bounds a step") {
  const PlanGraph large = graphFor("sm_90a", {.hidden = 4096, .vocab = 128256}, {.sequences = 4, .tokens = 1024});
  for (const Step& step : large.forwardBackward) {
    const StepInspection floor = inspectStep(step, large, nullptr);
    INFO(floor.step);
    for (const FloorTime& other : floor.floors) CHECK(other.milliseconds() <= floor.floorMilliseconds);
    if (step.flops > 0) {
      CHECK(floor.bound == Bound::Compute);
      // 2 x 4096 x 4096 x 128256 operations at 989 TFLOP/s.
      CHECK(floor.floorMilliseconds == Approx(4.35).epsilon(0.01));
      REQUIRE(floor.predictedMilliseconds);
      CHECK(*floor.predictedMilliseconds > floor.floorMilliseconds);
    }
    if (step.kind == KernelKind::GradLogits) CHECK(floor.bound == Bound::Memory);
    if (step.kind == KernelKind::RowMap) CHECK(floor.bound == Bound::Latency);
  }
}

TEST_CASE("A config takes the place of one product's") {
  const PlanGraph graph = graphFor("sm_80");
  const Config config{.family = Family::Simt};
  const std::string json = llvm::formatv("{0}", toJson(config)).str();
  const GemmConfigs configs = require(withConfig(graph.choices.configs, "grad_input", json));
  CHECK(configs.gradInput == config);
  CHECK(configs.logits == graph.choices.configs.logits);
  CHECK_THAT(requireError(withConfig(configs, "row_map", json)).message, Contains("row_map") && Contains("logits"));
  CHECK(requireError(withConfig(configs, "logits", "{")).code == ErrorCode::InvalidArgument);
  CHECK_THAT(requireError(findStep(graph, "nonsense")).message, Contains("nonsense") && Contains("grad_logits"));
  CHECK(require(findStep(graph, "logits")) == KernelKind::Logits);
}
