//===- tests/unit/measure_test.cpp - Times, on a fake clock -----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tests/support/Failures.h"
#include "tests/support/FakeDriver.h"
#include "tuning/DeviceMeasurer.h"
#include "tuning/FamilyConfigs.h"
#include "tuning/Measure.h"

#include "llvm/ADT/STLExtras.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>

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

TEST_CASE("the steps of some kernels are timed inside of whole runs") {
  FakeDriver fake;
  fake.setLaunchTime([](const FakeLaunch& launch) { return launch.kernel == "lathe_logits" ? 4.0 : 1.0; });
  Runtime::Implementation runtime = makeRuntime(fake);
  const Case value = makeCase();
  const DeviceCase uploaded = require(DeviceCase::upload(runtime, value, {}));
  const std::vector<Step> steps = stepsOfRun(uploaded.plan().graph(), false);
  const auto sumOf = [&](llvm::ArrayRef<KernelKind> counted) {
    double sum = 0;
    for (const Step& step : steps)
      if (counted.empty() || llvm::is_contained(counted, step.kind)) sum += step.kind == KernelKind::Logits ? 4 : 1;
    return sum;
  };
  const std::vector<std::vector<KernelKind>> choices = {
      {KernelKind::Logits}, {KernelKind::Logits, KernelKind::GradInput}, {}};
  for (const std::vector<KernelKind>& counted : choices) {
    fake.forgetCalls();
    const std::vector<double> times = require(timeSteps(uploaded, counted, 3));
    REQUIRE(times.size() == 3);
    for (const double time : times) CHECK(time == Approx(sumOf(counted)).epsilon(0.01));
    CHECK(fake.callCount("cuLaunchKernel") + fake.callCount("cuLaunchKernelEx") == 4 * steps.size());
  }
}

TEST_CASE("a candidate is measured with its own plan on inputs that stay, and its resources are noted") {
  FakeDriver fake;
  fake.setLaunchTime([](const FakeLaunch& launch) { return launch.kernel == "lathe_grad_input" ? 4.0 : 1.0; });
  Runtime::Implementation runtime = makeRuntime(fake);
  const Target target = require(runtime.openDevice(0))->target();
  const TuningProblem problem{kWorkload, kShape, target, std::nullopt};
  const PlanChoices untuned = require(untunedChoices(problem));
  const WorkingSet set{.workload = kWorkload, .shape = kShape, .scalars = Scalars(), .device = 0};
  const auto measurer = require(DeviceMeasurer::open(runtime, set, untuned));
  CHECK(measurer->setting().multiprocessors == target.multiprocessors);
  CHECK(measurer->driverRelease() == "");
  const size_t allocated = fake.allocatedBytes();
  for (const PlanChoices& choices : productCandidates(Gemm::GradInput, untuned, problem, 0)) {
    const Visit visit = require(measurer->visit({TuningSubject::GradInput, choices, 2, false}));
    CHECK(visit.failure == "");
    REQUIRE(visit.milliseconds.size() == 2);
    CHECK(visit.milliseconds[0] >= 3.9);
    CHECK(visit.registers > 0);
    CHECK(visit.sharedBytes >= sharedBytes(choices.configs.gradInput, Gemm::GradInput, kWorkload));
  }
  // Workspaces may differ a little; inputs are not uploaded again.
  CHECK(fake.allocatedBytes() < allocated + (1 << 20));
  // Nothing that a kernel of the fake device leaves is right.
  const Visit checked = require(measurer->visit({TuningSubject::Plan, untuned, 2, true}));
  CHECK_THAT(checked.failure, Catch::Contains("is wrong"));
  CHECK(checked.strain > 1);
  CHECK(checked.milliseconds.empty());
  // A lost device is an error, an illegal candidate is not.
  PlanChoices illegal = untuned;
  illegal.configs.logits.stages = 7;
  CHECK(require(measurer->visit({TuningSubject::Plan, illegal, 2, false})).failure != "");
  fake.failNext("cuEventSynchronize", CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(requireError(measurer->visit({TuningSubject::Plan, untuned, 2, false})).code == ErrorCode::Driver);
}

TEST_CASE("parts of the gradients are those of the whole, and poison covers every result") {
  FakeDriver fake;
  Runtime::Implementation runtime = makeRuntime(fake);
  const Case value = makeCase();
  DeviceCase uploaded = require(DeviceCase::upload(runtime, value, {}));
  // Memory of the fake device is host memory: give every element a value of its own.
  auto* gradInput = static_cast<float*>(uploaded.arguments().gradInput);
  auto* gradWeight = static_cast<float*>(uploaded.arguments().gradWeight);
  for (int64_t i = 0; i < kShape.rows() * kWorkload.hidden; ++i) gradInput[i] = float(i);
  for (int64_t i = 0; i < kWorkload.vocab * kWorkload.hidden; ++i) gradWeight[i] = float(-i);
  const LossResult whole = require(uploaded.download());
  const LossResult parts = require(uploaded.downloadParts({3, 31}, {299}));
  REQUIRE(parts.gradInput.size() == 2 * 64);
  REQUIRE(parts.gradWeight.size() == 64);
  for (int64_t h = 0; h < 64; ++h) {
    CHECK(parts.gradInput[h] == whole.gradInput[3 * 64 + h]);
    CHECK(parts.gradInput[64 + h] == whole.gradInput[31 * 64 + h]);
    CHECK(parts.gradWeight[h] == whole.gradWeight[299 * 64 + h]);
  }
  require(uploaded.poison());
  const LossResult poisoned = require(uploaded.download());
  for (const auto& values : {poisoned.gradInput, poisoned.gradWeight, poisoned.perTokenLogps, poisoned.chosenLogps})
    CHECK(llvm::all_of(values, [](double v) { return std::isnan(v); }));
  CHECK(std::isnan(poisoned.loss));
  // The inputs are as they were.
  CHECK(std::memcmp(uploaded.arguments().input, value.input.data(), value.input.size()) == 0);
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
