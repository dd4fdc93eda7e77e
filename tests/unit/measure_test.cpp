//===- tests/unit/measure_test.cpp - Times, on a fake clock -----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tests/support/Failures.h"
#include "tests/support/FakeDriver.h"
#include "tuning/FamilyConfigs.h"
#include "tuning/Measure.h"

#include <catch2/catch.hpp>

using namespace lathe;
using namespace lathe::test;

namespace {

constexpr Shape kShape{.sequences = 4, .tokens = 8};
const Workload kWorkload{
    .hidden = 64, .vocab = 300, .dtype = DType::FP32, .gradBias = false, .gradWeightDType = DType::FP32};

/// A runtime on the fake GPU, with the real compiler and without a cache.
Runtime::Implementation makeRuntime(const FakeDriver& fake) {
  Environment environment = Environment::fromProcess();
  environment.cacheDir = std::nullopt;
  environment.cachePath.clear();
  LibraryOpeners openers = LibraryOpeners::fromEnvironment(environment);
  openers.driver = [&fake]() -> llvm::Expected<Driver> { return fake.table(); };
  return {environment, CompilerOptions{.threads = 0, .spillLimit = kAnySpill}, openers};
}

Case makeCase() {
  return makeRandomCase(kWorkload, kShape, Scalars{}, /*seed=*/1, /*logitStd=*/1.0, /*maskedFraction=*/0.25);
}

} // namespace

TEST_CASE("a summary holds the median and the fifths of the times") {
  const Timing timing = summarize({5, 1, 4, 2, 3, 6});
  CHECK(timing.median == Approx(3.5));
  CHECK(timing.p20 == Approx(2));
  CHECK(timing.p80 == Approx(5));
  CHECK(timing.repetitions == 6);
  CHECK(summarize({7}).median == 7);
  CHECK(summarize({7}).p80 == 7);
  CHECK(summarize({}).repetitions == 0);
}

TEST_CASE("a measurement times the whole plan and each of its steps") {
  FakeDriver fake;
  // The logits take 4 ms, all else 1 ms.
  fake.setLaunchTime([](const FakeLaunch& launch) { return launch.kernel == "lathe_logits" ? 4.0 : 1.0; });
  Runtime::Implementation runtime = makeRuntime(fake);
  const Case value = makeCase();
  const bool twoCalls = GENERATE(false, true);
  const DeviceCase uploaded =
      require(DeviceCase::upload(runtime, value, {.request = {}, .device = 0, .twoCalls = twoCalls}));
  fake.forgetCalls();
  const std::string before = fake.leaks();
  const PlanTiming timing = require(measurePlan(uploaded, twoCalls, 5));
  CHECK(fake.leaks() == before);

  const std::vector<Step> steps = stepsOfRun(uploaded.plan().graph(), twoCalls);
  REQUIRE(timing.steps.size() == steps.size());
  REQUIRE(timing.stepTimings.size() == steps.size());
  double sum = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    CHECK(timing.steps[i].kind == steps[i].kind);
    CHECK(timing.stepTimings[i].repetitions == 5);
    CHECK(timing.stepTimings[i].median == Approx(steps[i].kind == KernelKind::Logits ? 4.0 : 1.0).epsilon(0.01));
    sum += timing.stepTimings[i].median;
  }
  CHECK(timing.whole.repetitions == 5);
  CHECK(timing.whole.median == Approx(sum).epsilon(0.01));
  // Before each of the runs, warm-ups included, the L2 cache is flushed.
  CHECK(fake.callCount("cuMemsetD8Async") == 2 * (5 + 1));
  CHECK(fake.callCount("cuLaunchKernel") + fake.callCount("cuLaunchKernelEx") == 2 * (5 + 1) * steps.size());
}

TEST_CASE("a measurement that fails says so and frees what it took") {
  FakeDriver fake;
  Runtime::Implementation runtime = makeRuntime(fake);
  const Case value = makeCase();
  const DeviceCase uploaded = require(DeviceCase::upload(runtime, value, {}));
  const std::string before = fake.leaks();
  CHECK_THAT(requireError(measurePlan(uploaded, false, 0)).message, Catch::Contains("at least 1"));
  for (const char* call : {"cuMemAlloc", "cuEventCreate", "cuEventRecord", "cuMemsetD8Async", "cuEventSynchronize",
                           "cuEventElapsedTime"}) {
    CAPTURE(call);
    fake.failNext(call, CUDA_ERROR_OUT_OF_MEMORY);
    const ErrorSummary summary = requireError(measurePlan(uploaded, false, 2));
    CHECK(summary.code == ErrorCode::Driver);
    CHECK_THAT(summary.message, Catch::Contains(call));
    CHECK(fake.leaks() == before);
  }
}

TEST_CASE("configs of a family are legal, or the error names the product") {
  const Target target = require(parseTarget("sm_80"));
  Workload workload = kWorkload;
  const GemmConfigs simt = require(chooseConfigsOf(Family::Simt, workload, target, kShape.rows()));
  for (const Gemm gemm : {Gemm::Logits, Gemm::GradInput, Gemm::GradWeight}) {
    CHECK(simt.of(gemm).family == Family::Simt);
    require(checkConfig(simt.of(gemm), gemm, workload, target));
  }
  const ErrorSummary summary = requireError(chooseConfigsOf(Family::MmaSync, workload, target, kShape.rows()));
  CHECK(summary.code == ErrorCode::Unsupported);
  CHECK_THAT(summary.message, Catch::Contains("mma_sync") && Catch::Contains("logits on sm_80"));
}
