//===- tests/unit/worker_test.cpp - Measuring in a process apart ----------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tests/support/RunCommand.h"
#include "tests/support/RuntimeSamples.h"
#include "tests/support/TuningSamples.h"
#include "tuning/Tuner.h"
#include "tuning/Worker.h"
#include "tuning/WorkerMeasurer.h"

#include <chrono>
#include <csignal>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace lathe;
using namespace lathe::test;
using Catch::Contains;

namespace {

/// Without a cache nothing is compiled here.
Runtime::Implementation makeIdleRuntime() {
  return {quietEnvironment(std::nullopt), CompilerOptions{}, LibraryOpeners::fromEnvironment(Environment())};
}

WorkerOpen openFor(const PlanChoices& first) {
  WorkerOpen open;
  open.set.workload = {.hidden = 4096, .vocab = 128256, .dtype = DType::BF16};
  open.set.shape = {4, 1024};
  open.first = first;
  return open;
}

WorkerCommand fakeWorker(std::vector<std::string> arguments = {}) {
  return {.program = LATHE_FAKE_WORKER, .arguments = std::move(arguments), .visitSeconds = 0.5, .openSeconds = 20};
}

/// The sample with an order for the fake worker.
PlanChoices ordering(int order) {
  PlanChoices choices = sampleChoices();
  choices.configs.logits.groupM = order;
  return choices;
}

VisitRequest visitOf(int order, bool check = false) {
  return {TuningSubject::Plan, ordering(order), 3, check};
}

} // namespace

TEST_CASE("every message of the protocol is read as it was written") {
  WorkerOpen open = openFor(sampleChoices());
  open.set.workload.softcap = true;
  open.set.scalars.softcap = 30;
  open.set.seed = 7;
  open.set.logitStd = 8;
  open.set.maskedFraction = 0.25;
  open.set.device = 1;
  CHECK(toJson(require(parseWorkerOpen(toJson(open)))) == toJson(open));
  CHECK(toJson(require(parseVisitRequest(toJson(visitOf(8, true))))) == toJson(visitOf(8, true)));
  Visit visit;
  visit.milliseconds = {1.5, 2};
  visit.failure = "why";
  visit.registers = 1;
  visit.localBytes = 2;
  visit.sharedBytes = 3;
  visit.strain = 0.5;
  visit.clock = 1530;
  visit.throttled = true;
  CHECK(toJson(require(parseVisit(toJson(visit)))) == toJson(visit));
  for (const llvm::json::Value& json : {llvm::json::Value(nullptr), llvm::json::Value(llvm::json::Object{}),
                                        llvm::json::Value(llvm::json::Object{{"times_ms", "fast"}})}) {
    CHECK(requireError(parseVisit(json)).code == ErrorCode::Corrupt);
    requireError(parseVisitRequest(json));
    CHECK(requireError(parseWorkerOpen(json)).code == ErrorCode::Corrupt);
  }
}

TEST_CASE("a candidate that hangs, dies or answers nonsense costs only itself") {
  Runtime::Implementation runtime = makeIdleRuntime();
  const auto measurer =
      require(WorkerMeasurer::open(runtime, fakeWorker(), openFor(ordering(8)), require(parseTarget("sm_90a"))));
  CHECK(measurer->ready().setting.device == "fake");
  CHECK(measurer->starts() == 1);
  const auto visit = [&](int order) { return require(measurer->visit(visitOf(order))); };
  CHECK(visit(8).milliseconds == std::vector<double>{8, 8, 8});
  CHECK(visit(8).registers == 168);
  CHECK(measurer->starts() == 1);

  const auto begin = std::chrono::steady_clock::now();
  CHECK_THAT(visit(4).failure, Contains("did not end within 0.5"));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
  CHECK(visit(8).failure == "");
  CHECK(measurer->starts() == 2);
  CHECK_THAT(visit(16).failure, Contains("signal 6"));
  CHECK(visit(8).failure == "");
  CHECK_THAT(visit(32).failure, Contains("JSON"));
  CHECK(visit(8).failure == "");
  CHECK(visit(64).failure == "the device is lost");
  CHECK(require(measurer->visit(visitOf(8, true))).strain == 0.25);
  CHECK(measurer->starts() == 5);

  PlanChoices illegal = ordering(8);
  illegal.chunkPairs = 99;
  CHECK(require(measurer->visit({TuningSubject::Plan, illegal, 1, false})).failure != "");
  CHECK(measurer->starts() == 5);
}

TEST_CASE("a worker that cannot start is an error, not a failed candidate") {
  Runtime::Implementation runtime = makeIdleRuntime();
  const Target target = require(parseTarget("sm_90a"));
  const auto open = [&](WorkerCommand command) {
    return requireError(WorkerMeasurer::open(runtime, std::move(command), openFor(ordering(8)), target)).message;
  };
  CHECK_THAT(open(fakeWorker({"dead"})), Contains("exit code 7"));
  WorkerCommand deaf = fakeWorker({"deaf"});
  deaf.openSeconds = 0.3;
  CHECK_THAT(open(deaf), Contains("0.3"));
  WorkerCommand missing = fakeWorker();
  missing.program = "/nonexistent/lathe";
  CHECK_THAT(open(missing), Contains("/nonexistent/lathe"));
}

TEST_CASE("tuning goes on past hanging and dying candidates, and records each") {
  Runtime::Implementation runtime = makeIdleRuntime();
  const ScratchFolder folder;
  const TuningFile file(folder.path());
  const WorkerOpen open = openFor(ordering(8));
  const TuningProblem problem{open.set.workload, open.set.shape, require(parseTarget("sm_90a")), std::nullopt};
  const auto measurer = require(WorkerMeasurer::open(runtime, fakeWorker(), open, problem.target));
  double seconds = 0;
  const TunerReport report = require(tune(
      problem, measurer->ready().setting, *measurer, &file, {.width = 8}, [](const SearchProgress&) {},
      [&seconds] { return seconds += 0.01; }));
  // The untuned logits have groups of 8.
  CHECK(report.plan.choices.configs.logits.groupM == 8);
  CHECK(report.plan.median == 8);
  std::vector<std::string> failures;
  for (const TuningMeasurement& measurement : require(file.read()).measurements)
    if (!measurement.failure.empty()) failures.push_back(measurement.failure);
  CHECK(failures.size() >= 3);
  CHECK(measurer->starts() >= 4);
}

TEST_CASE("a killed tuner takes its worker along, and loses no measurement") {
  const ScratchFolder folder;
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t tuner = ::fork();
  REQUIRE(tuner >= 0);
  if (tuner == 0) {
    Runtime::Implementation runtime = makeIdleRuntime();
    const TuningFile file(folder.path());
    WorkerOpen open = openFor(ordering(8));
    const TuningProblem problem{open.set.workload, open.set.shape, llvm::cantFail(parseTarget("sm_90a")), std::nullopt};
    auto measurer = WorkerMeasurer::open(runtime, fakeWorker(), open, problem.target);
    if (!measurer) ::_exit(1);
    double seconds = 0;
    const auto tell = [&](const SearchProgress&) { [[maybe_unused]] const auto told = ::write(ends[1], "x", 1); };
    llvm::consumeError(tune(problem, (*measurer)->ready().setting, **measurer, &file, {}, tell, [&seconds] {
                         return seconds += 0.001;
                       }).takeError());
    ::_exit(0);
  }
  ::close(ends[1]);
  char byte = 0;
  int64_t told = 0;
  while (told < 5 && ::read(ends[0], &byte, 1) == 1) ++told;
  ::kill(tuner, SIGKILL);
  ::waitpid(tuner, nullptr, 0);
  // The pipe to its worker closed, and with it the worker's copy of this one: the read ends.
  while (::read(ends[0], &byte, 1) == 1) ++told;
  ::close(ends[0]);
  CHECK(static_cast<int64_t>(require(TuningFile(folder.path()).read()).measurements.size()) >= told);
}

TEST_CASE("the lathe command measures a fake GPU in its worker") {
  const ScratchFolder folder;
  const std::vector<std::string> environment = {"LATHE_LIBCUDA=" LATHE_FAKE_CUDA, "LATHE_CACHE_DIR=" + folder.path(),
                                                std::string("CUDA_HOME=") +
                                                    (::getenv("CUDA_HOME") ? ::getenv("CUDA_HOME") : "")};
  const CommandResult result = runCommand(LATHE_CLI,
                                          {"tune", "--hidden", "64", "--vocab", "300", "--dtype", "fp32", "--sequences",
                                           "4", "--tokens", "8", "--gradients", "none", "--json"},
                                          environment);
  // Its kernels do nothing, so nothing it computes is right: every candidate is measured, and none may win.
  CHECK(result.exitCode == 3);
  CHECK_THAT(result.out,
             Contains("\"event\":\"visit\"") && Contains("\"subject\":\"logits\"") && Contains("\"event\":\"error\""));
  CHECK_THAT(result.err, Contains("is wrong"));
}
