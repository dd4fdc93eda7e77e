//===- tests/unit/threads_test.cpp - Plans from several threads -----------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
//
// Worth the most under ThreadSanitizer: cmake -DLATHE_SANITIZE=thread, then ctest -L threads.
//
//===----------------------------------------------------------------------===//
#include "tests/support/FaultyNvrtc.h"
#include "tests/support/RuntimeSamples.h"

#include <atomic>
#include <barrier>
#include <set>
#include <thread>

using namespace lathe;
using namespace lathe::test;

namespace {

using PlanPointer = Runtime::Implementation::PlanPointer;

constexpr size_t kThreads = 8;

/// Runs `body(index)` on `kThreads` threads that begin together. A body must not use the assertions of Catch, which
/// belong to one thread.
template <class Body> void onThreads(Body body) {
  std::barrier start(kThreads);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      body(i);
    });
  for (std::thread& thread : threads) thread.join();
}

/// What the threads bring back: a message for each failure.
class Failures {
public:
  void add(std::string message) {
    const std::lock_guard lock(mutex_);
    messages_.push_back(std::move(message));
  }
  /// Whether `error` is none.
  bool none(llvm::Error error) {
    if (!error) return true;
    add(takeSummary(std::move(error)).message);
    return false;
  }
  std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(messages_, {});
  }

private:
  std::mutex mutex_;
  std::vector<std::string> messages_;
};

/// The workload of thread `index`: without gradients, so that there is little to compile, one of `kinds`.
Workload workloadOf(size_t index, size_t kinds) {
  return {.hidden = 64,
          .vocab = static_cast<int64_t>(300 + index % kinds),
          .dtype = DType::FP32,
          .gradInput = false,
          .gradWeight = false,
          .gradWeightDType = DType::FP32};
}

/// The plan, or null with an entry in `failures`.
PlanPointer makePlan(Runtime::Implementation& runtime, const Workload& workload, std::optional<int> device,
                     Failures& failures) {
  llvm::Expected<PlanPointer> plan = runtime.plan(workload, kSmallShape, {}, device);
  if (plan) return *plan;
  failures.add(takeSummary(plan.takeError()).message);
  return nullptr;
}

} // namespace

TEST_CASE("threads that make the same plan get the same one, and its kernels are compiled once") {
  FakeDriver fake;
  FaultyNvrtc nvrtc(realNvrtc());
  LibraryOpeners openers = openersOf(fake);
  openers.nvrtc = [&]() -> llvm::Expected<Nvrtc> { return nvrtc.table(); };
  auto runtime = std::make_unique<Runtime::Implementation>(quietEnvironment(std::nullopt), CompilerOptions{}, openers);
  Failures failures;
  std::array<PlanPointer, kThreads> plans;
  onThreads([&](size_t i) { plans[i] = makePlan(*runtime, workloadOf(0, 1), std::nullopt, failures); });
  CHECK(failures.take() == std::vector<std::string>{});
  for (const PlanPointer& plan : plans) CHECK(plan == plans[0]);
  CHECK(plans[0]->plan.kernels().size() == 4);
  CHECK(nvrtc.callCount("nvrtcCompileProgram") == plans[0]->plan.kernels().size());
  plans.fill(nullptr);
  runtime.reset();
  CHECK(fake.leaks() == "");
}

TEST_CASE("threads make different plans and run them at once") {
  FakeDriver fake;
  fake.setDeviceCount(2);
  auto runtime = makeRuntime(fake);
  Failures failures;
  std::array<PlanPointer, kThreads> plans;
  constexpr int kRuns = 20;
  onThreads([&](size_t i) {
    plans[i] = makePlan(*runtime, workloadOf(i, 3), static_cast<int>(i % 2), failures);
    if (!plans[i]) return;
    const RunArguments run = addressesFor(plans[i]->plan.graph());
    for (int k = 0; k < kRuns; ++k)
      if (!failures.none(plans[i]->plan.run(run, nullptr))) return;
  });
  CHECK(failures.take() == std::vector<std::string>{});
  CHECK(fake.launches().size() == kThreads * kRuns * plans[0]->plan.graph().forward.size());
  CHECK(std::set<PlanPointer>(plans.begin(), plans.end()).size() == 6);
  plans.fill(nullptr);
  runtime.reset();
  CHECK(fake.leaks() == "");
}

TEST_CASE("one plan runs on several threads at once, each with its own workspace") {
  FakeDriver fake;
  const auto runtime = makeRuntime(fake);
  Failures failures;
  const PlanPointer plan = makePlan(*runtime, workloadOf(0, 1), std::nullopt, failures);
  REQUIRE(plan);
  constexpr uintptr_t kWorkspace = uintptr_t(1) << 48;
  onThreads([&](size_t i) {
    RunArguments run = addressesFor(plan->plan.graph());
    run.workspace = reinterpret_cast<void*>(kWorkspace * (i + 1));
    for (int k = 0; k < 50; ++k)
      if (!failures.none(plan->plan.run(run, nullptr))) return;
  });
  CHECK(failures.take() == std::vector<std::string>{});
  std::map<const void*, size_t> launches;
  for (const FakeLaunch& launch : fake.launches())
    if (launch.kernel == "lathe_row_map") ++launches[launch.parameter<device::RowMapArguments>(0).tables.state];
  CHECK(launches.size() == kThreads);
  for (const auto& [workspace, count] : launches) CHECK(count == 50);
}

TEST_CASE("a failure on one thread does not touch the others") {
  FakeDriver fake;
  auto runtime = makeRuntime(fake);
  Failures failures;
  std::array<PlanPointer, kThreads> plans;
  fake.failNext("cuModuleLoadData", CUDA_ERROR_OUT_OF_MEMORY, 3);
  onThreads([&](size_t i) { plans[i] = makePlan(*runtime, workloadOf(i, 3), std::nullopt, failures); });
  const std::vector<std::string> messages = failures.take();
  REQUIRE(messages.size() == 1);
  CHECK_THAT(messages[0], Catch::Matchers::Contains("CUDA_ERROR_OUT_OF_MEMORY"));
  CHECK(llvm::count(plans, nullptr) == 1);
  // Whichever failed now succeeds.
  onThreads([&](size_t i) {
    if (!plans[i]) plans[i] = makePlan(*runtime, workloadOf(i, 3), std::nullopt, failures);
  });
  CHECK(failures.take() == std::vector<std::string>{});
  plans.fill(nullptr);
  runtime.reset();
  CHECK(fake.leaks() == "");
}

TEST_CASE("two runtimes share a cache while both fill it") {
  FakeDriver fake;
  FaultyNvrtc nvrtc(realNvrtc());
  const ScratchFolder folder;
  LibraryOpeners openers = openersOf(fake);
  openers.nvrtc = [&]() -> llvm::Expected<Nvrtc> { return nvrtc.table(); };
  Runtime::Implementation first(quietEnvironment(folder.path()), {}, openers);
  Runtime::Implementation second(quietEnvironment(folder.path()), {}, openers);
  Failures failures;
  std::array<PlanPointer, kThreads> plans;
  onThreads(
      [&](size_t i) { plans[i] = makePlan(i % 2 ? first : second, workloadOf(i / 2, 2), std::nullopt, failures); });
  CHECK(failures.take() == std::vector<std::string>{});
  CHECK(nvrtc.livePrograms() == 0);
  // Everything is in the cache, whole.
  Runtime::Implementation third(quietEnvironment(folder.path()), {}, openers);
  const size_t before = nvrtc.callCount("nvrtcCompileProgram");
  for (size_t i = 0; i < 2; ++i) CHECK(makePlan(third, workloadOf(i, 2), std::nullopt, failures));
  CHECK(nvrtc.callCount("nvrtcCompileProgram") == before);
}

TEST_CASE("plans are dropped on other threads than those that made them") {
  FakeDriver fake;
  auto runtime = makeRuntime(fake);
  Failures failures;
  std::array<PlanPointer, kThreads> plans;
  for (size_t i = 0; i < kThreads; ++i) plans[i] = makePlan(*runtime, workloadOf(i, 3), std::nullopt, failures);
  runtime.reset();
  onThreads([&](size_t i) {
    if (plans[i]) failures.none(plans[i]->plan.run(addressesFor(plans[i]->plan.graph()), nullptr));
    plans[i].reset();
  });
  CHECK(failures.take() == std::vector<std::string>{});
  CHECK(fake.leaks() == "");
}
