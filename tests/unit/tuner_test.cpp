//===- tests/unit/tuner_test.cpp - Searching on a simulated device --------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tests/support/Failures.h"
#include "tests/support/ScratchFolder.h"
#include "tests/support/SimulatedDevice.h"
#include "tests/support/TuningSamples.h"
#include "tuning/Tuner.h"

#include "llvm/ADT/STLExtras.h"

#include <set>
#include <thread>

using namespace lathe;
using namespace lathe::test;
using Catch::Contains;

namespace {

const Workload kWorkload{.hidden = 4096, .vocab = 128256, .dtype = DType::BF16};

TuningProblem problemFor(Shape shape = {4, 1024}) {
  return {kWorkload, shape, require(parseTarget("sm_90a")), std::nullopt};
}

const SearchListener kSilent = [](const SearchProgress&) {};

TunerReport tuneOn(SimulatedDevice& device, const TuningFile* file, const TunerOptions& options,
                   const TuningProblem& problem = problemFor()) {
  return require(tune(problem, sampleSetting(), device, file, options, kSilent, [&device] { return device.seconds; }));
}

/// The least true time of a plan with the given width of the search.
double leastTime(const SimulatedDevice& device, const TuningProblem& problem, size_t width) {
  const PlanChoices untuned = require(untunedChoices(problem));
  PlanChoices best = untuned;
  for (const Gemm gemm : productsOf(problem.workload)) {
    const std::vector<PlanChoices> all = productCandidates(gemm, untuned, problem, width);
    const auto fastest = std::min_element(all.begin(), all.end(), [&](const PlanChoices& a, const PlanChoices& b) {
      return device.trueTime(subjectOf(gemm), a) < device.trueTime(subjectOf(gemm), b);
    });
    best.configs = withConfig(best.configs, gemm, fastest->configs.of(gemm));
  }
  return device.trueTime(TuningSubject::Plan, best);
}

} // namespace

TEST_CASE("the grid is ranked: legal points by predicted time first, and every other says why it is illegal") {
  const TuningProblem problem = problemFor();
  for (const Gemm gemm : productsOf(problem.workload)) {
    const std::vector<RankedConfig> ranked = rankConfigs(gemm, problem);
    const size_t legal = searchSpace(gemm, problem.workload, problem.target).size();
    REQUIRE(legal > 20);
    REQUIRE(ranked.size() > legal);
    for (size_t i = 0; i < ranked.size(); ++i) {
      CHECK(ranked[i].illegal.empty() == (i < legal));
      if (i > 0 && i < legal) CHECK(ranked[i - 1].seconds <= ranked[i].seconds);
    }
    CHECK(ranked.front().config == require(untunedChoices(problem)).configs.of(gemm));
  }
}

TEST_CASE("the search finds the fastest within a per cent, whatever the seed, noise and drift") {
  const double noise = GENERATE(0.0, 0.003, 0.01);
  const double drift = GENERATE(0.0, 0.1);
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    CAPTURE(noise, drift, seed);
    SimulatedDevice device(seed);
    device.noise = noise;
    device.drift = drift;
    const TunerReport report = tuneOn(device, nullptr, {.budgetSeconds = 120});
    const double least = leastTime(device, problemFor(), 32);
    CHECK(device.trueTime(TuningSubject::Plan, report.plan.choices) <= least * 1.01);
    CHECK(report.plan.untunedMedian > 0);
    CHECK(report.plan.median <= report.plan.untunedMedian * 1.02);
    CHECK(device.seconds <= 121);
    CHECK(device.prepared > 90);
  }
}

TEST_CASE("a clear leader ends the search early") {
  SimulatedDevice device(3);
  device.noise = 0.0005;
  const TunerReport report = tuneOn(device, nullptr, {.budgetSeconds = 1000});
  CHECK(report.visits < 400);
  CHECK(device.seconds < 60);
}

TEST_CASE("a budget of time or visits ends the search, with a plan that is no worse than the untuned one") {
  for (const double budget : {0.0, 0.5, 2.0, 8.0}) {
    SimulatedDevice device(5);
    const TunerReport report = tuneOn(device, nullptr, {.budgetSeconds = budget});
    CHECK(device.seconds < budget + 2);
    CHECK(device.trueTime(TuningSubject::Plan, report.plan.choices) <=
          device.trueTime(TuningSubject::Plan, require(untunedChoices(problemFor()))) * 1.01);
  }
  SimulatedDevice device(5);
  const TunerReport report = tuneOn(device, nullptr, {.budgetSeconds = 1000, .visits = 20});
  CHECK(device.visits <= 20 + 8);
  CHECK(report.plan.median > 0);
}

TEST_CASE("candidates that fault, hang or are wrong cost only themselves, once, and never win") {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    CAPTURE(seed);
    SimulatedDevice device(seed);
    device.faulty = 5;
    device.hanging = 12;
    device.wrong = 4;
    device.timeout = 1;
    device.spared = require(untunedChoices(problemFor())).configs;
    const ScratchFolder folder;
    const TuningFile file(folder.path());
    const TunerReport report = tuneOn(device, &file, {.budgetSeconds = 200});
    const Visit again = require(device.visit({TuningSubject::Plan, report.plan.choices, 3, true}));
    CHECK(again.failure == "");
    // Each is recorded with its reason.
    std::set<std::string> reasons;
    std::vector<PlanChoices> failed;
    for (const TuningMeasurement& measurement : require(file.read()).measurements) {
      if (measurement.failure.empty()) continue;
      reasons.insert(measurement.failure);
      CHECK_FALSE(llvm::is_contained(failed, measurement.choices));
      failed.push_back(measurement.choices);
    }
    CHECK(reasons.size() >= 2);

    // Another run does not try them again.
    const int64_t hangs = device.hangs;
    tuneOn(device, &file, {.budgetSeconds = 200, .again = true});
    CHECK(device.hangs == hangs);
  }
}

TEST_CASE("where not even the untuned plan runs the error says why") {
  SimulatedDevice device(1);
  device.faulty = 1;
  const ErrorSummary error = requireError(tune(problemFor(), sampleSetting(), device, nullptr, {.budgetSeconds = 20},
                                               kSilent, [&device] { return device.seconds; }));
  CHECK_THAT(error.message, Contains("illegal address"));
}

TEST_CASE("a run that was cut off anywhere is taken up, and measures nothing twice") {
  SimulatedDevice whole(7);
  whole.noise = 0;
  const TunerReport expected = tuneOn(whole, nullptr, {.budgetSeconds = 1000});
  for (const int64_t lostAt : {0, 1, 17, 100, 150}) {
    CAPTURE(lostAt);
    const ScratchFolder folder;
    const TuningFile file(folder.path());
    SimulatedDevice first(7);
    first.noise = 0;
    first.lostAt = lostAt;
    const ErrorSummary error = requireError(tune(problemFor(), sampleSetting(), first, &file, {.budgetSeconds = 1000},
                                                 kSilent, [&first] { return first.seconds; }));
    CHECK_THAT(error.message, Contains("lost"));
    CHECK(static_cast<int64_t>(require(file.read()).measurements.size()) == lostAt);

    SimulatedDevice second(7);
    second.noise = 0;
    const TunerReport report = tuneOn(second, &file, {.budgetSeconds = 1000});
    CHECK(report.resumed == lostAt);
    CHECK(second.visits + lostAt == whole.visits);
    CHECK(report.plan.choices == expected.plan.choices);
    // Folded, and found by the next.
    CHECK(require(file.readFolded()).plans.size() == 1);
    SimulatedDevice third(7);
    CHECK(tuneOn(third, &file, {}).known);
    CHECK(third.visits == 0);
    tuneOn(third, &file, {.again = true});
    CHECK(third.visits > 0);
  }
}

TEST_CASE("results of another driver, device or shape are not taken up") {
  const ScratchFolder folder;
  const TuningFile file(folder.path());
  SimulatedDevice device(2);
  TuningSetting other = sampleSetting();
  other.driver = "12.8";
  require(tune(problemFor(), other, device, &file, {}, kSilent, [&device] { return device.seconds; }));
  SimulatedDevice fresh(2);
  const TunerReport report = tuneOn(fresh, &file, {});
  CHECK_FALSE(report.known);
  CHECK(report.resumed == 0);
  const TuningDocument document = require(file.readFolded());
  CHECK(document.plans.size() == 2);
  CHECK_FALSE(findTuned(document, sampleSetting(), 4096)->stale);
}

TEST_CASE("several tuners of one problem lose nothing of each other") {
  const ScratchFolder folder;
  const TuningFile file(folder.path());
  std::vector<std::thread> threads;
  std::vector<int64_t> visits(4);
  for (size_t i = 0; i < visits.size(); ++i)
    threads.emplace_back([&, i] {
      SimulatedDevice device(9);
      llvm::Expected<TunerReport> report =
          tune(problemFor(), sampleSetting(), device, &file, {.budgetSeconds = 1000, .visits = 60, .again = true},
               kSilent, [&device] { return device.seconds; });
      visits[i] = report ? device.visits : -1;
      if (!report) llvm::consumeError(report.takeError());
    });
  for (std::thread& thread : threads) thread.join();
  int64_t all = 0;
  for (const int64_t count : visits) {
    CHECK(count > 0);
    all += count;
  }
  const TuningDocument document = require(file.read());
  CHECK(static_cast<int64_t>(document.measurements.size()) == all);
  CHECK(document.plans.size() == 1);
}

TEST_CASE("a limit on the workspace holds for every candidate") {
  TuningProblem problem = problemFor({8, 512});
  const int64_t stored = require(makePlan(kWorkload, problem.shape, problem.target, {})).workspaceBytes;
  problem.workspaceLimit = stored * 2 / 3;
  SimulatedDevice device(4);
  const TunerReport report = tuneOn(device, nullptr, {.budgetSeconds = 100}, problem);
  for (const SubjectReport& subject : report.subjects)
    for (const Standing& standing : subject.standings) {
      const PlanGraph graph = require(layOutPlan(problem.workload, problem.shape, problem.target, standing.choices));
      CHECK(graph.workspaceBytes <= *problem.workspaceLimit);
    }
  CHECK(report.plan.choices.strategy == Strategy::Chunked);
}

TEST_CASE("the kernels that a product's config decides include its own, and not those of others") {
  const PlanGraph graph = require(makePlan(kWorkload, {4, 1024}, require(parseTarget("sm_90a")), {}));
  const auto decided = [&](Gemm gemm) { return kernelsDecidedBy(gemm, graph); };
  CHECK(llvm::is_contained(decided(Gemm::Logits), KernelKind::Logits));
  CHECK(llvm::is_contained(decided(Gemm::GradInput), KernelKind::GradInput));
  CHECK(llvm::is_contained(decided(Gemm::GradWeight), KernelKind::GradWeight));
  CHECK_FALSE(llvm::is_contained(decided(Gemm::Logits), KernelKind::GradWeight));
  CHECK_FALSE(llvm::is_contained(decided(Gemm::GradWeight), KernelKind::RowMap));
}
