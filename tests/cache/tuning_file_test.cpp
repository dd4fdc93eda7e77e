//===- tests/cache/tuning_file_test.cpp - Tuning results on disk ----------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/cache/TuningFile.h"
#include "tests/support/CacheSamples.h"
#include "tests/support/ScratchFolder.h"
#include "tests/support/TuningSamples.h"

#include <csignal>
#include <cstring>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace lathe;
using namespace lathe::test;
using Catch::Contains;

namespace {

/// Starts a process that runs `body` and leaves.
template <class Body> pid_t startProcess(Body body) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    body();
    ::_exit(0);
  }
  return child;
}

int64_t countOf(const TuningDocument& document, llvm::StringRef run) {
  return llvm::count_if(document.measurements, [&](const TuningMeasurement& m) { return m.run == run; });
}

} // namespace

TEST_CASE("A document keeps every field through its text") {
  TuningDocument document;
  document.plans.push_back(samplePlan("a"));
  TuningMeasurement failed = sampleMeasurement("a", 1);
  failed.subject = TuningSubject::GradWeight;
  failed.milliseconds.clear();
  failed.failure = "it hung for 10 s";
  failed.localBytes = 64;
  failed.strain = 0.5;
  document.measurements = {sampleMeasurement("a", 0), failed};
  const TuningDocument copy = require(TuningDocument::parse(document.text()));
  CHECK(copy.text() == document.text());
  REQUIRE(copy.plans.size() == 1);
  CHECK(copy.plans[0].choices == sampleChoices());
  CHECK(copy.plans[0].setting == sampleSetting());
  REQUIRE(copy.measurements.size() == 2);
  CHECK(copy.measurements[1].failure == "it hung for 10 s");
  CHECK(copy.measurements[1].subject == TuningSubject::GradWeight);
  CHECK(copy.measurements[0].milliseconds == std::vector<double>{18.25, 18.5});
}

TEST_CASE("Text that is no document is refused, a strange record in one is left out") {
  for (const char* text : {"", "{}", "[]", "nonsense", "{\"format\": \"lathe.tuning/2\"}", "{\"format\": 1}"})
    CHECK(requireError(TuningDocument::parse(text)).code == ErrorCode::Corrupt);
  CHECK(requireError(TuningDocument::parse(std::string(100000, '['))).code == ErrorCode::Corrupt);

  TuningDocument document;
  document.plans = {samplePlan("a")};
  document.measurements = {sampleMeasurement("a", 0), sampleMeasurement("a", 1)};
  std::string text = document.text();
  const size_t at = text.find("\"number\":1");
  REQUIRE(at != std::string::npos);
  text.replace(at, 10, "\"number\":-");
  CHECK(requireError(TuningDocument::parse(text)).code == ErrorCode::Corrupt);
  text.replace(at, 10, "\"numbre\":1");
  CHECK(require(TuningDocument::parse(text)).measurements.size() == 1);
  for (const auto& [from, to] : {std::pair{"\"sequences\":4", "\"sequences\":4000000000"},
                                 {"18.25", "1e999"},
                                 {"\"stored\"", "\"sorted\""},
                                 {"\"wgmma\"", "\"xgmma\""}}) {
    std::string strange = document.text();
    for (size_t i = strange.find(from); i != std::string::npos; i = strange.find(from, i + std::strlen(to)))
      strange.replace(i, std::strlen(from), to);
    llvm::Expected<TuningDocument> parsed = TuningDocument::parse(strange);
    if (parsed)
      CHECK(parsed->plans.empty());
    else
      llvm::consumeError(parsed.takeError());
  }
}

TEST_CASE("Joined documents have each measurement once and the newest plan, in whatever order they are joined") {
  TuningDocument a, b;
  a.plans = {samplePlan("a", "2026-01-01T00:00:00Z")};
  b.plans = {samplePlan("b", "2026-02-01T00:00:00Z")};
  b.plans.push_back(samplePlan("b", "2026-02-01T00:00:00Z"));
  b.plans.back().setting.driver = "12.8";
  a.measurements = {sampleMeasurement("a", 0), sampleMeasurement("a", 1)};
  b.measurements = {sampleMeasurement("a", 1), sampleMeasurement("b", 0)};
  TuningDocument ab = a, ba = b;
  ab.join(b);
  ba.join(a);
  CHECK(ab.text() == ba.text());
  CHECK(ab.measurements.size() == 3);
  CHECK(ab.plans.size() == 2);
  for (const TunedPlan& plan : ab.plans) CHECK(plan.run == "b");
  const std::string before = ab.text();
  ab.join(a);
  CHECK(ab.text() == before);
}

TEST_CASE("A tuned plan is found for its device and bucket alone; another driver or NVRTC makes it stale") {
  TuningDocument document;
  document.plans = {samplePlan("a")};
  const TuningSetting here = sampleSetting();
  REQUIRE(findTuned(document, here, 4096));
  CHECK_FALSE(findTuned(document, here, 4096)->stale);
  CHECK(findTuned(document, here, 2049));
  CHECK_FALSE(findTuned(document, here, 2048));
  CHECK_FALSE(findTuned(document, here, 4097));
  TuningSetting other = here;
  other.device = "NVIDIA H100";
  CHECK_FALSE(findTuned(document, other, 4096));
  other = here;
  other.multiprocessors = 114;
  CHECK_FALSE(findTuned(document, other, 4096));
  other = here;
  other.driver = "13.1";
  CHECK(findTuned(document, other, 4096)->stale);
  other = here;
  other.nvrtc = "13.1";
  CHECK(findTuned(document, other, 4096)->stale);
  other.nvrtc = "";
  CHECK_FALSE(findTuned(document, other, 4096)->stale);

  // The exact setting wins over a newer stale one.
  document.plans.push_back(samplePlan("b", "2026-05-01T00:00:00Z"));
  document.plans.back().setting.nvrtc = "12.9";
  CHECK(findTuned(document, here, 4096)->plan.run == "a");
}

TEST_CASE("What was appended is read at once, and once more after it was folded") {
  const ScratchFolder folder;
  const TuningFile file(folder.file("some/folder"));
  CHECK(require(file.read()).measurements.empty());
  require(file.append(sampleMeasurement("a", 0)));
  require(file.append(sampleMeasurement("a", 1)));
  CHECK(require(file.read()).measurements.size() == 2);
  CHECK(require(file.readFolded()).measurements.empty());
  TuningDocument more;
  more.plans = {samplePlan("a")};
  require(file.fold(more));
  CHECK(readAll(folder.file("some/folder/plan.jsonl")).empty());
  CHECK(require(file.readFolded()).measurements.size() == 2);
  CHECK(require(file.read()).plans.size() == 1);
}

TEST_CASE("A line that a killed writer left half is left out, and costs no other") {
  const ScratchFolder folder;
  const TuningFile file(folder.path());
  require(file.append(sampleMeasurement("a", 0)));
  const std::string whole = readAll(folder.file("plan.jsonl"));
  for (size_t length = 0; length < whole.size(); length += 7) {
    writeAll(folder.file("plan.jsonl"), whole + whole.substr(0, length));
    require(file.append(sampleMeasurement("a", 2)));
    CHECK(require(file.read()).measurements.size() == 2);
  }
}

TEST_CASE("A damaged plan.json is an error to read, and is set aside by the next fold") {
  const ScratchFolder folder;
  const TuningFile file(folder.path());
  writeAll(folder.file("plan.json"), "{\"half\":");
  require(file.append(sampleMeasurement("a", 0)));
  CHECK_THAT(requireError(file.read()).message, Contains(folder.path()));
  require(file.fold({}));
  CHECK(require(file.read()).measurements.size() == 1);
  const std::vector<std::string> names = namesIn(folder.path());
  CHECK(llvm::count_if(names, [](llvm::StringRef name) { return name.contains(".bad-"); }) == 1);
}

TEST_CASE("Pipes and folders in place of the files are errors, not waits") {
  const ScratchFolder folder;
  const TuningFile file(folder.path());
  REQUIRE(::mkfifo(folder.file("plan.jsonl").c_str(), 0600) == 0);
  CHECK(require(file.read()).measurements.empty());
  CHECK(requireError(file.append(sampleMeasurement("a", 0))).code == ErrorCode::Corrupt);
  REQUIRE(::mkfifo(folder.file("plan.json").c_str(), 0600) == 0);
  CHECK(requireError(file.read()).code == ErrorCode::Corrupt);
}

TEST_CASE("Processes and threads that append and fold at the same time lose nothing") {
  const ScratchFolder folder;
  constexpr int kWriters = 6;
  constexpr int kEach = 20;
  const auto write = [&](int writer) {
    const TuningFile file(folder.path());
    for (int i = 0; i < kEach; ++i) {
      if (llvm::Error error = file.append(sampleMeasurement("run" + std::to_string(writer), i))) ::_exit(1);
      if (i % 5 == writer % 5)
        if (llvm::Error error = file.fold({})) ::_exit(1);
    }
  };
  std::vector<pid_t> children;
  for (int writer = 0; writer < kWriters / 2; ++writer) children.push_back(startProcess([&] { write(writer); }));
  std::vector<std::thread> threads;
  for (int writer = kWriters / 2; writer < kWriters; ++writer) threads.emplace_back([&, writer] { write(writer); });
  for (std::thread& thread : threads) thread.join();
  for (const pid_t child : children) {
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  const TuningDocument document = require(TuningFile(folder.path()).read());
  for (int writer = 0; writer < kWriters; ++writer) CHECK(countOf(document, "run" + std::to_string(writer)) == kEach);
}

TEST_CASE("A writer that is killed at any moment loses at most the measurement in progress") {
  const ScratchFolder folder;
  const TuningFile file(folder.path());
  int64_t known = 0;
  for (int attempt = 0; attempt < 20; ++attempt) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const std::string run = "run" + std::to_string(attempt);
    const pid_t child = startProcess([&] {
      for (int64_t i = 0;; ++i) {
        if (file.append(sampleMeasurement(run, i))) ::_exit(1);
        if (i % 3 == 2 && file.fold({})) ::_exit(1);
        // Told only after it was kept.
        if (::write(ends[1], "x", 1) != 1) ::_exit(1);
      }
    });
    ::close(ends[1]);
    char byte = 0;
    REQUIRE(::read(ends[0], &byte, 1) == 1);
    ::usleep(static_cast<useconds_t>(attempt) * 700);
    ::kill(child, SIGKILL);
    int64_t told = 1;
    while (::read(ends[0], &byte, 1) == 1) ++told;
    ::close(ends[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    const TuningDocument document = require(file.read());
    CHECK(countOf(document, run) >= told);
    CHECK(static_cast<int64_t>(document.measurements.size()) >= known);
    known = static_cast<int64_t>(document.measurements.size());
  }
}
