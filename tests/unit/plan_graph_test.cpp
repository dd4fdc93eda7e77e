#include "generator/CostModel.h"
#include "generator/Workload.h"
#include "templates/common/arguments.cuh"
#include "tests/support/Failures.h"

#include <catch2/catch.hpp>

using namespace lathe;
using lathe::test::require;

namespace {

Workload workloadWith(bool softcap, bool bias) {
  Workload workload;
  workload.hidden = 512;
  workload.vocab = 10001;
  workload.softcap = softcap;
  workload.bias = workload.gradBias = bias;
  return workload;
}

const Target& hopper() {
  static const Target target = require(parseTarget("sm_90a"));
  return target;
}

std::vector<Step> stepsOf(const std::vector<Step>& steps, KernelKind kind) {
  std::vector<Step> result;
  for (const Step& step : steps)
    if (step.kind == kind) result.push_back(step);
  return result;
}

std::string errorOf(llvm::Expected<PlanGraph> plan) {
  REQUIRE_FALSE(static_cast<bool>(plan));
  return llvm::toString(plan.takeError());
}

} // namespace

TEST_CASE("Workspace regions are aligned, disjoint and inside the workspace") {
  for (const bool softcap : {false, true})
    for (const bool bias : {false, true})
      for (const int64_t tokens : {1, 100, 4097})
        for (const int64_t pairs : {1, 3}) {
          const PlanGraph plan = require(makePlan(workloadWith(softcap, bias), {6, tokens}, hopper(),
                                                  {.strategy = Strategy::Chunked, .chunkPairs = pairs}));
          int64_t end = 0;
          for (const WorkspaceRegion& region : plan.regions) {
            INFO(region.name);
            CHECK(region.offset % 256 == 0);
            CHECK(region.offset >= end);
            CHECK(region.bytes > 0);
            end = region.offset + region.bytes;
          }
          CHECK(end <= plan.workspaceBytes);
          CHECK((plan.findRegion("bias_partials") != nullptr) == bias);
        }
}

TEST_CASE("Chunks cover every pair once, in order") {
  for (const int64_t chunk : {1, 2, 3, 5}) {
    const PlanGraph plan = require(
        makePlan(workloadWith(false, true), {10, 64}, hopper(), {.strategy = Strategy::Chunked, .chunkPairs = chunk}));
    for (const std::vector<Step>* steps : {&plan.forwardBackward, &plan.backward})
      for (const KernelKind kind :
           {KernelKind::Logits, KernelKind::GradScale, KernelKind::GradLogits, KernelKind::GradWeight}) {
        int64_t next = 0;
        for (const Step& step : stepsOf(*steps, kind)) {
          CHECK(step.pairBegin == next);
          CHECK(step.pairEnd - step.pairBegin <= chunk);
          next = step.pairEnd;
        }
        CHECK(next == 5);
      }
    // The loss alone needs no chunks.
    CHECK(stepsOf(plan.forward, KernelKind::Logits).size() == 1);
    CHECK_FALSE(stepsOf(plan.forward, KernelKind::Logits).front().storesExponentials);
  }
}

TEST_CASE("Grids reach every row, tail rows and padding included") {
  for (const Shape shape : {Shape{2, 1}, Shape{4, 150}, Shape{8, 1024}})
    for (const bool softcap : {false, true}) {
      const PlanGraph plan = require(makePlan(workloadWith(softcap, true), shape, hopper()));
      CHECK(plan.rowCapacity() >= shape.rows());
      CHECK(plan.panelRows() % device::kRowPadding == 0);
      CHECK(plan.panelRows() >= shape.rows());
      CHECK(stepsOf(plan.forward, KernelKind::GatherRows)[0].grid[0] * 8 >= plan.rowCapacity() + device::kRowPadding);
      CHECK(stepsOf(plan.forward, KernelKind::Logsumexp)[0].grid[0] * 32 >= plan.rowCapacity());
      CHECK(stepsOf(plan.backward, KernelKind::GradLogits)[0].grid[1] * kGradLogitsRowsPerBlock >= plan.panelRows());
      CHECK(plan.findRegion("rows")->bytes >= (plan.rowCapacity() + device::kRowPadding) * 512 * 2);
    }
}

TEST_CASE("A workload without gradients keeps no exponentials") {
  Workload workload = workloadWith(false, false);
  workload.gradInput = workload.gradWeight = false;
  const PlanGraph plan = require(makePlan(workload, {4, 100}, hopper()));
  CHECK(plan.findRegion("exponentials") == nullptr);
  CHECK(plan.backward.empty());
  CHECK(plan.forwardBackward.empty());
}

TEST_CASE("A workspace limit is kept, or refused with what is needed") {
  const Workload workload = workloadWith(false, false);
  const Shape shape{16, 512};
  const PlanGraph stored = require(makePlan(workload, shape, hopper()));
  CHECK(stored.choices.strategy == Strategy::Stored);
  const PlanGraph single =
      require(makePlan(workload, shape, hopper(), {.strategy = Strategy::Chunked, .chunkPairs = 1}));
  CHECK(single.workspaceBytes < stored.workspaceBytes);

  for (int64_t limit = single.workspaceBytes; limit < stored.workspaceBytes; limit += stored.workspaceBytes / 7) {
    const PlanGraph plan = require(makePlan(workload, shape, hopper(), {.workspaceLimit = limit}));
    CHECK(plan.workspaceBytes <= limit);
    CHECK(plan.choices.strategy == Strategy::Chunked);
    // The largest chunk that fits: one more pair would not.
    if (plan.choices.chunkPairs < shape.pairs())
      CHECK(require(makePlan(workload, shape, hopper(),
                             {.strategy = Strategy::Chunked, .chunkPairs = plan.choices.chunkPairs + 1}))
                .workspaceBytes > limit);
  }
  const std::string message = errorOf(makePlan(workload, shape, hopper(), {.workspaceLimit = 1000}));
  CHECK(llvm::StringRef(message).contains(std::to_string(single.workspaceBytes)));
  CHECK(llvm::StringRef(message).contains("1000"));
}

TEST_CASE("Impossible plans are refused") {
  const Workload workload = workloadWith(false, false);
  CHECK(llvm::StringRef(errorOf(makePlan(workload, {3, 10}, hopper()))).contains("sequences is 3"));
  CHECK(
      llvm::StringRef(errorOf(makePlan(workload, {4, 10}, hopper(), {.strategy = Strategy::Chunked, .chunkPairs = 3})))
          .contains("3 pairs"));
  CHECK(llvm::StringRef(errorOf(makePlan(workload, {2, int64_t(1) << 31}, hopper()))).contains("tokens"));
}

TEST_CASE("The work of a plan is what the mathematics asks for") {
  const Workload workload = workloadWith(false, false);
  const PlanGraph plan = require(makePlan(workload, {4, 100}, hopper()));
  double flops = 0;
  for (const Step& step : plan.forwardBackward) flops += step.flops;
  CHECK(flops == Approx(3 * 2.0 * 400 * 512 * 10001));
}

TEST_CASE("Products have a block for every tile, or fill the device with whole clusters") {
  const auto tilesOf = [](int64_t extent, int tile) { return (extent + tile - 1) / tile; };
  for (const char* arch : {"sm_75", "sm_80", "sm_90a"})
    for (const bool softcap : {false, true})
      for (const Shape shape : {Shape{2, 1}, Shape{6, 150}, Shape{8, 1024}}) {
        const Target target = require(parseTarget(arch));
        const Workload workload = workloadWith(softcap, false);
        const PlanGraph plan = require(makePlan(workload, shape, target));
        INFO(arch << ", " << shape.rows() << " rows");
        for (const Step& step : plan.forwardBackward) {
          const auto check = [&](const Config& config, int64_t m, int64_t n) {
            if (config.family != Family::Wgmma) {
              CHECK(step.grid[0] == tilesOf(m, config.blockM) * tilesOf(n, config.blockN));
              return;
            }
            CHECK(step.grid[0] % config.clusterM == 0);
            CHECK(step.grid[0] <= target.multiprocessors);
            CHECK(step.grid[0] >=
                  std::min<int64_t>(tilesOf(m, config.blockM) * tilesOf(n, config.blockN), target.multiprocessors - 1));
          };
          const GemmConfigs& configs = plan.choices.configs;
          if (step.kind == KernelKind::Logits) check(configs.logits, plan.rowCapacity(), workload.vocab);
          if (step.kind == KernelKind::GradInput) check(configs.gradInput, shape.rows(), workload.hidden);
          if (step.kind == KernelKind::GradWeight) check(configs.gradWeight, workload.vocab, workload.hidden);
        }
        const int64_t partials = plan.rowCapacity() * tilesOf(workload.vocab, plan.choices.configs.logits.blockN);
        for (const char* name : {"tile_maximum", "tile_sum", "tile_logit_sum"})
          CHECK(plan.findRegion(name)->bytes == partials * 4);
        CHECK(plan.findRegion("exponentials")->bytes == plan.panelRows() * paddedVocab(workload) * 2);
      }
}

TEST_CASE("A stored plan computes the logits once, a chunked one again for the gradients") {
  const Workload workload = workloadWith(false, false);
  const PlanGraph stored = require(makePlan(workload, {8, 64}, hopper()));
  CHECK(stepsOf(stored.forward, KernelKind::Logits)[0].storesExponentials);
  CHECK(stepsOf(stored.backward, KernelKind::Logits).empty());
  CHECK(stepsOf(stored.forwardBackward, KernelKind::Logits).size() == 1);

  const PlanGraph chunked =
      require(makePlan(workload, {8, 64}, hopper(), {.strategy = Strategy::Chunked, .chunkPairs = 2}));
  CHECK_FALSE(stepsOf(chunked.forward, KernelKind::Logits)[0].storesExponentials);
  for (const std::vector<Step>* steps : {&chunked.backward, &chunked.forwardBackward}) {
    CHECK(stepsOf(*steps, KernelKind::Logits).size() == 2);
    for (const Step& step : stepsOf(*steps, KernelKind::Logits)) CHECK(step.storesExponentials);
    // The rows of a chunk are dense only in what that chunk wrote; what covers the batch runs once, after all of them.
    CHECK(stepsOf(*steps, KernelKind::ZeroMaskedRows).size() == 1);
  }
  CHECK(stored.kernels() == chunked.kernels());
}

TEST_CASE("Rows that wgmma kernels cannot address at once are taken in chunks") {
  Workload workload;
  workload.hidden = 64;
  workload.vocab = 262144;
  const Shape shape{64, 8192};
  const std::string message = errorOf(makePlan(workload, shape, hopper(), {.strategy = Strategy::Stored}));
  CHECK(llvm::StringRef(message).contains("use chunks of fewer than 32 pairs"));
  CHECK(require(makePlan(workload, shape, hopper())).choices.strategy == Strategy::Chunked);
  const PlanGraph roomy = require(makePlan(workload, shape, hopper(), {.workspaceLimit = int64_t(1) << 50}));
  CHECK(roomy.choices.chunkPairs == 31);
  const PlanGraph tight = require(makePlan(workload, shape, hopper(), {.workspaceLimit = int64_t(40) << 30}));
  CHECK(tight.workspaceBytes <= int64_t(40) << 30);
}
