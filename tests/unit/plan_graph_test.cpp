#include "generator/CostModel.h"
#include "generator/Workload.h"
#include "templates/common/arguments.cuh"
#include "tests/support/Failures.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <random>
#include <set>

using namespace lathe;
using lathe::test::require;
using lathe::test::requireError;

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
      for (const KernelKind kind : {KernelKind::Logits, KernelKind::GradLogits, KernelKind::GradWeight}) {
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
      CHECK(stepsOf(plan.forward, KernelKind::Loss)[0].grid[0] * 32 >= plan.rowCapacity());
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
  const PlanGraph unlimited = require(makePlan(workload, shape, hopper(), {.workspaceLimit = INT64_MAX}));
  CHECK(unlimited.choices.chunkPairs == 31);
  const PlanGraph tight = require(makePlan(workload, shape, hopper(), {.workspaceLimit = int64_t(40) << 30}));
  CHECK(tight.workspaceBytes <= int64_t(40) << 30);
}

TEST_CASE("A stored plan's regions are aligned, disjoint and inside the workspace too") {
  for (const Target& target : knownTargets())
    for (const DType dtype : {DType::BF16, DType::FP16, DType::FP32})
      for (const bool gradients : {false, true}) {
        Workload workload = workloadWith(true, gradients);
        workload.dtype = workload.gradWeightDType = dtype;
        workload.gradInput = workload.gradWeight = gradients;
        const PlanGraph plan = require(makePlan(workload, {6, 33}, target));
        INFO(target.arch() << " " << toString(dtype).str());
        std::set<std::string> names;
        int64_t end = 0;
        for (const WorkspaceRegion& region : plan.regions) {
          CHECK(names.insert(region.name).second);
          CHECK(plan.findRegion(region.name) == &region);
          CHECK(region.offset % 256 == 0);
          CHECK(region.offset >= end);
          CHECK(region.bytes > 0);
          end = region.offset + region.bytes;
        }
        CHECK(end <= plan.workspaceBytes);
        CHECK(plan.workspaceBytes - end < 256);
        CHECK(plan.findRegion("no such region") == nullptr);
      }
}

TEST_CASE("Grids of steps that are not products reach all they must, chunk by chunk") {
  for (const Shape shape : {Shape{2, 1}, Shape{10, 77}, Shape{6, 4097}})
    for (const int64_t chunk : {int64_t(1), shape.pairs()}) {
      const Workload workload = workloadWith(false, true);
      const PlanGraph plan =
          require(makePlan(workload, shape, hopper(), {.strategy = Strategy::Chunked, .chunkPairs = chunk}));
      INFO(shape.sequences << " x " << shape.tokens << ", chunks of " << chunk);
      for (const Step& step : plan.forwardBackward) {
        const int64_t rows = 2 * (step.pairEnd - step.pairBegin) * shape.tokens;
        switch (step.kind) {
        case KernelKind::Loss:
          CHECK(step.grid[0] * 32 >= rows);
          break;
        case KernelKind::GradLogits:
          CHECK(step.grid[0] * 64 == paddedVocab(workload));
          CHECK(step.grid[1] * kGradLogitsRowsPerBlock >= rows);
          break;
        case KernelKind::GradBias:
          CHECK(step.grid[0] * 256 >= workload.vocab);
          break;
        case KernelKind::GatherRows:
          CHECK(step.grid[0] >= (shape.rows() + device::kRowPadding) / 8 + 2 * workload.hidden / 64);
          break;
        default:
          break;
        }
        for (const int64_t blocks : step.grid) CHECK(blocks >= 1);
      }
      // Every chunk's row blocks have a row of partial sums.
      int64_t partials = 0;
      for (const Step& step : stepsOf(plan.forwardBackward, KernelKind::GradLogits)) partials += step.grid[1];
      CHECK(plan.findRegion("bias_partials")->bytes >= partials * paddedVocab(workload) * 4);
    }
}

TEST_CASE("The steps of one call are those of the two calls") {
  for (const Strategy strategy : {Strategy::Stored, Strategy::Chunked}) {
    const PlanGraph plan = require(makePlan(workloadWith(false, true), {6, 100}, hopper(), {.strategy = strategy}));
    for (const KernelKind kind : plan.kernels()) {
      INFO(toString(kind).str());
      CHECK_FALSE(stepsOf(plan.forwardBackward, kind).empty());
      const bool inForward = !stepsOf(plan.forward, kind).empty();
      const bool inBackward = !stepsOf(plan.backward, kind).empty();
      CHECK((inForward || inBackward));
      // Only chunked gradients need the logits again.
      CHECK((inForward && inBackward) == (kind == KernelKind::Logits && strategy == Strategy::Chunked));
    }
    for (const Step& step : plan.forward) CHECK(step.pass == Pass::Forward);
    for (const Step& step : plan.backward) CHECK(step.pass == Pass::Backward);
  }
}

TEST_CASE("A limit is met by the largest chunk that fits, or the error names the leanest, whatever the shape") {
  std::mt19937 random(1);
  for (int i = 0; i < 40; ++i) {
    Workload workload = workloadWith(false, true);
    workload.hidden = 64;
    workload.vocab = 2000;
    // With few tokens a sequence, small chunks need more room for partial sums than they save.
    const Shape shape{int64_t(2 * (1 + random() % 30)), int64_t(1 + random() % 40)};
    const auto planOf = [&](int64_t pairs) {
      return require(makePlan(workload, shape, hopper(), {.strategy = Strategy::Chunked, .chunkPairs = pairs}));
    };
    std::vector<int64_t> bytes;
    for (int64_t pairs = 1; pairs <= shape.pairs(); ++pairs) bytes.push_back(planOf(pairs).workspaceBytes);
    const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
    INFO(shape.sequences << " x " << shape.tokens);
    for (int step = 0; step <= 4; ++step) {
      const int64_t limit = *least + (*most - *least) * step / 4;
      int64_t largest = 0;
      for (int64_t pairs = 1; pairs <= shape.pairs(); ++pairs)
        if (bytes[pairs - 1] <= limit) largest = pairs;
      const PlanGraph plan =
          require(makePlan(workload, shape, hopper(), {.workspaceLimit = limit, .strategy = Strategy::Chunked}));
      CHECK(plan.choices.chunkPairs == largest);
      CHECK(plan.workspaceBytes <= limit);
    }
    const ErrorSummary error = requireError(makePlan(workload, shape, hopper(), {.workspaceLimit = *least - 1}));
    CHECK(error.code == ErrorCode::Workspace);
    CHECK_THAT(error.message, Catch::Contains(std::to_string(*least)) && Catch::Contains(std::to_string(*least - 1)));
  }
}

TEST_CASE("A batch of very many pairs is taken in chunks that a plan can list") {
  Workload workload = workloadWith(false, false);
  workload.hidden = 8;
  workload.vocab = 2;
  const Shape shape{200000000, 1};
  const ErrorSummary error =
      requireError(makePlan(workload, shape, hopper(), {.strategy = Strategy::Chunked, .chunkPairs = 1}));
  CHECK(error.code == ErrorCode::InvalidArgument);
  CHECK_THAT(error.message, Catch::Contains("100000000 chunks") && Catch::Contains("at least 1526 pairs"));
  const PlanGraph plan = require(makePlan(workload, shape, hopper(), {.strategy = Strategy::Chunked}));
  CHECK(plan.choices.chunkPairs == 1526);
  CHECK_THAT(errorOf(makePlan(workload, shape, hopper(), {.workspaceLimit = 1000})), Catch::Contains("1000"));
}

TEST_CASE("Sizes that no memory holds are refused, not wrapped round") {
  Workload workload;
  workload.hidden = workload.vocab = INT32_MAX - 1024;
  workload.dtype = workload.gradWeightDType = DType::FP32;
  for (const Shape shape : {Shape{2, 1073741311}, Shape{2147482622, 1}, Shape{32768, 32768}})
    for (const std::optional<int64_t> limit : {std::optional<int64_t>(), std::optional<int64_t>(INT64_MAX)}) {
      const ErrorSummary error = requireError(makePlan(workload, shape, hopper(), {.workspaceLimit = limit}));
      CHECK(error.code == ErrorCode::Unsupported);
      CHECK_THAT(error.message, Catch::Contains("2147482623") && Catch::Contains("fewer tokens"));
    }
  CHECK_THAT(errorOf(makePlan(workload, {2, 1}, hopper())),
             Catch::Contains("grad_weight") && Catch::Contains("smaller H or V"));
  // Few rows of them are only large.
  workload.gradWeight = false;
  const PlanGraph plan = require(makePlan(workload, {2, 1}, hopper()));
  CHECK(plan.findRegion("exponentials")->bytes == plan.panelRows() * paddedVocab(workload) * 4);
}

TEST_CASE("One pair with too many rows is told to use fewer tokens") {
  Workload workload;
  workload.hidden = 64;
  workload.vocab = 262144;
  const std::string message = errorOf(makePlan(workload, {2, 1 << 19}, hopper()));
  CHECK_THAT(message, Catch::Contains("fewer than 524288 tokens"));
}

TEST_CASE("Strategies have names that read back") {
  for (const Strategy strategy : {Strategy::Stored, Strategy::Chunked})
    CHECK(require(parseStrategy(toString(strategy))) == strategy);
  CHECK_THAT(requireError(parseStrategy("recompute")).message,
             Catch::Contains("\"recompute\"") && Catch::Contains("stored or chunked"));
}
