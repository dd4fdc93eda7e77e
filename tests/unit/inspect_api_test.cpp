//===- tests/unit/inspect_api_test.cpp - Inspecting through liblathe --------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "lathe/inspect.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>

using namespace lathe;
using Catch::Contains;

namespace {

/// A cache that is removed with its content at the end.
class ScratchCache {
public:
  ScratchCache() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lathe-test-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()));
    path = pattern;
  }
  ~ScratchCache() { std::filesystem::remove_all(path); }
  ScratchCache(const ScratchCache&) = delete;
  ScratchCache& operator=(const ScratchCache&) = delete;

  RuntimeOptions options() const { return {.cacheDir = path}; }
  std::string path;
};

const Workload kWorkload{.hidden = 128, .vocab = 1000};
constexpr Shape kShape{.sequences = 2, .tokens = 32};

ErrorCode codeOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Exception& error) {
    CHECK(std::string(error.what()).size() > 10);
    return error.code();
  }
  FAIL("an exception was expected");
  return ErrorCode::Internal;
}

} // namespace

TEST_CASE("A program takes a kernel apart, compares it, and finds out where it comes from") {
  const ScratchCache cache;
  const PlanInspection plan =
      inspectPlan(kWorkload, kShape, {.arch = "sm_80", .step = "logits", .runtime = cache.options()});
  REQUIRE(plan.kernels.size() == 1);
  const KernelInspection& kernel = plan.kernels.front();
  CHECK(kernel.step == "logits");
  CHECK(kernel.resources.registers > 0);
  CHECK_FALSE(kernel.ptx.empty());

  const PlanInspection other = inspectPlan(kWorkload, kShape,
                                           {.arch = "sm_80",
                                            .step = "logits",
                                            .configJson = R"({"family":"simt","block_m":64,"block_n":64,"block_k":16,)"
                                                          R"("stages":2,"warps_m":2,"warps_n":4,"cluster_m":1,)"
                                                          R"("blocks_per_multiprocessor":1,"group_m":8})",
                                            .runtime = cache.options()});
  const KernelComparison comparison = compareKernels(kernel, other.kernels.front());
  CHECK(std::any_of(comparison.figures.begin(), comparison.figures.end(),
                    [](const ComparedFigure& figure) { return figure.name == "family" && figure.differs(); }));

  for (const auto& file : std::filesystem::recursive_directory_iterator(cache.path)) {
    if (file.path().extension() != ".cubin") continue;
    const KernelExplanation explanation = explainCubin(file.path().string(), cache.options());
    CHECK(explanation.known);
    CHECK(explanation.step == "logits");
    CHECK(explanation.workloadDigest == plan.workloadDigest);
  }
  CHECK_THAT(inspectionJson(plan, false), Contains("\"registers\"") && !Contains("\"ptx\""));
  CHECK_THAT(inspectionJson(plan, true), Contains("\"ptx\""));
  CHECK_THAT(inspectionHtml(plan), Contains("<!doctype html>"));
}

TEST_CASE("What is asked wrongly is thrown as an exception") {
  const ScratchCache cache;
  const RuntimeOptions runtime = cache.options();
  const auto inspect = [&](const Workload& workload, const InspectOptions& options) {
    return codeOf([&] { inspectPlan(workload, kShape, options); });
  };
  CHECK(inspect(kWorkload, {.arch = "sm_1", .runtime = runtime}) == ErrorCode::InvalidArgument);
  CHECK(inspect(kWorkload, {.arch = "sm_80", .step = "nonsense", .runtime = runtime}) == ErrorCode::InvalidArgument);
  CHECK(inspect({}, {.arch = "sm_80", .runtime = runtime}) == ErrorCode::InvalidWorkload);
  CHECK(inspect(kWorkload, {.arch = "sm_80", .step = "logits", .configJson = "{", .runtime = runtime}) ==
        ErrorCode::InvalidArgument);
  CHECK(codeOf([&] { explainCubin("ffff", runtime); }) == ErrorCode::InvalidArgument);
}
