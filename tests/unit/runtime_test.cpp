//===- tests/unit/runtime_test.cpp - Making plans and keeping them --------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/api/PlanDescription.h"
#include "tests/support/CacheSamples.h"
#include "tests/support/FaultyNvrtc.h"
#include "tests/support/RuntimeSamples.h"

#include "generator/Workload.h"
#include "runtime/cache/TuningFile.h"

#include <chrono>

using namespace lathe;
using namespace lathe::test;
using Catch::Matchers::Contains;

namespace {

using PlanPointer = Runtime::Implementation::PlanPointer;

PlanPointer smallPlan(Runtime::Implementation& runtime, const PlanRequest& request = {},
                      std::optional<int> device = std::nullopt) {
  return require(runtime.plan(smallWorkload(), kSmallShape, request, device));
}

/// Seconds that one call of `body` takes: the least of some thousands, so that a busy machine does not matter.
template <class Body> double secondsOf(Body body) {
  double least = 1e9;
  for (int i = 0; i < 2000; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    body();
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return least;
}

/// What each call of making and running a plan must lead to when it fails.
enum class Outcome : uint8_t { Error, Success };

/// A failing pop or unload has nobody to tell; all else is an error.
Outcome outcomeOf(llvm::StringRef call) {
  return call == "cuCtxPopCurrent" || call == "cuModuleUnload" ? Outcome::Success : Outcome::Error;
}

/// The name by which a message speaks of `call`.
std::string nameInMessages(llvm::StringRef call) {
  return call == "cuLaunchKernel" ? "launching lathe_" : call.str();
}

} // namespace

TEST_CASE("the same arguments give the same plan, others another") {
  FakeDriver fake;
  const auto runtime = makeRuntime(fake);
  const PlanPointer plan = smallPlan(*runtime);
  CHECK(smallPlan(*runtime) == plan);
  CHECK(smallPlan(*runtime, {}, 0) == plan);
  CHECK(smallPlan(*runtime, {.strategy = Strategy::Chunked, .chunkPairs = 1}) != plan);
  CHECK(require(runtime->plan(smallWorkload(), {.sequences = 4, .tokens = 8}, {}, std::nullopt)) != plan);
  Workload other = smallWorkload();
  other.nll = false;
  CHECK(require(runtime->plan(other, kSmallShape, {}, std::nullopt)) != plan);
}

TEST_CASE("plans of one workload share their loaded kernels") {
  FakeDriver fake;
  const auto runtime = makeRuntime(fake);
  const PlanPointer plan = smallPlan(*runtime);
  fake.forgetCalls();
  const PlanPointer shorter = require(runtime->plan(smallWorkload(), {.sequences = 6, .tokens = 7}, {}, std::nullopt));
  CHECK(shorter != plan);
  CHECK(shorter->plan.kernels()[0] == plan->plan.kernels()[0]);
  CHECK(fake.callCount("cuModuleLoadData") == 0);
}

TEST_CASE("a plan made before is found in microseconds") {
  FakeDriver fake;
  const auto runtime = makeRuntime(fake);
  const PlanPointer plan = smallPlan(*runtime);
  fake.forgetCalls();
  const double seconds = secondsOf([&] { smallPlan(*runtime); });
  // About 2 us; a debug build with sanitizers takes ten times as long.
  CHECK(seconds < 200e-6);
  CHECK(fake.callCount("cuCtxGetCurrent") == fake.calls().size());
}

TEST_CASE("a run costs the host a few microseconds a launch") {
  FakeDriver fake;
  const auto runtime = makeRuntime(fake);
  const PlanPointer plan = smallPlan(*runtime);
  const RunArguments run = addressesFor(plan->plan.graph());
  const ContextGuard guard = require(ContextGuard::enter(plan->plan.device().driver(), plan->plan.device().context()));
  const double seconds = secondsOf([&] { require(plan->plan.run(run, nullptr)); });
  const double steps = static_cast<double>(plan->plan.graph().forwardBackward.size());
  WARN("a run takes the host " << seconds * 1e6 << " us with the fake driver, " << seconds / steps * 1e6
                               << " us a launch");
  CHECK(seconds / steps < 100e-6);
}

TEST_CASE("a plan outlives its runtime") {
  FakeDriver fake;
  auto runtime = makeRuntime(fake);
  PlanPointer plan = smallPlan(*runtime);
  runtime.reset();
  require(plan->plan.run(addressesFor(plan->plan.graph()), nullptr));
  CHECK(fake.launches().size() == plan->plan.graph().forwardBackward.size());
  CHECK(toJson(plan->plan.graph(), {}).getAsObject()->getString("workload_digest") ==
        workloadDigest(smallWorkload()).text());
  CHECK(fake.leaks() != "");
  plan.reset();
  CHECK(fake.leaks() == "");
}

TEST_CASE("each device has its own plan and context") {
  FakeDriver fake;
  fake.setDeviceCount(3);
  const auto runtime = makeRuntime(fake);
  const PlanPointer first = smallPlan(*runtime);
  const PlanPointer third = smallPlan(*runtime, {}, 2);
  CHECK(first != third);
  CHECK(first->plan.device().ordinal() == 0);
  CHECK(third->plan.device().ordinal() == 2);
  CHECK(first->plan.device().context() != third->plan.device().context());
  CHECK(first->plan.kernels()[0] != third->plan.kernels()[0]);
  // Compiled once: both hold the same cubin.
  CHECK(first->plan.kernels()[0]->pointer() == third->plan.kernels()[0]->pointer());
  CHECK(smallPlan(*runtime, {}, 2) == third);
}

TEST_CASE("a plan is made in the current context unless another device is asked for") {
  FakeDriver fake;
  fake.setDeviceCount(2);
  const Driver driver = fake.table();
  require(initialize(driver));
  {
    const PrimaryContext second = require(PrimaryContext::retain(driver, 1));
    const auto runtime = makeRuntime(fake);
    const PlanPointer elsewhere = smallPlan(*runtime);
    CHECK(elsewhere->plan.device().ordinal() == 0);
    const ContextGuard guard = require(ContextGuard::enter(driver, second.get()));
    const PlanPointer here = smallPlan(*runtime);
    CHECK(here->plan.device().context() == second.get());
    CHECK(here->plan.device().ordinal() == 1);
    CHECK(smallPlan(*runtime, {}, 0) == elsewhere);
    CHECK(smallPlan(*runtime, {}, 1) == here);
  }
  CHECK(fake.leaks() == "");
}

TEST_CASE("a device that is not there is named with the number of devices") {
  FakeDriver fake;
  fake.setDeviceCount(2);
  const auto runtime = makeRuntime(fake);
  for (const int ordinal : {-1, 2, 1000}) {
    const ErrorSummary error = requireError(runtime->plan(smallWorkload(), kSmallShape, {}, ordinal));
    CHECK(error.code == ErrorCode::InvalidArgument);
    CHECK(error.message ==
          "there is no device " + std::to_string(ordinal) + ": the driver sees 2 (ordinals count from 0)");
  }
}

TEST_CASE("a machine without a driver, without a device or with an old driver gives a clear error") {
  SECTION("no driver") {
    Runtime::Implementation runtime(quietEnvironment(std::nullopt), {},
                                    {[] { return openDriver("/nonexistent/libcuda.so.1"); },
                                     []() -> llvm::Expected<Nvrtc> { return realNvrtc(); }});
    const ErrorSummary error = requireError(runtime.plan(smallWorkload(), kSmallShape, {}, std::nullopt));
    CHECK(error.code == ErrorCode::MissingLibrary);
    CHECK_THAT(error.message, Contains("/nonexistent/libcuda.so.1"));
  }
  SECTION("no device") {
    FakeDriver fake;
    fake.setDeviceCount(0);
    const auto runtime = makeRuntime(fake);
    CHECK_THAT(requireError(runtime->plan(smallWorkload(), kSmallShape, {}, std::nullopt)).message,
               Contains("CUDA_ERROR_NO_DEVICE"));
  }
  SECTION("an old driver") {
    FakeDriver fake;
    fake.setDriverVersion(11080);
    const auto runtime = makeRuntime(fake);
    const ErrorSummary error = requireError(runtime->plan(smallWorkload(), kSmallShape, {}, std::nullopt));
    CHECK(error.code == ErrorCode::Unsupported);
    CHECK_THAT(error.message, Contains("update the NVIDIA driver"));
  }
}

TEST_CASE("a wrong workload or shape is refused before anything is loaded") {
  FakeDriver fake;
  const auto runtime = makeRuntime(fake);
  Workload workload = smallWorkload();
  workload.vocab = 1;
  CHECK(requireError(runtime->plan(workload, kSmallShape, {}, std::nullopt)).code == ErrorCode::InvalidWorkload);
  CHECK_THAT(requireError(runtime->plan(smallWorkload(), {.sequences = 3, .tokens = 8}, {}, std::nullopt)).message,
             Contains("sequences is 3"));
  const ErrorSummary limit =
      requireError(runtime->plan(smallWorkload(), kSmallShape, {.workspaceLimit = 1000}, std::nullopt));
  CHECK(limit.code == ErrorCode::Workspace);
  CHECK(fake.callCount("cuModuleLoadData") == 0);
}

TEST_CASE("without NVRTC and with a warm cache plans are made and run") {
  FakeDriver fake;
  smallPlan(*makeRuntime(fake));
  LibraryOpeners openers = openersOf(fake);
  openers.nvrtc = [] { return openNvrtc("/nonexistent/libnvrtc.so", {}); };
  Runtime::Implementation runtime(quietEnvironment(sharedCache()), {}, openers);
  const PlanPointer plan = smallPlan(runtime);
  require(plan->plan.run(addressesFor(plan->plan.graph()), nullptr));

  Runtime::Implementation cold(quietEnvironment(std::nullopt), {}, openers);
  const ErrorSummary error = requireError(cold.plan(smallWorkload(), kSmallShape, {}, std::nullopt));
  CHECK(error.code == ErrorCode::MissingLibrary);
  CHECK_THAT(error.message, Contains("/nonexistent/libnvrtc.so"));
}

TEST_CASE("the description of a plan names every step, region and kernel") {
  FakeDriver fake;
  const auto runtime = makeRuntime(fake);
  const Plan plan(smallPlan(*runtime));
  const llvm::json::Value json = require(llvm::json::parse(plan.describe()));
  const llvm::json::Object& object = *json.getAsObject();
  const PlanGraph& graph = plan.implementation().plan.graph();
  CHECK(object.getString("workload_digest") == workloadDigest(smallWorkload()).text());
  CHECK(object.getInteger("workspace_bytes") == graph.workspaceBytes);
  CHECK(object.getArray("forward")->size() == graph.forward.size());
  CHECK(object.getArray("backward")->size() == graph.backward.size());
  CHECK(object.getArray("forward_backward")->size() == graph.forwardBackward.size());
  CHECK(object.getArray("workspace")->size() == graph.regions.size());
  CHECK(object.getArray("kernels")->size() == kKernelKindCount);
  for (const llvm::json::Value& kernel : *object.getArray("kernels"))
    CHECK(kernel.getAsObject()->getInteger("registers").value_or(0) > 0);
}

TEST_CASE("whichever call of the driver fails while a plan is made, the error names it and the next attempt succeeds") {
  std::vector<std::string> calls;
  {
    FakeDriver fake;
    smallPlan(*makeRuntime(fake));
    fake.forgetCalls();
    const auto runtime = makeRuntime(fake);
    smallPlan(*runtime);
    calls = fake.calls();
  }
  REQUIRE(calls.size() > 30);
  for (size_t i = 0; i < calls.size(); ++i) {
    INFO("call " << i << ", " << calls[i]);
    FakeDriver fake;
    auto runtime = makeRuntime(fake);
    fake.failCall(i, CUDA_ERROR_UNKNOWN);
    llvm::Expected<PlanPointer> plan = runtime->plan(smallWorkload(), kSmallShape, {}, std::nullopt);
    if (outcomeOf(calls[i]) == Outcome::Success) {
      require(std::move(plan));
    } else {
      const ErrorSummary error = requireError(std::move(plan));
      CHECK(error.code == ErrorCode::Driver);
      CHECK_THAT(error.message, Contains(calls[i]) && Contains("CUDA_ERROR_UNKNOWN"));
    }
    require(runtime->plan(smallWorkload(), kSmallShape, {}, std::nullopt));
    runtime.reset();
    CHECK(fake.leaks() == "");
  }
}

TEST_CASE("whichever call of the driver fails while a plan runs, the error names it and the next run succeeds") {
  FakeDriver fake;
  auto runtime = makeRuntime(fake);
  PlanPointer plan = smallPlan(*runtime, {.strategy = Strategy::Chunked, .chunkPairs = 2});
  const RunArguments run = addressesFor(plan->plan.graph());
  fake.forgetCalls();
  require(plan->plan.run(run, nullptr));
  const std::vector<std::string> calls = fake.calls();
  CHECK(calls.size() == plan->plan.graph().forwardBackward.size() + 3);
  const std::string alive = fake.leaks();
  for (size_t i = 0; i < calls.size(); ++i) {
    INFO("call " << i << ", " << calls[i]);
    fake.forgetCalls();
    fake.failCall(i, CUDA_ERROR_LAUNCH_FAILED);
    llvm::Error failure = plan->plan.run(run, nullptr);
    if (outcomeOf(calls[i]) == Outcome::Success) {
      require(std::move(failure));
    } else {
      const ErrorSummary error = requireError(std::move(failure));
      CHECK(error.code == ErrorCode::Driver);
      CHECK_THAT(error.message, Contains(nameInMessages(calls[i])) && Contains("CUDA_ERROR_LAUNCH_FAILED"));
    }
    require(plan->plan.run(run, nullptr));
    CHECK(fake.leaks() == alive);
  }
  plan.reset();
  runtime.reset();
  CHECK(fake.leaks() == "");
}

TEST_CASE("whichever call of the driver fails while a plan is dropped, nothing leaks") {
  size_t count = 0;
  {
    FakeDriver fake;
    auto runtime = makeRuntime(fake);
    smallPlan(*runtime);
    fake.forgetCalls();
    runtime.reset();
    count = fake.calls().size();
  }
  CHECK(count == 3 * kKernelKindCount + 1);
  for (size_t i = 0; i < count; ++i) {
    FakeDriver fake;
    auto runtime = makeRuntime(fake);
    smallPlan(*runtime);
    fake.forgetCalls();
    fake.failCall(i, CUDA_ERROR_UNKNOWN);
    const std::string failing = [&] {
      runtime.reset();
      return fake.calls()[i];
    }();
    INFO("call " << i << ", " << failing);
    // A context that cannot be entered keeps its module, as it would when it is gone.
    CHECK(fake.leaks() == (failing == "cuCtxPushCurrent" ? "1 module(s)" : ""));
  }
}

TEST_CASE("a fault of NVRTC while a plan is made is a clean error, and the next attempt succeeds") {
  for (const llvm::StringRef name : {"nvrtcVersion", "nvrtcCreateProgram", "nvrtcCompileProgram", "nvrtcGetCUBIN"}) {
    INFO(name.str());
    FakeDriver fake;
    FaultyNvrtc nvrtc(realNvrtc());
    const ScratchFolder folder;
    LibraryOpeners openers = openersOf(fake);
    openers.nvrtc = [&]() -> llvm::Expected<Nvrtc> { return nvrtc.table(); };
    Workload workload = smallWorkload();
    workload.gradInput = workload.gradWeight = workload.gradBias = false;
    auto runtime =
        std::make_unique<Runtime::Implementation>(quietEnvironment(folder.path()), CompilerOptions{}, openers);
    nvrtc.failNext(name, NVRTC_ERROR_INTERNAL_ERROR, name == "nvrtcVersion" ? 0 : 2);
    const ErrorSummary error = requireError(runtime->plan(workload, kSmallShape, {}, std::nullopt));
    CHECK_THAT(error.message, Contains("NVRTC_ERROR_INTERNAL_ERROR") || Contains(name.str()));
    CHECK(nvrtc.livePrograms() == 0);
    // The kernels that were compiled are in the cache: only the failed one is compiled again.
    const size_t before = nvrtc.callCount("nvrtcCompileProgram");
    require(runtime->plan(workload, kSmallShape, {}, std::nullopt));
    CHECK(nvrtc.callCount("nvrtcCompileProgram") - before == (name == "nvrtcVersion" ? 4 : 1));
    CHECK(nvrtc.livePrograms() == 0);
    runtime.reset();
    CHECK(fake.leaks() == "");
  }
}

TEST_CASE("an architecture that NVRTC does not know is said to be unsupported") {
  FakeDriver fake;
  fake.setAttribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 6);
  fake.setAttribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
  const auto runtime = makeRuntime(fake);
  const ErrorSummary error = requireError(runtime->plan(smallWorkload(), kSmallShape, {}, std::nullopt));
  CHECK(error.code == ErrorCode::Unsupported);
  CHECK_THAT(error.message, Contains("6.0") || Contains("sm_60"));
}

TEST_CASE("the public API throws what went wrong") {
  Runtime runtime({.cacheDir = sharedCache(), .nvrtcPath = "/nonexistent/libnvrtc.so"});
  try {
    runtime.plan({.hidden = 0, .vocab = 0}, {});
    FAIL("an exception was expected");
  } catch (const Exception& exception) {
    CHECK(exception.code() != ErrorCode::Internal);
    CHECK(std::string(exception.what()).size() > 20);
  }
}

TEST_CASE("the public API makes a plan and runs it on the implementation's device") {
  FakeDriver fake;
  const auto runtime = makeRuntime(fake);
  const Plan plan(smallPlan(*runtime));
  CHECK(plan.workload() == smallWorkload());
  CHECK(plan.shape() == kSmallShape);
  CHECK(plan.workspaceBytes() == plan.implementation().plan.graph().workspaceBytes);
  RunArguments run = addressesFor(plan.implementation().plan.graph());
  plan.forward(run, nullptr);
  plan.backward(run, nullptr);
  plan.run(run, nullptr);
  const PlanGraph& graph = plan.implementation().plan.graph();
  CHECK(fake.launches().size() == graph.forward.size() + graph.backward.size() + graph.forwardBackward.size());
  run.workspaceBytes = 0;
  CHECK_THROWS_AS(plan.run(run, nullptr), Exception);
}

namespace {

/// A result for the small workload and shape on the fake GPU, whose logits run on the other of the two simt tiles.
TunedPlan tunedFor(Runtime::Implementation& runtime) {
  const std::shared_ptr<const DeviceContext> device = require(runtime.openDevice(std::nullopt));
  TunedPlan tuned;
  tuned.run = "0123456789abcdef";
  tuned.setting = require(runtime.settingOf(*device));
  tuned.shape = kSmallShape;
  tuned.choices = {Strategy::Chunked, 2, require(chooseConfigs(smallWorkload(), device->target(), kSmallShape.rows()))};
  for (const Config& config : searchSpace(Gemm::Logits, smallWorkload(), device->target()))
    if (config.blockM != tuned.choices.configs.logits.blockM) tuned.choices.configs.logits = config;
  tuned.median = tuned.p20 = tuned.p80 = 1;
  tuned.untunedMedian = 2;
  tuned.date = "2026-01-02T03:04:05Z";
  tuned.latheVersion = "0.1.0";
  return tuned;
}

/// Keeps `tuned` as a tuning run would.
void keepTuned(const std::string& cache, const Target& target, const TunedPlan& tuned) {
  TuningDocument document;
  document.plans = {tuned};
  require(TuningFile(entryFolder(cache, workloadDigest(smallWorkload()), target.arch())).fold(document));
}

} // namespace

TEST_CASE("a plan is built from the tuning result for its device and bucket, in the cache or a layer") {
  FakeDriver fake;
  const ScratchFolder cache;
  const bool inLayer = GENERATE(false, true);
  Environment environment = quietEnvironment(inLayer ? sharedCache() : cache.path());
  if (inLayer) environment.cachePath = {cache.path()};
  Runtime::Implementation runtime(environment, CompilerOptions{.threads = 0, .spillLimit = kAnySpill}, openersOf(fake));
  const Target target = require(runtime.openDevice(std::nullopt))->target();
  const TunedPlan tuned = tunedFor(runtime);
  const PlanPointer untuned = smallPlan(runtime);
  CHECK_FALSE(untuned->tuned);
  keepTuned(cache.path(), target, tuned);
  CHECK(smallPlan(runtime) == untuned);
  runtime.forgetPlans();

  const PlanPointer plan = smallPlan(runtime);
  REQUIRE(plan->tuned);
  CHECK_FALSE(plan->tuned->stale);
  CHECK(plan->plan.graph().choices == tuned.choices);
  // Asked for a strategy or a limit, only the configs are taken.
  const PlanPointer stored = smallPlan(runtime, {.strategy = Strategy::Stored});
  CHECK(stored->plan.graph().choices.strategy == Strategy::Stored);
  CHECK(stored->plan.graph().choices.configs == tuned.choices.configs);
  const PlanPointer limited = smallPlan(runtime, {.workspaceLimit = int64_t(1) << 30});
  CHECK(limited->plan.graph().choices.strategy == Strategy::Stored);
  CHECK(limited->plan.graph().choices.configs == tuned.choices.configs);
  // Chunks as large as the batch are no chunks; another bucket has no result.
  const PlanPointer smaller = require(runtime.plan(smallWorkload(), {4, 12}, {}, std::nullopt));
  CHECK(smaller->plan.graph().choices.strategy == Strategy::Stored);
  CHECK(smaller->tuned);
  CHECK_FALSE(require(runtime.plan(smallWorkload(), {4, 8}, {}, std::nullopt))->tuned);
  // Configs that are asked for are not replaced.
  CHECK_FALSE(smallPlan(runtime, {.configs = untuned->plan.graph().choices.configs})->tuned);
}

TEST_CASE("a result of another driver is used and marked stale, an illegal or damaged one is not used") {
  FakeDriver fake;
  const ScratchFolder cache;
  Runtime::Implementation runtime(quietEnvironment(cache.path()),
                                  CompilerOptions{.threads = 0, .spillLimit = kAnySpill}, openersOf(fake));
  const Target target = require(runtime.openDevice(std::nullopt))->target();
  TunedPlan tuned = tunedFor(runtime);
  tuned.setting.driver = "11.9";
  keepTuned(cache.path(), target, tuned);
  const PlanPointer plan = smallPlan(runtime);
  REQUIRE(plan->tuned);
  CHECK(plan->tuned->stale);
  CHECK(toJson(*plan->tuned).getAsObject()->getBoolean("stale") == true);

  tuned.date = "2027-01-01T00:00:00Z";
  tuned.choices.configs.gradWeight.stages = 16;
  keepTuned(cache.path(), target, tuned);
  runtime.forgetPlans();
  CHECK_FALSE(smallPlan(runtime)->tuned);

  writeAll(entryFolder(cache.path(), workloadDigest(smallWorkload()), target.arch()) + "/plan.json", "{");
  runtime.forgetPlans();
  CHECK_FALSE(smallPlan(runtime)->tuned);
}
