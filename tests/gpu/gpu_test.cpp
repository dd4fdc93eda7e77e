// What must hold on real hardware. Every case is skipped, saying why, where there is no GPU.
//
// With LATHE_GPU_REPORT=FILE the kernels that passed, with their errors, are written there; tests/gpu/run uses it.
// With LATHE_GPU_LARGE=1 the models of real size are run as well.
#include "tests/support/ResultChecks.h"
#include "tests/support/ValidationCases.h"

#include "generator/Workload.h"
#include "runtime/api/DeviceRun.h"

#include "llvm/Support/raw_ostream.h"

#include <catch2/catch.hpp>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>

using namespace lathe;
using lathe::test::checkClose;
using lathe::test::referenceOf;
using lathe::test::require;

namespace {

/// As plans are compiled in use.
constexpr CompilerOptions kOptions{.spillLimit = kToleratedSpill};

/// A runtime with an empty cache folder of its own; null where there is no GPU.
class GpuFixture {
public:
  GpuFixture() {
    Environment environment = Environment::fromProcess();
    environment.cacheDir = folder_;
    runtime_ =
        std::make_unique<Runtime::Implementation>(environment, kOptions, LibraryOpeners::fromEnvironment(environment));
    auto driver = runtime_->driver();
    if (!driver) {
      reason_ = llvm::toString(driver.takeError());
      return;
    }
    CUdevice device = 0;
    if ((*driver)->deviceGet(&device, 0) != CUDA_SUCCESS) {
      reason_ = "the driver sees no device";
      return;
    }
    target_ = llvm::cantFail(queryTarget(**driver, device));
    available_ = true;
  }
  ~GpuFixture() {
    runtime_.reset();
    std::filesystem::remove_all(folder_);
  }

  bool available() const {
    if (!available_) WARN("skipped: " << reason_);
    return available_;
  }
  Runtime::Implementation& runtime() { return *runtime_; }
  const Target& target() const { return target_; }

private:
  const std::string folder_ =
      (std::filesystem::temp_directory_path() / ("lathe-gpu-" + std::to_string(std::random_device{}()))).string();
  std::unique_ptr<Runtime::Implementation> runtime_;
  Target target_;
  bool available_ = false;
  std::string reason_;
};

/// The kernels that passed, for LATHE_GPU_REPORT.
class Report {
public:
  void add(const ValidationCase& value, const Target& target, const std::vector<Comparison>& comparisons) {
    llvm::json::Object errors;
    for (const Comparison& comparison : comparisons) errors[comparison.name] = comparison.error;
    for (const Specialization& specialization : specializationsOf(value, target)) {
      llvm::json::Object entry{{"source_digest", specialization.sourceDigest.text()},
                               {"kernel", toString(specialization.kind)},
                               {"arch", target.arch()},
                               {"case", value.name},
                               {"errors", llvm::json::Object(errors)}};
      if (specialization.config) entry["config"] = toString(*specialization.config);
      kernels_.push_back(std::move(entry));
    }
  }
  ~Report() {
    const char* path = std::getenv("LATHE_GPU_REPORT");
    if (!path) return;
    std::error_code code;
    llvm::raw_fd_ostream(path, code) << llvm::formatv("{0:2}\n", llvm::json::Value(std::move(kernels_)));
  }

private:
  llvm::json::Array kernels_;
};

} // namespace

TEST_CASE("Every golden case passes on the GPU in every family, strategy and call", "[gpu][golden]") {
  GpuFixture gpu;
  if (!gpu.available()) return;
  // The binary may have been built elsewhere.
  const char* folder = std::getenv("LATHE_TEST_DATA_FOLDER");
  for (const auto& file : std::filesystem::directory_iterator(folder ? folder : LATHE_TEST_DATA)) {
    if (file.path().extension() != ".safetensors") continue;
    const Case value = require(loadCase(file.path().string()));
    const LossResult want = referenceOf(value);
    for (const Family family : {Family::Simt, Family::MmaSync, Family::Wgmma}) {
      const auto configs = configsOf(family, value.workload, gpu.target(), 3);
      if (!configs) continue;
      for (const bool chunked : {false, true}) {
        DeviceRunOptions options;
        options.request.configs = configs;
        options.request.strategy = chunked ? Strategy::Chunked : Strategy::Stored;
        options.twoCalls = chunked;
        INFO(file.path().filename().string() << " " << toString(family).str() << (chunked ? " chunked" : " stored"));
        const LossResult got = require(runOnDevice(gpu.runtime(), value, options));
        checkClose(got, want, value.workload);
        if (value.expected)
          for (const Comparison& comparison : compare(got, *value.expected, value.workload)) CHECK(comparison.ok);
      }
    }
  }
}

TEST_CASE("The validated plans agree with float64", "[gpu][validate]") {
  GpuFixture gpu;
  if (!gpu.available()) return;
  const bool large = std::getenv("LATHE_GPU_LARGE") != nullptr;
  Report report;
  // The kernels are those of the table's GPU, which the test without a GPU knows as well.
  const Target target = require(parseTarget(gpu.target().arch()));
  uint64_t seed = std::random_device{}();
  for (const ValidationCase& each : validationCases(target)) {
    if (each.large && !large) continue;
    const Case value =
        makeRandomCase(each.workload, each.shape, each.scalars, ++seed, each.logitStd, each.maskedFraction);
    DeviceRunOptions options;
    options.request = each.request;
    options.upstreamScale = 2.5f;
    INFO(each.name << ", seed " << seed);
    const LossResult got = require(runOnDevice(gpu.runtime(), value, options));
    const LossResult want = referenceOf(value, 2.5);
    checkClose(got, want, each.workload);
    const std::vector<Comparison> comparisons = compare(got, want, each.workload);
    if (llvm::all_of(comparisons, [](const Comparison& comparison) { return comparison.ok; }))
      report.add(each, target, comparisons);
  }
}

TEST_CASE("Small shapes of every family, for compute-sanitizer", "[gpu][sanitize]") {
  GpuFixture gpu;
  if (!gpu.available()) return;
  for (const Family family : {Family::Simt, Family::MmaSync, Family::Wgmma})
    for (const bool everything : {false, true}) {
      Workload workload{.hidden = 72, .vocab = 300, .dtype = DType::BF16};
      workload.bias = workload.softcap = workload.gradBias = everything;
      if (everything) workload.gradWeightDType = DType::FP32;
      Scalars scalars;
      scalars.softcap = everything ? 5.0 : 0.0;
      DeviceRunOptions options;
      options.request.configs = configsOf(family, workload, gpu.target(), everything ? 1 : 6);
      REQUIRE(options.request.configs);
      options.request.strategy = everything ? Strategy::Chunked : Strategy::Stored;
      options.twoCalls = everything;
      const Case value = makeRandomCase(workload, {4, 45}, scalars, 9, 1.0, 0.4);
      INFO(toString(family).str());
      checkClose(require(runOnDevice(gpu.runtime(), value, options)), referenceOf(value), workload);
    }
}

TEST_CASE("Random workloads agree with float64", "[gpu][random]") {
  GpuFixture gpu;
  if (!gpu.available()) return;
  std::mt19937_64 random(20261201);
  const auto below = [&](uint64_t limit) { return static_cast<int64_t>(random() % limit); };
  for (int round = 0; round < 40; ++round) {
    Workload workload;
    workload.hidden = 1 + below(300);
    if (below(2)) workload.hidden = (workload.hidden + 7) / 8 * 8;
    workload.vocab = 2 + below(1500);
    workload.dtype = static_cast<DType>(below(3));
    if (workload.dtype == DType::FP32 && below(2)) workload.precision = Precision::TF32;
    workload.bias = below(2);
    workload.logitScale = below(2);
    workload.softcap = below(2);
    workload.nll = below(2);
    workload.logitMeans = below(2);
    workload.gradInput = below(4) != 0;
    workload.gradWeight = below(4) != 0;
    workload.gradBias = workload.bias && below(2);
    workload.gradWeightDType = workload.gradWeight && below(2) ? DType::FP32 : workload.dtype;
    const Shape shape{2 * (1 + below(4)), 1 + below(200)};
    Scalars scalars{.beta = 0.1 + 0.1 * below(20), .gamma = 0.5, .labelSmoothing = 0.1 * below(3), .alpha = 1.0};
    scalars.softcap = workload.softcap ? 4.0 + below(20) : 0.0;
    scalars.logitScale = workload.logitScale ? 0.5 : 1.0;
    const Case value = makeRandomCase(workload, shape, scalars, random(), 0.5 + below(6), 0.25 * below(4));

    for (const Family family : {Family::Simt, Family::MmaSync, Family::Wgmma}) {
      DeviceRunOptions options;
      options.request.configs = configsOf(family, workload, gpu.target(), random() % 1000);
      if (!options.request.configs) continue;
      if (below(2)) {
        options.request.strategy = Strategy::Chunked;
        options.request.chunkPairs = 1 + below(shape.pairs());
      }
      options.twoCalls = below(2);
      INFO("round " << round << " " << canonicalJson(workload) << " shape " << shape.sequences << "x" << shape.tokens
                    << " " << toString(options.request.configs->logits) << " / "
                    << toString(options.request.configs->gradInput) << " / "
                    << toString(options.request.configs->gradWeight));
      checkClose(require(runOnDevice(gpu.runtime(), value, options)), referenceOf(value), workload);
    }
  }
}

TEST_CASE("Bad targets, empty sequences and a batch without a valid token are survived", "[gpu][edge]") {
  GpuFixture gpu;
  if (!gpu.available()) return;
  for (const Family family : {Family::Simt, Family::MmaSync, Family::Wgmma}) {
    Workload workload{.hidden = 64, .vocab = 500, .dtype = DType::BF16};
    DeviceRunOptions options;
    options.request.configs = configsOf(family, workload, gpu.target(), 0);
    if (!options.request.configs) continue;
    INFO(toString(family).str());
    Case value = makeRandomCase(workload, {4, 33}, {}, 7, 1.0, 0.3);

    Case bad = value;
    bad.target[2 * 33 + 5] = 500;
    bad.target[3 * 33 + 1] = -7;
    const LossResult withBad = require(runOnDevice(gpu.runtime(), bad, options));
    CHECK(std::isnan(withBad.loss));
    CHECK(withBad.diagnostics.badTargets == 2);
    CHECK(withBad.diagnostics.firstBadSequence == 2);
    CHECK(withBad.diagnostics.firstBadToken == 5);

    Case empty = value;
    for (int t = 0; t < 33; ++t) empty.target[33 + t] = -100;
    checkClose(require(runOnDevice(gpu.runtime(), empty, options)), referenceOf(empty), workload);

    Case nothing = value;
    for (int64_t& target : nothing.target) target = -100;
    checkClose(require(runOnDevice(gpu.runtime(), nothing, options)), referenceOf(nothing), workload);
  }
}

TEST_CASE("Results are the same bits in every run", "[gpu][deterministic]") {
  GpuFixture gpu;
  if (!gpu.available()) return;
  for (const Family family : {Family::Simt, Family::MmaSync, Family::Wgmma}) {
    Workload workload{.hidden = 256, .vocab = 3000, .dtype = DType::BF16, .bias = true, .gradBias = true};
    DeviceRunOptions options;
    options.request.configs = configsOf(family, workload, gpu.target(), 0);
    if (!options.request.configs) continue;
    const Case value = makeRandomCase(workload, {4, 200}, {}, 11, 2.0, 0.4);
    const LossResult first = require(runOnDevice(gpu.runtime(), value, options));
    for (int i = 0; i < 3; ++i) {
      const LossResult again = require(runOnDevice(gpu.runtime(), value, options));
      CHECK(again.loss == first.loss);
      CHECK(again.gradInput == first.gradInput);
      CHECK(again.gradWeight == first.gradWeight);
      CHECK(again.gradBias == first.gradBias);
    }
  }
}

TEST_CASE("A run accumulates into the weight and bias gradients when asked", "[gpu][accumulate]") {
  GpuFixture gpu;
  if (!gpu.available()) return;
  Workload workload{
      .hidden = 72, .vocab = 300, .dtype = DType::BF16, .bias = true, .gradBias = true, .gradWeightDType = DType::FP32};
  const Case value = makeRandomCase(workload, {4, 40}, {}, 3, 1.0, 0.3);
  for (const Family family : {Family::Simt, Family::MmaSync, Family::Wgmma}) {
    DeviceRunOptions options;
    options.request.configs = configsOf(family, workload, gpu.target(), 1);
    if (!options.request.configs) continue;
    DeviceCase device = require(DeviceCase::upload(gpu.runtime(), value, options));
    require(device.run());
    device.arguments().accumulate = true;
    require(device.run());
    LossResult want = referenceOf(value);
    for (double& gradient : want.gradWeight) gradient *= 2;
    for (double& gradient : want.gradBias) gradient *= 2;
    checkClose(require(device.download()), want, workload);
  }
}

TEST_CASE("A run can be captured in a graph, and the graph replayed", "[gpu][graph]") {
  GpuFixture gpu;
  if (!gpu.available()) return;
  Workload workload{.hidden = 128, .vocab = 1000, .dtype = DType::BF16};
  const Case value = makeRandomCase(workload, {4, 100}, {}, 5, 1.0, 0.4);
  DeviceCase device = require(DeviceCase::upload(gpu.runtime(), value, {}));
  const Driver& driver = device.plan().device().driver();
  const ContextGuard guard = require(ContextGuard::enter(driver, device.plan().device().context()));
  const CUstream stream = device.stream().get();
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  REQUIRE(driver.streamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  require(device.run());
  REQUIRE(driver.streamEndCapture(stream, &graph) == CUDA_SUCCESS);
  REQUIRE(driver.graphInstantiateWithFlags(&executable, graph, 0) == CUDA_SUCCESS);
  for (int i = 0; i < 3; ++i) REQUIRE(driver.graphLaunch(executable, stream) == CUDA_SUCCESS);
  checkClose(require(device.download()), referenceOf(value), workload);
  driver.graphExecDestroy(executable);
  driver.graphDestroy(graph);
}

TEST_CASE("Threads share a plan, each with its own stream and workspace", "[gpu][threads]") {
  GpuFixture gpu;
  if (!gpu.available()) return;
  Workload workload{.hidden = 128, .vocab = 1000, .dtype = DType::BF16};
  std::vector<Case> cases;
  for (uint64_t i = 0; i < 4; ++i) cases.push_back(makeRandomCase(workload, {4, 100}, {}, i, 1.0, 0.4));
  std::vector<LossResult> results(cases.size());
  std::vector<std::string> errors(cases.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < cases.size(); ++i)
    threads.emplace_back([&, i] {
      for (int round = 0; round < 5; ++round) {
        llvm::Expected<LossResult> result = runOnDevice(gpu.runtime(), cases[i], {});
        if (result)
          results[i] = std::move(*result);
        else
          errors[i] = llvm::toString(result.takeError());
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < cases.size(); ++i) {
    CHECK(errors[i].empty());
    checkClose(results[i], referenceOf(cases[i]), workload);
  }
}

TEST_CASE("First use, warm use and a run take as long as they should", "[gpu][time]") {
  GpuFixture gpu;
  if (!gpu.available()) return;
  const auto milliseconds = [](auto body) {
    const auto start = std::chrono::steady_clock::now();
    body();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  };
  const Workload workload{.hidden = 4096, .vocab = 128256, .dtype = DType::BF16};
  const Shape shape{4, 1024};
  // The context and NVRTC itself are not what is measured.
  require(gpu.runtime().plan({.hidden = 64, .vocab = 100, .dtype = DType::BF16}, {2, 8}, {}, std::nullopt));
  const double cold = milliseconds([&] { require(gpu.runtime().plan(workload, shape, {}, std::nullopt)); });
  const double memory = milliseconds([&] {
                          for (int i = 0; i < 100; ++i) require(gpu.runtime().plan(workload, shape, {}, std::nullopt));
                        }) /
                        100;
  const Environment environment = gpu.runtime().environment();
  // The fastest of several: what a busy file system adds is not what is measured.
  double warm = 1e9;
  for (int i = 0; i < 5; ++i) {
    Runtime::Implementation fresh(environment, kOptions, LibraryOpeners::fromEnvironment(environment));
    require(fresh.driver());
    require(fresh.store().compiler());
    const double elapsed = milliseconds([&] { require(fresh.plan(workload, shape, {}, std::nullopt)); });
    WARN("plan from disk, attempt " << i << ": " << elapsed << " ms");
    warm = std::min(warm, elapsed);
  }

  const Case value = makeRandomCase({.hidden = 64, .vocab = 512, .dtype = DType::BF16}, {4, 16}, {}, 1, 1.0, 0.2);
  const DeviceCase device = require(DeviceCase::upload(gpu.runtime(), value, {}));
  require(device.run());
  require(device.stream().synchronize());
  const double run = milliseconds([&] {
                       for (int i = 0; i < 50; ++i) require(device.run());
                     }) /
                     50;
  WARN("plan: cold " << cold << " ms, from disk " << warm << " ms, from memory " << memory * 1000
                     << " us; host time of a run " << run * 1000 << " us");
  CHECK(cold < 3000);
  CHECK(warm < 30);
  CHECK(memory * 1000 < 20);
}
