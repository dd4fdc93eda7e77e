//===- tests/unit/plan_time_test.cpp - How long it takes to have a plan ---===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
//
// Prints the phases of making a plan: cold, from the disk and from memory. The first plan of a process is measured, so
// this is a program of its own, and what must happen before happens in a child. The bounds are generous, for machines
// that are busy; docs/performance.md has the times of a quiet one.
//
//===----------------------------------------------------------------------===//
#include "generator/PlanGraph.h"
#include "tests/support/RuntimeSamples.h"

#include "llvm/Support/MemoryBuffer.h"

#include <chrono>
#include <iostream>
#include <sys/wait.h>
#include <unistd.h>

using namespace lathe;
using namespace lathe::test;

namespace {

/// The output layer of Llama 3 8B.
const Workload kWorkload{.hidden = 4096, .vocab = 128256, .dtype = DType::BF16};
constexpr Shape kShape{.sequences = 4, .tokens = 1024};
constexpr CompilerOptions kOptions{.spillLimit = kToleratedSpill};

/// Milliseconds that `body` takes, printed under `name`.
template <class Body> double timed(const char* name, Body body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
  std::cout << llvm::formatv("{0,-58} {1,10:F3} ms\n", name, time.count()).str();
  return time.count();
}

/// The libraries of this machine as a program would find them, but for the driver.
LibraryOpeners openersFor(const FakeDriver& fake) {
  LibraryOpeners openers = LibraryOpeners::fromEnvironment(Environment::fromProcess());
  openers.driver = [&fake]() -> llvm::Expected<Driver> { return fake.table(); };
  return openers;
}

void makePlanOn(Runtime::Implementation& runtime) {
  require(runtime.plan(kWorkload, kShape, {}, std::nullopt));
}

/// Runs `body` in a child process; it must return true.
template <class Body> void inChild(Body body) {
  std::cout.flush();
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    bool isGood = false;
    try {
      isGood = body();
    } catch (...) {
      std::cout << "an assertion failed\n";
    }
    std::cout.flush();
    ::_exit(isGood ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
}

/// Whether NVRTC is open in this process.
bool isNvrtcOpen() {
  auto maps = llvm::MemoryBuffer::getFileAsStream("/proc/self/maps");
  return maps && (*maps)->getBuffer().contains("libnvrtc.so");
}

} // namespace

TEST_CASE("a plan is made in seconds when nothing is there, in milliseconds from the disk, in microseconds again") {
  const ScratchFolder folder;
  inChild([&] {
    FakeDriver fake;
    Runtime::Implementation runtime(quietEnvironment(folder.path()), kOptions, openersFor(fake));
    return timed("cold: generated, compiled, stored", [&] { makePlanOn(runtime); }) < 60e3;
  });

  FakeDriver fake;
  const LibraryOpeners openers = openersFor(fake);
  Runtime::Implementation runtime(quietEnvironment(folder.path()), kOptions, openers);
  CHECK(timed("from the disk, the first of a process", [&] { makePlanOn(runtime); }) < 500);
  // Opening a library of a hundred megabytes would be most of that time.
  if (openers.nvrtcVersion()) CHECK_FALSE(isNvrtcOpen());
  Runtime::Implementation second(quietEnvironment(folder.path()), kOptions, openers);
  timed("from the disk, the second of a process", [&] { makePlanOn(second); });

  std::optional<PlanGraph> graph;
  const Target target = require(parseTarget("sm_90a"));
  timed("  of that: steps and configs", [&] { graph = require(makePlan(kWorkload, kShape, target, {})); });
  std::vector<Specialization> sources;
  timed("  of that: sources", [&] {
    for (const KernelKind kind : graph->kernels())
      sources.push_back(specialize(kind, kWorkload, target, graph->choices.configs));
  });
  const Cache cache(folder.path(), {}, [](llvm::StringRef) {});
  KernelStore store(&cache, openers.nvrtc, kOptions, [](llvm::StringRef) {}, openers.nvrtcVersion);
  std::vector<KernelPointer> kernels;
  timed("  of that: kernels read and verified", [&] { kernels = require(store.get(sources, kWorkload)); });
  for (const KernelPointer& kernel : kernels) CHECK(kernel->origin == KernelOrigin::Cache);

  constexpr int kLookups = 1000;
  const double lookups = timed("from memory, 1000 times", [&] {
    for (int i = 0; i < kLookups; ++i) makePlanOn(runtime);
  });
  CHECK(lookups / kLookups < 0.2);
  timed("opening NVRTC, which a warm plan does without", [&] { require(openers.nvrtc()); });
}

TEST_CASE("the same on the GPU of this machine") {
  const ScratchFolder folder;
  const LibraryOpeners openers = LibraryOpeners::fromEnvironment(Environment::fromProcess());
  const auto openDevice = [&](Runtime::Implementation& runtime) -> llvm::Expected<DeviceContext> {
    llvm::Expected<std::shared_ptr<const Driver>> driver = runtime.driver();
    if (!driver) return driver.takeError();
    return DeviceContext::open(*driver, 0);
  };
  inChild([&] {
    Runtime::Implementation runtime(quietEnvironment(folder.path()), kOptions, openers);
    llvm::Expected<DeviceContext> device = openDevice(runtime);
    if (!device) {
      std::cout << "skipped: " << takeSummary(device.takeError()).message << '\n';
      return true;
    }
    timed("GPU: cold: generated, compiled, stored, loaded", [&] { makePlanOn(runtime); });
    return true;
  });
  inChild([&] {
    Runtime::Implementation runtime(quietEnvironment(folder.path()), kOptions, openers);
    std::optional<DeviceContext> device;
    const double opening = timed("GPU: driver and context", [&] {
      if (llvm::Expected<DeviceContext> opened = openDevice(runtime))
        device.emplace(std::move(*opened));
      else
        llvm::consumeError(opened.takeError());
    });
    if (!device) return opening < 60e3;
    const double first = timed("GPU: from the disk, the first of a process", [&] { makePlanOn(runtime); });
    Runtime::Implementation second(quietEnvironment(folder.path()), kOptions, openers);
    timed("GPU: from the disk, the second of a process", [&] { makePlanOn(second); });
    return first < 500;
  });
}
