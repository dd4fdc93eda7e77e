#include "generator/CostModel.h"
#include "generator/Workload.h"
#include "tests/support/Failures.h"

#include <catch2/catch.hpp>

#include <cmath>

using namespace lathe;
using lathe::test::require;
using lathe::test::requireError;

namespace {

constexpr Gemm kGemms[] = {Gemm::Logits, Gemm::GradInput, Gemm::GradWeight};

Workload workloadOf(DType dtype, int64_t hidden, int64_t vocab) {
  Workload workload;
  workload.hidden = hidden;
  workload.vocab = vocab;
  workload.dtype = workload.gradWeightDType = dtype;
  return workload;
}

} // namespace

TEST_CASE("The three products have the same work, and the extents of their results") {
  const Workload workload = workloadOf(DType::BF16, 512, 1000);
  for (const Gemm gemm : kGemms) {
    const GemmExtents extents = gemmExtents(gemm, workload, 64);
    CHECK(extents.m * extents.n * extents.k == 64 * 512 * 1000);
  }
  CHECK(gemmExtents(Gemm::Logits, workload, 64).n == 1000);
  CHECK(gemmExtents(Gemm::GradInput, workload, 64).m == 64);
  CHECK(gemmExtents(Gemm::GradWeight, workload, 64).m == 1000);
}

TEST_CASE("Batches between two powers of two share their configs") {
  for (const char* arch : {"sm_75", "sm_80", "sm_90a", "sm_120"})
    for (const DType dtype : {DType::BF16, DType::FP32}) {
      const Workload workload = workloadOf(dtype, 2048, 50257);
      const Target target = require(parseTarget(arch));
      const GemmConfigs configs = require(chooseConfigs(workload, target, 4096));
      for (const int64_t rows : {2049, 3000, 4095}) CHECK(require(chooseConfigs(workload, target, rows)) == configs);
    }
}

TEST_CASE("More rows never take less time") {
  const Workload workload = workloadOf(DType::BF16, 2048, 50257);
  for (const char* arch : {"sm_75", "sm_80", "sm_90a"}) {
    const Target target = require(parseTarget(arch));
    for (const Gemm gemm : kGemms)
      for (const Config& config : searchSpace(gemm, workload, target)) {
        double previous = 0;
        for (const int64_t rows : {1, 64, 1000, 4096, 30000}) {
          const double seconds = predictSeconds(config, gemm, workload, target, rows);
          INFO(arch << " " << toString(config) << " " << rows << " rows");
          CHECK(std::isfinite(seconds));
          CHECK(seconds > 0);
          CHECK(seconds >= previous);
          previous = seconds;
        }
      }
  }
}

TEST_CASE("A chosen config is predicted no slower than any other") {
  const Workload workload = workloadOf(DType::FP16, 1024, 32000);
  const Target target = require(parseTarget("sm_90a"));
  const GemmConfigs chosen = require(chooseConfigs(workload, target, 1024));
  for (const Gemm gemm : kGemms)
    for (const Config& config : searchSpace(gemm, workload, target))
      CHECK(predictSeconds(chosen.of(gemm), gemm, workload, target, 1024) <=
            predictSeconds(config, gemm, workload, target, 1024));
}

TEST_CASE("A target without room for any tile is refused with what it has") {
  Target tiny = require(parseTarget("sm_80"));
  tiny.sharedPerBlock = 1000;
  const ErrorSummary error = requireError(chooseConfigs(workloadOf(DType::BF16, 64, 100), tiny, 64));
  CHECK(error.code == ErrorCode::Unsupported);
  CHECK_THAT(error.message, Catch::Contains("logits") && Catch::Contains("sm_80") && Catch::Contains("1000 bytes"));
}

TEST_CASE("What a request asks for is what the plan has, or an error") {
  const Workload workload = workloadOf(DType::BF16, 256, 5000);
  const Target target = require(parseTarget("sm_80"));
  const Shape shape{8, 100};
  const auto plan = [&](const PlanRequest& request) { return makePlan(workload, shape, target, request); };

  // Without a limit, chunks of a single pair.
  CHECK(require(plan({.strategy = Strategy::Chunked})).choices.chunkPairs == 1);
  const PlanGraph stored = require(plan({.strategy = Strategy::Stored}));
  CHECK(stored.choices.chunkPairs == 4);
  const ErrorSummary small =
      requireError(plan({.workspaceLimit = stored.workspaceBytes - 1, .strategy = Strategy::Stored}));
  CHECK(small.code == ErrorCode::Workspace);
  CHECK_THAT(small.message, Catch::Contains(std::to_string(stored.workspaceBytes)) && Catch::Contains("stored"));
  CHECK(require(plan({.workspaceLimit = stored.workspaceBytes})).choices == stored.choices);

  const Config simt{Family::Simt, 64, 64, 16, 2, 2, 4, 1, 1, 8};
  CHECK(require(plan({.configs = GemmConfigs{simt, simt, simt}})).choices.configs.logits == simt);
  const Config wgmma{Family::Wgmma, 128, 128, 64, 4, 8, 1, 1, 1, 8};
  const ErrorSummary illegal = requireError(plan({.configs = GemmConfigs{simt, wgmma, simt}}));
  CHECK_THAT(illegal.message, Catch::Contains("sm_90a") && Catch::Contains("grad_input"));
}
