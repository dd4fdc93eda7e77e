//===- tests/unit/online_tuner_test.cpp - Tuning inside a program ---------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tests/support/RuntimeSamples.h"
#include "tests/support/SimulatedDevice.h"
#include "tuning/OnlineTuner.h"

#include <atomic>
#include <chrono>
#include <thread>

using namespace lathe;
using namespace lathe::test;

namespace {

/// What the tuner of a test measures on: every candidate with the untuned logits is slower.
class SlowUntuned : public SimulatedDevice {
public:
  SlowUntuned(const PlanChoices& untuned, std::atomic<int>& visits)
      : SimulatedDevice(1), untuned_(untuned), visits_(visits) {
    noise = 0.0001;
  }
  llvm::Expected<Visit> visit(const VisitRequest& request) override {
    ++visits_;
    llvm::Expected<Visit> seen = SimulatedDevice::visit(request);
    if (seen && request.choices.configs.logits == untuned_.configs.logits)
      for (double& time : seen->milliseconds) time *= 3;
    return seen;
  }

private:
  const PlanChoices untuned_;
  std::atomic<int>& visits_;
};

/// A runtime on the fake GPU with a tuner that measures on the simulated device.
struct TunedRuntime {
  FakeDriver fake;
  ScratchFolder cache;
  std::atomic<int> opened = 0;
  std::atomic<int> visits = 0;
  std::atomic<bool> fails = false;
  std::unique_ptr<Runtime::Implementation> runtime;
  OnlineTuner* tuner = nullptr;

  explicit TunedRuntime(bool keep = true) {
    Environment environment = quietEnvironment(keep ? std::optional(cache.path()) : std::nullopt);
    environment.cachePath = {sharedCache()};
    runtime = std::make_unique<Runtime::Implementation>(
        environment, CompilerOptions{.threads = 0, .spillLimit = kAnySpill}, openersOf(fake));
    auto own =
        std::make_unique<OnlineTuner>(*runtime,
                                      [this](Runtime::Implementation&, const WorkingSet&,
                                             const PlanChoices& first) -> llvm::Expected<std::unique_ptr<Measurer>> {
                                        ++opened;
                                        if (fails) return makeError(ErrorCode::Unsupported, "there is no room");
                                        return std::make_unique<SlowUntuned>(first, visits);
                                      });
    tuner = own.get();
    runtime->setTuner(std::move(own));
  }

  std::shared_ptr<const Plan::Implementation> plan() {
    return require(runtime->plan(smallWorkload(), kSmallShape, {}, std::nullopt));
  }
};

const void* exponentialsOf(const FakeLaunch& gradLogits) {
  return gradLogits.parameter<device::GradLogitsArguments>(0).panels.data;
}

size_t launchesOf(const FakeDriver& fake) {
  return fake.launches().size();
}

} // namespace

TEST_CASE("a plan that is tuned now is the tuned one, and tuning happens once") {
  TunedRuntime test(GENERATE(true, false));
  const auto untuned = test.plan();
  test.tuner->tuneNow(smallWorkload(), kSmallShape, {}, std::nullopt, 5);
  CHECK(test.opened == 1);
  const auto tuned = test.plan();
  REQUIRE(tuned->tuned);
  CHECK(tuned->plan.graph().choices.configs.logits != untuned->plan.graph().choices.configs.logits);
  const int visits = test.visits;
  test.tuner->tuneNow(smallWorkload(), kSmallShape, {}, std::nullopt, 5);
  CHECK(test.opened == 1);
  CHECK(test.visits == visits);
  CHECK(test.plan() == tuned);
}

TEST_CASE("tuning that fails leaves the plan as it is without") {
  TunedRuntime test;
  test.fails = true;
  test.tuner->tuneNow(smallWorkload(), kSmallShape, {}, std::nullopt, 5);
  CHECK_FALSE(test.plan()->tuned);
  test.tuner->tuneNow({}, kSmallShape, {}, std::nullopt, 5);
  test.tuner->tuneNow(smallWorkload(), {3, 0}, {}, std::nullopt, 5);
  test.tuner->tuneNow(smallWorkload(), kSmallShape, {}, 99, 5);
  CHECK(test.opened == 1);
}

TEST_CASE("tuned in the background, a plan gets a successor that needs no more workspace") {
  TunedRuntime test;
  const auto plan = test.plan();
  CHECK(&plan->current() == plan.get());
  test.tuner->tuneInBackground(plan, {}, 5);
  test.tuner->tuneInBackground(plan, {}, 5);
  test.tuner->waitForBackground();
  CHECK(test.opened == 1);
  REQUIRE(&plan->current() != plan.get());
  CHECK(plan->current().tuned);
  CHECK(plan->current().plan.graph().workspaceBytes <= plan->plan.graph().workspaceBytes);
  CHECK(test.plan().get() == &plan->current());
}

TEST_CASE("a backward belongs to the plan whose forward used its workspace, also after the swap") {
  TunedRuntime test;
  const auto plan = test.plan();
  const DeviceContext& device = plan->plan.device();
  const ContextGuard guard = require(ContextGuard::enter(device.driver(), device.context()));
  RunArguments first = addressesFor(plan->plan.graph());
  RunArguments second = first;
  second.workspace = static_cast<char*>(first.workspace) + (int64_t(1) << 32);
  // The two plans differ in the tile of the logits, and so in the grid.
  const auto gridOfLogits = [&]() -> std::optional<unsigned> {
    const std::vector<FakeLaunch> launches = test.fake.launches();
    for (auto launch = launches.rbegin(); launch != launches.rend(); ++launch)
      if (launch->kernel == "lathe_logits") return launch->grid[0] * 1000 + launch->grid[1];
    return std::nullopt;
  };

  plan->expectSuccessor();
  require(plan->forward(first, nullptr));
  const auto before = gridOfLogits();
  test.tuner->tuneInBackground(plan, {}, 5);
  test.tuner->waitForBackground();
  REQUIRE(&plan->current() != plan.get());
  const LoadedPlan& old = plan->plan;
  const LoadedPlan& fresh = plan->current().plan;

  const auto launchesOfBackward = [&](const RunArguments& run) {
    const size_t begin = launchesOf(test.fake);
    require(plan->backward(run, nullptr));
    std::vector<FakeLaunch> launches = test.fake.launches();
    launches.erase(launches.begin(), launches.begin() + static_cast<std::ptrdiff_t>(begin));
    return launches;
  };
  const auto sameAs = [&](const std::vector<FakeLaunch>& launches, const LoadedPlan& of, const RunArguments& run) {
    const size_t begin = launchesOf(test.fake);
    require(of.backward(run, nullptr));
    const std::vector<FakeLaunch> wanted = test.fake.launches();
    if (wanted.size() - begin != launches.size()) return false;
    for (size_t i = 0; i < launches.size(); ++i) {
      const FakeLaunch& expected = wanted[begin + i];
      if (launches[i].kernel != expected.kernel || launches[i].grid != expected.grid) return false;
      // Where E lies depends on the tile of the logits. Whole parameters have padding, whose bytes are anything.
      if (expected.kernel == "lathe_grad_logits" && exponentialsOf(launches[i]) != exponentialsOf(expected))
        return false;
    }
    return true;
  };
  // Left by the old plan: finished by the old plan, as often as it is asked for.
  const std::vector<FakeLaunch> pending = launchesOfBackward(first);
  CHECK(sameAs(pending, old, first));
  CHECK(sameAs(launchesOfBackward(first), old, first));
  // Other workspaces, and this one from its next forward on, belong to the new plan.
  require(plan->forward(second, nullptr));
  CHECK(gridOfLogits() != before);
  CHECK(sameAs(launchesOfBackward(second), fresh, second));
  require(plan->forward(first, nullptr));
  CHECK(sameAs(launchesOfBackward(first), fresh, first));
  require(plan->run(first, nullptr));
}

TEST_CASE("measuring in the background takes no more than its share of the time") {
  TunedRuntime test;
  class Timed : public Measurer {
  public:
    explicit Timed(std::atomic<int>& visits) : visits_(visits) {}
    void prepare(llvm::ArrayRef<VisitRequest>) override {}
    llvm::Expected<Visit> visit(const VisitRequest& request) override {
      ++visits_;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      Visit visit;
      visit.milliseconds.assign(static_cast<size_t>(request.repetitions), 1.0);
      visit.strain = request.check ? 0 : -1;
      return visit;
    }

  private:
    std::atomic<int>& visits_;
  };
  auto own = std::make_unique<OnlineTuner>(*test.runtime,
                                           [&](Runtime::Implementation&, const WorkingSet&,
                                               const PlanChoices&) -> llvm::Expected<std::unique_ptr<Measurer>> {
                                             return std::make_unique<Timed>(test.visits);
                                           });
  OnlineTuner& tuner = *own;
  test.runtime->setTuner(std::move(own));
  tuner.tuneInBackground(test.plan(), {}, 100);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  const double share = test.visits * 0.005 / 1.5;
  CHECK(share > 0.005);
  CHECK(share < kBackgroundShare * 1.3);
  // Ends at once, in the middle of a pause.
  const auto begin = std::chrono::steady_clock::now();
  test.runtime.reset();
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(1));
}

TEST_CASE("where memory is scarce nothing is tuned in the program") {
  FakeDriver fake;
  const auto runtime = makeRuntime(fake);
  const std::shared_ptr<const DeviceContext> device = require(runtime->openDevice(std::nullopt));
  const PlanChoices first = require(untunedChoices({smallWorkload(), kSmallShape, device->target(), std::nullopt}));
  const WorkingSet set{.workload = smallWorkload(), .shape = kSmallShape, .scalars = Scalars()};
  require(OnlineTuner::openDeviceMeasurer(*runtime, set, first));
  const ContextGuard guard = require(ContextGuard::enter(device->driver(), device->context()));
  const DeviceBuffer taken = require(DeviceBuffer::allocate(device->driver(), int64_t(900) << 20));
  CHECK(requireError(OnlineTuner::openDeviceMeasurer(*runtime, set, first)).code == ErrorCode::Unsupported);
}
