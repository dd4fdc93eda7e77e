//===- tests/unit/launch_test.cpp - From a plan to launches ---------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tests/support/RuntimeSamples.h"
#include "tests/support/ValidationCases.h"

#include "llvm/ADT/STLExtras.h"

#include <set>

using namespace lathe;
using namespace lathe::test;
using Catch::Matchers::Contains;

namespace {

const Target& hopper() {
  static const Target target = require(parseTarget("sm_90a"));
  return target;
}

PlanGraph smallPlan(const PlanRequest& request = {}) {
  return require(makePlan(smallWorkload(), kSmallShape, hopper(), request));
}

constexpr PlanRequest kChunked{.strategy = Strategy::Chunked, .chunkPairs = 2};

void* misaligned(const void* pointer, uintptr_t by) {
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(pointer) + by);
}

//===----------------------------------------------------------------------===//
// Pointers of parameters
//===----------------------------------------------------------------------===//

/// A pointer of a parameter and the region of the workspace that it must be the start of.
struct RegionPointer {
  const void* value;
  const char* region;
};

using RegionPointers = std::vector<RegionPointer>;

void append(RegionPointers& to, const device::RowTables& tables) {
  to.insert(to.end(), {{tables.state, "state"},
                       {tables.slotStart, "slot_start"},
                       {tables.rowToken, "row_token"},
                       {tables.rowTarget, "row_target"},
                       {tables.maskedToken, "masked_token"}});
}
void append(RegionPointers& to, const device::TilePartials& partials) {
  to.insert(to.end(),
            {{partials.maximum, "tile_maximum"}, {partials.sum, "tile_sum"}, {partials.logitSum, "tile_logit_sum"}});
}
void append(RegionPointers& to, const device::PairTables& pairs) {
  to.insert(to.end(), {{pairs.slotMean, "slot_mean"},
                       {pairs.slotSum, "slot_sum"},
                       {pairs.slotLogitSum, "slot_logit_sum"},
                       {pairs.pairLoss, "pair_loss"},
                       {pairs.slotCoefficient, "slot_coefficient"}});
}
void append(RegionPointers& to, const device::RowResults& rows) {
  to.insert(to.end(), {{rows.logsumexp, "row_logsumexp"}, {rows.logp, "row_logp"}, {rows.logitSum, "row_logit_sum"}});
}
template <class... Parts> RegionPointers regionsOf(const Parts&... parts) {
  RegionPointers pointers;
  (append(pointers, parts), ...);
  return pointers;
}
RegionPointers operator+(RegionPointers left, const RegionPointers& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

// One overload for each kernel.
RegionPointers pointersOf(const device::RowMapArguments& p) {
  return regionsOf(p.tables) + RegionPointers{{p.targetLogit, "target_logit"}};
}
RegionPointers pointersOf(const device::GatherRowsArguments& p) {
  return regionsOf(p.tables) + RegionPointers{{p.rows, "rows"}};
}
RegionPointers pointersOf(const device::LogitsArguments& p) {
  RegionPointers pointers =
      regionsOf(p.tables, p.partials) + RegionPointers{{p.rows, "rows"}, {p.targetLogit, "target_logit"}};
  if (p.exponentials.data) pointers.push_back({p.exponentials.data, "exponentials"});
  return pointers;
}
RegionPointers pointersOf(const device::LossArguments& p) {
  return regionsOf(p.tables, p.partials, p.rows, p.pairs) + RegionPointers{{p.targetLogit, "target_logit"}};
}
RegionPointers pointersOf(const device::GradLogitsArguments& p) {
  return regionsOf(p.tables, p.partials) + RegionPointers{{p.panels.data, "exponentials"},
                                                          {p.rowLogsumexp, "row_logsumexp"},
                                                          {p.targetLogit, "target_logit"},
                                                          {p.slotCoefficient, "slot_coefficient"}};
}
RegionPointers pointersOf(const device::GradBiasArguments& p) {
  return {{p.biasPartials, "bias_partials"}};
}
RegionPointers pointersOf(const device::GradInputArguments& p) {
  return regionsOf(p.tables) + RegionPointers{{p.panels.data, "exponentials"}};
}
RegionPointers pointersOf(const device::GradWeightArguments& p) {
  return regionsOf(p.tables) + RegionPointers{{p.panels.data, "exponentials"}, {p.rows, "rows"}};
}

/// The start of a region of the workspace of `run`; null when the plan has none.
const void* startOf(const PlanGraph& plan, const RunArguments& run, llvm::StringRef region) {
  const WorkspaceRegion* found = plan.findRegion(region);
  return found ? static_cast<const char*>(run.workspace) + found->offset : nullptr;
}

/// All passes of `plan`.
std::vector<const std::vector<Step>*> passesOf(const PlanGraph& plan) {
  return {&plan.forward, &plan.backward, &plan.forwardBackward};
}

/// The parameters, of type `Parameter`, of all steps of `steps` that take one.
template <class Parameter>
std::vector<Parameter> parametersOf(const PlanGraph& plan, const std::vector<Step>& steps, const RunArguments& run) {
  const WorkspaceOffsets offsets(plan);
  const StepBinder binder(plan, offsets, run);
  std::vector<Parameter> result;
  for (const Step& step : steps)
    binder.bind(step, [&](const auto& parameter) {
      if constexpr (std::is_same_v<std::decay_t<decltype(parameter)>, Parameter>) result.push_back(parameter);
    });
  return result;
}

template <class Arguments> std::vector<std::array<int, 3>> rangesOf(const std::vector<Arguments>& parameters) {
  std::vector<std::array<int, 3>> ranges;
  for (const Arguments& parameter : parameters)
    ranges.push_back({parameter.slots.begin, parameter.slots.end, parameter.slots.withTail});
  return ranges;
}

} // namespace

//===----------------------------------------------------------------------===//
// checkArguments
//===----------------------------------------------------------------------===//

TEST_CASE("good arguments pass every check") {
  const PlanGraph plan = smallPlan();
  RunArguments run = addressesFor(plan);
  require(checkArguments(plan, run, {.loss = true, .gradients = true}));
  // The loss alone needs no gradients; no result is needed at all.
  run.gradInput = run.gradWeight = run.gradBias = nullptr;
  run.loss = run.perTokenLogps = nullptr;
  require(checkArguments(plan, run, {.loss = true, .gradients = false}));
}

TEST_CASE("a pointer that every run needs must be there") {
  const PlanGraph plan = smallPlan();
  const struct {
    const char* name;
    void (*clear)(RunArguments&);
  } pointers[] = {
      {"input", [](RunArguments& run) { run.input = nullptr; }},
      {"weight", [](RunArguments& run) { run.weight = nullptr; }},
      {"target", [](RunArguments& run) { run.target = nullptr; }},
      {"workspace", [](RunArguments& run) { run.workspace = nullptr; }},
  };
  for (const auto& pointer : pointers) {
    RunArguments run = addressesFor(plan);
    pointer.clear(run);
    const ErrorSummary error = requireError(checkArguments(plan, run, {.loss = true}));
    CHECK(error.code == ErrorCode::InvalidArgument);
    CHECK(error.message == std::string(pointer.name) + " is null; every run needs it");
  }
}

TEST_CASE("what the workload has must be handed over, and what it lacks must not") {
  const PlanGraph full = smallPlan();
  Workload lean = smallWorkload();
  lean.bias = lean.gradBias = lean.logitMeans = lean.gradInput = false;
  const PlanGraph partial = require(makePlan(lean, kSmallShape, hopper()));

  const auto messageOf = [](const PlanGraph& plan, const RunArguments& run) {
    const ErrorSummary error = requireError(checkArguments(plan, run, {.loss = true, .gradients = true}));
    CHECK(error.code == ErrorCode::InvalidArgument);
    return error.message;
  };
  const struct {
    const char* name;
    const char* missing;
    const char* unwanted;
    void (*set)(RunArguments&, void*);
  } pointers[] = {
      {"bias", "bias is null; the workload has a bias", "but the workload has no bias; pass null",
       [](RunArguments& run, void* value) { run.bias = value; }},
      {"gradInput", "gradInput is null; the workload has this gradient",
       "but the workload has no such gradient; pass null",
       [](RunArguments& run, void* value) { run.gradInput = value; }},
      {"gradBias", "gradBias is null; the workload has this gradient",
       "but the workload has no such gradient; pass null",
       [](RunArguments& run, void* value) { run.gradBias = value; }},
      {"chosenLogitsMean", nullptr, "but the workload has no logit means; pass null",
       [](RunArguments& run, void* value) { run.chosenLogitsMean = static_cast<float*>(value); }},
      {"rejectedLogitsMean", nullptr, "but the workload has no logit means; pass null",
       [](RunArguments& run, void* value) { run.rejectedLogitsMean = static_cast<float*>(value); }},
  };
  for (const auto& pointer : pointers) {
    RunArguments without = addressesFor(full);
    pointer.set(without, nullptr);
    if (pointer.missing)
      CHECK(messageOf(full, without) == pointer.missing);
    else
      require(checkArguments(full, without, {.loss = true, .gradients = true}));
    RunArguments with = addressesFor(partial);
    pointer.set(with, reinterpret_cast<void*>(0x4000));
    CHECK(messageOf(partial, with) == std::string(pointer.name) + " is 0x0000000000004000, " + pointer.unwanted);
  }

  RunArguments noWeightGradient = addressesFor(full);
  noWeightGradient.gradWeight = nullptr;
  CHECK(messageOf(full, noWeightGradient) == "gradWeight is null; the workload has this gradient");
  // The gradients that a workload has may be missing where only the loss is wanted.
  require(checkArguments(full, noWeightGradient, {.loss = true}));
}

TEST_CASE("a weight gradient that the workload lacks is refused") {
  Workload workload = smallWorkload();
  workload.gradWeight = false;
  const PlanGraph plan = require(makePlan(workload, kSmallShape, hopper()));
  RunArguments run = addressesFor(plan);
  run.gradWeight = reinterpret_cast<void*>(0x4000);
  CHECK(requireError(checkArguments(plan, run, {.loss = true})).message ==
        "gradWeight is 0x0000000000004000, but the workload has no such gradient; pass null");
}

TEST_CASE("every pointer must be aligned") {
  const PlanGraph plan = smallPlan();
  const struct {
    const char* name;
    int alignment;
    void (*shift)(RunArguments&, uintptr_t);
  } pointers[] = {
      {"input", 16, [](RunArguments& run, uintptr_t by) { run.input = misaligned(run.input, by); }},
      {"weight", 16, [](RunArguments& run, uintptr_t by) { run.weight = misaligned(run.weight, by); }},
      {"bias", 16, [](RunArguments& run, uintptr_t by) { run.bias = misaligned(run.bias, by); }},
      {"workspace", 256, [](RunArguments& run, uintptr_t by) { run.workspace = misaligned(run.workspace, by); }},
      {"target", 8,
       [](RunArguments& run, uintptr_t by) { run.target = static_cast<int64_t*>(misaligned(run.target, by)); }},
      {"gradInput", 16, [](RunArguments& run, uintptr_t by) { run.gradInput = misaligned(run.gradInput, by); }},
      {"gradWeight", 16, [](RunArguments& run, uintptr_t by) { run.gradWeight = misaligned(run.gradWeight, by); }},
      {"gradBias", 16, [](RunArguments& run, uintptr_t by) { run.gradBias = misaligned(run.gradBias, by); }},
  };
  for (const auto& pointer : pointers) {
    RunArguments run = addressesFor(plan);
    pointer.shift(run, pointer.alignment / 2);
    const ErrorSummary error = requireError(checkArguments(plan, run, {.loss = true, .gradients = true}));
    CHECK(error.code == ErrorCode::InvalidArgument);
    CHECK_THAT(error.message, Catch::Matchers::StartsWith(std::string(pointer.name) + " is 0x") &&
                                  Contains("not a multiple of " + std::to_string(pointer.alignment) + " bytes"));
    RunArguments aligned = addressesFor(plan);
    pointer.shift(aligned, pointer.alignment);
    require(checkArguments(plan, aligned, {.loss = true, .gradients = true}));
  }
}

TEST_CASE("every result must be aligned to its element") {
  const PlanGraph plan = smallPlan();
  const struct {
    const char* name;
    float* RunArguments::* member;
  } results[] = {
      {"loss", &RunArguments::loss},
      {"preferenceLoss", &RunArguments::preferenceLoss},
      {"nll", &RunArguments::nll},
      {"chosenLogps", &RunArguments::chosenLogps},
      {"rejectedLogps", &RunArguments::rejectedLogps},
      {"chosenRewards", &RunArguments::chosenRewards},
      {"rejectedRewards", &RunArguments::rejectedRewards},
      {"chosenLogitsMean", &RunArguments::chosenLogitsMean},
      {"rejectedLogitsMean", &RunArguments::rejectedLogitsMean},
      {"perTokenLogps", &RunArguments::perTokenLogps},
  };
  for (const auto& result : results) {
    RunArguments run = addressesFor(plan);
    run.*result.member = reinterpret_cast<float*>(0x4004);
    require(checkArguments(plan, run, {.loss = true}));
    run.*result.member = reinterpret_cast<float*>(0x4002);
    CHECK(requireError(checkArguments(plan, run, {.loss = true})).message ==
          std::string(result.name) + " is 0x0000000000004002, which is not a multiple of 4 bytes");
  }
  RunArguments run = addressesFor(plan);
  run.diagnostics = reinterpret_cast<RunDiagnostics*>(0x4001);
  CHECK_THAT(requireError(checkArguments(plan, run, {.loss = true})).message,
             Contains("diagnostics is 0x0000000000004001"));
  run = addressesFor(plan);
  run.upstream = reinterpret_cast<const float*>(0x4001);
  CHECK_THAT(requireError(checkArguments(plan, run, {.loss = true})).message,
             Contains("upstream is 0x0000000000004001"));
}

TEST_CASE("gradients of a workload without any are refused") {
  Workload workload = smallWorkload();
  workload.gradInput = workload.gradWeight = workload.gradBias = false;
  const PlanGraph plan = require(makePlan(workload, kSmallShape, hopper()));
  const ErrorSummary error = requireError(checkArguments(plan, addressesFor(plan), {.gradients = true}));
  CHECK(error.code == ErrorCode::InvalidArgument);
  CHECK(error.message ==
        "gradients were asked of a plan whose workload has none; set gradInput, gradWeight or gradBias");
}

TEST_CASE("a workspace that is a byte short is refused with both sizes") {
  const PlanGraph plan = smallPlan();
  RunArguments run = addressesFor(plan);
  --run.workspaceBytes;
  const ErrorSummary error = requireError(checkArguments(plan, run, {.loss = true}));
  CHECK(error.code == ErrorCode::Workspace);
  CHECK(error.message == "the workspace has " + std::to_string(plan.workspaceBytes - 1) + " bytes; the plan needs " +
                             std::to_string(plan.workspaceBytes));
}

TEST_CASE("scalars are checked with the arguments") {
  const PlanGraph plan = smallPlan();
  RunArguments run = addressesFor(plan);
  run.scalars.labelSmoothing = 0.75;
  const ErrorSummary error = requireError(checkArguments(plan, run, {.loss = true}));
  CHECK(error.code == ErrorCode::InvalidArgument);
  CHECK_THAT(error.message, Contains("0.75"));
}

//===----------------------------------------------------------------------===//
// StepBinder
//===----------------------------------------------------------------------===//

TEST_CASE("every pointer into the workspace is the start of its region") {
  for (const bool chunked : {false, true})
    for (const bool logitMeans : {false, true}) {
      Workload workload = smallWorkload();
      workload.logitMeans = logitMeans;
      const PlanGraph plan = require(makePlan(workload, kSmallShape, hopper(), chunked ? kChunked : PlanRequest{}));
      const RunArguments run = addressesFor(plan);
      const WorkspaceOffsets offsets(plan);
      const StepBinder binder(plan, offsets, run);
      for (const std::vector<Step>* pass : passesOf(plan))
        for (const Step& step : *pass)
          binder.bind(step, [&](const auto& parameter) {
            for (const RegionPointer& pointer : pointersOf(parameter)) {
              INFO(toString(step.kind).str() << ": " << pointer.region);
              CHECK(pointer.value == startOf(plan, run, pointer.region));
            }
          });
      CHECK((startOf(plan, run, "tile_logit_sum") != nullptr) == logitMeans);
    }
}

TEST_CASE("tables, partials and panels fill their regions and no more") {
  const PlanGraph plan = smallPlan(kChunked);
  const RunArguments run = addressesFor(plan);
  const int64_t tiles = llvm::divideCeil(plan.workload.vocab, plan.choices.configs.logits.blockN);
  for (const std::vector<Step>* pass : passesOf(plan)) {
    for (const device::LogitsArguments& logits : parametersOf<device::LogitsArguments>(plan, *pass, run)) {
      CHECK(logits.partials.pitch * tiles * 4 == plan.findRegion("tile_sum")->bytes);
      if (logits.exponentials.data)
        CHECK(logits.exponentials.rows * paddedVocab(plan.workload) * 4 == plan.findRegion("exponentials")->bytes);
    }
    for (const device::GradWeightArguments& gradient : parametersOf<device::GradWeightArguments>(plan, *pass, run))
      CHECK(gradient.panels.rows == plan.panelRows());
  }
}

TEST_CASE("the chunks' column sums lie one behind the other and are all added") {
  // Rows for several blocks of grad_logits in a full chunk and one in the last.
  const Shape shape{.sequences = 6, .tokens = 700};
  const PlanGraph plan = require(makePlan(smallWorkload(), shape, hopper(), kChunked));
  const RunArguments run = addressesFor(plan);
  const int64_t columns = paddedVocab(plan.workload);
  const auto* begin = static_cast<const float*>(startOf(plan, run, "bias_partials"));

  std::vector<int64_t> blocks;
  for (const Step& step : plan.forwardBackward)
    if (step.kind == KernelKind::GradLogits) blocks.push_back(step.grid[1]);
  REQUIRE(blocks == std::vector<int64_t>{3, 2});
  const auto chunks = parametersOf<device::GradLogitsArguments>(plan, plan.forwardBackward, run);
  REQUIRE(chunks.size() == 2);
  CHECK(chunks[0].biasPartials == begin);
  CHECK(chunks[1].biasPartials == begin + 3 * columns);
  CHECK((3 + 2) * columns * 4 <= plan.findRegion("bias_partials")->bytes);
  const auto sums = parametersOf<device::GradBiasArguments>(plan, plan.forwardBackward, run);
  REQUIRE(sums.size() == 1);
  CHECK(sums[0].partialCount == 5);
}

TEST_CASE("chunks cover all slots in order, and only the forward pass's last has the tail") {
  const PlanGraph plan = smallPlan(kChunked);
  const RunArguments run = addressesFor(plan);
  using Ranges = std::vector<std::array<int, 3>>;
  CHECK(rangesOf(parametersOf<device::LogitsArguments>(plan, plan.forward, run)) == Ranges{{0, 6, 1}});
  CHECK(rangesOf(parametersOf<device::LogitsArguments>(plan, plan.forwardBackward, run)) ==
        Ranges{{0, 4, 0}, {4, 6, 1}});
  // Recomputed for the gradients alone: the tail has none.
  CHECK(rangesOf(parametersOf<device::LogitsArguments>(plan, plan.backward, run)) == Ranges{{0, 4, 0}, {4, 6, 0}});
  for (const device::GradWeightArguments& gradient :
       parametersOf<device::GradWeightArguments>(plan, plan.forwardBackward, run))
    CHECK(gradient.slots.withTail == 0);
  const auto losses = parametersOf<device::LossArguments>(plan, plan.forwardBackward, run);
  CHECK(rangesOf(losses) == Ranges{{0, 4, 0}, {4, 6, 1}});
  CHECK(losses[1].pairCount == 3);
}

TEST_CASE("E is stored only where gradients follow") {
  const PlanGraph stored = smallPlan();
  const PlanGraph chunked = smallPlan(kChunked);
  const RunArguments run = addressesFor(stored);
  CHECK(parametersOf<device::LogitsArguments>(stored, stored.forward, run)[0].exponentials.data);
  CHECK_FALSE(parametersOf<device::LogitsArguments>(chunked, chunked.forward, run)[0].exponentials.data);
  for (const auto& logits : parametersOf<device::LogitsArguments>(chunked, chunked.backward, run))
    CHECK(logits.exponentials.data);
}

TEST_CASE("the weight gradient is added to from the second chunk on, or from the first when asked") {
  const PlanGraph plan = smallPlan(kChunked);
  RunArguments run = addressesFor(plan);
  for (const bool accumulate : {false, true}) {
    run.accumulate = accumulate;
    const auto gradients = parametersOf<device::GradWeightArguments>(plan, plan.backward, run);
    REQUIRE(gradients.size() == 2);
    CHECK(gradients[0].accumulate == (accumulate ? 1 : 0));
    CHECK(gradients[1].accumulate == 1);
    CHECK(parametersOf<device::GradBiasArguments>(plan, plan.backward, run)[0].accumulate == (accumulate ? 1 : 0));
  }
}

TEST_CASE("the caller's pointers and scalars reach the kernels") {
  const PlanGraph plan = smallPlan();
  RunArguments run = addressesFor(plan);
  run.scalars = {.beta = 2, .gamma = 0.25, .labelSmoothing = 0.125, .alpha = 0.5, .ignoreIndex = -7};
  run.upstreamScale = 3;
  run.upstream = reinterpret_cast<const float*>(0x5000);
  run.nll = reinterpret_cast<float*>(0x6000);
  const auto rowMap = parametersOf<device::RowMapArguments>(plan, plan.forward, run).front();
  CHECK(static_cast<const void*>(rowMap.target) == run.target);
  CHECK(rowMap.ignoreIndex == -7);
  CHECK(rowMap.sequences == 6);
  CHECK(rowMap.tokens == 8);
  CHECK(rowMap.perTokenLogps == run.perTokenLogps);
  CHECK(parametersOf<device::GatherRowsArguments>(plan, plan.forward, run).front().input == run.input);
  const auto logits = parametersOf<device::LogitsArguments>(plan, plan.forward, run).front();
  CHECK(logits.weight == run.weight);
  CHECK(logits.bias == run.bias);
  const auto outputs = parametersOf<device::LossArguments>(plan, plan.forward, run).front();
  CHECK(outputs.outputs.loss == run.loss);
  CHECK(outputs.outputs.nll == run.nll);
  CHECK(outputs.outputs.diagnostics == nullptr);
  CHECK(outputs.scalars.beta == 2);
  CHECK(outputs.scalars.gamma == 0.25f);
  CHECK(outputs.scalars.labelSmoothing == 0.125f);
  CHECK(outputs.scalars.alpha == 0.5f);
  const auto gradLogits = parametersOf<device::GradLogitsArguments>(plan, plan.backward, run).front();
  const auto gradInput = parametersOf<device::GradInputArguments>(plan, plan.backward, run).front();
  const auto gradWeight = parametersOf<device::GradWeightArguments>(plan, plan.backward, run).front();
  // The scale that one of them multiplies by is the one that the others divide by.
  for (const device::Upstream& upstream : {gradLogits.upstream, gradInput.upstream, gradWeight.upstream}) {
    CHECK(upstream.factor == run.upstream);
    CHECK(upstream.scale == 3);
  }
  CHECK(gradLogits.gradInput == run.gradInput);
  CHECK(gradInput.gradInput == run.gradInput);
  CHECK(gradWeight.gradWeight == run.gradWeight);
  CHECK(parametersOf<device::GradBiasArguments>(plan, plan.backward, run).front().gradBias == run.gradBias);
}

//===----------------------------------------------------------------------===//
// LoadedPlan
//===----------------------------------------------------------------------===//

namespace {

/// A fake GPU and a runtime on it.
struct Machine {
  FakeDriver fake;
  Driver driver = fake.table();
  std::unique_ptr<Runtime::Implementation> runtime = makeRuntime(fake);

  Runtime::Implementation::PlanPointer plan(const PlanRequest& request = {}, std::optional<int> device = std::nullopt) {
    return require(runtime->plan(smallWorkload(), kSmallShape, request, device));
  }
};

/// The bytes of the parameter of `step`.
std::string bytesOf(const PlanGraph& plan, const Step& step, const RunArguments& run) {
  const WorkspaceOffsets offsets(plan);
  return StepBinder(plan, offsets, run).bind(step, [](const auto& parameter) {
    return std::string(reinterpret_cast<const char*>(&parameter), sizeof(parameter));
  });
}

/// Checks that `launches` are exactly `steps`.
void checkLaunches(const std::vector<FakeLaunch>& launches, const LoadedPlan& plan, const std::vector<Step>& steps,
                   const RunArguments& run, CUstream stream) {
  REQUIRE(launches.size() == steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    const FakeLaunch& launch = launches[i];
    const Step& step = steps[i];
    INFO("step " << i << ", " << toString(step.kind).str());
    const Specialization unit =
        specialize(step.kind, plan.graph().workload, plan.graph().target, plan.graph().choices.configs);
    CHECK(launch.kernel == unit.entry);
    for (size_t axis = 0; axis < 3; ++axis) CHECK(launch.grid[axis] == step.grid[axis]);
    CHECK(launch.block == std::array<unsigned, 3>{static_cast<unsigned>(unit.threads), 1, 1});
    CHECK(launch.sharedBytes == static_cast<unsigned>(unit.sharedBytes));
    CHECK(launch.stream == stream);
    REQUIRE_FALSE(launch.parameters.empty());
    CHECK(launch.parameters[0].size() == bytesOf(plan.graph(), step, run).size());
  }
}

/// The launches from the `count`-th on.
std::vector<FakeLaunch> launchesFrom(const FakeDriver& fake, size_t count) {
  const std::vector<FakeLaunch> all = fake.launches();
  return {all.begin() + count, all.end()};
}

} // namespace

TEST_CASE("a plan launches its steps in order with their geometry") {
  Machine machine;
  for (const PlanRequest& request : {PlanRequest{}, kChunked}) {
    const auto plan = machine.plan(request);
    const PlanGraph& graph = plan->plan.graph();
    const RunArguments run = addressesFor(graph);
    const ContextGuard guard = require(ContextGuard::enter(machine.driver, plan->plan.device().context()));
    const Stream stream = require(Stream::create(machine.driver));
    const struct {
      const std::vector<Step>& steps;
      llvm::Error (LoadedPlan::*call)(const RunArguments&, CUstream) const;
    } passes[] = {{graph.forward, &LoadedPlan::forward},
                  {graph.backward, &LoadedPlan::backward},
                  {graph.forwardBackward, &LoadedPlan::run}};
    for (const auto& pass : passes) {
      const size_t before = machine.fake.launches().size();
      require((plan->plan.*pass.call)(run, stream.get()));
      checkLaunches(launchesFrom(machine.fake, before), plan->plan, pass.steps, run, stream.get());
    }
  }
}

TEST_CASE("every kind of kernel is launched by the small plan") {
  Machine machine;
  const auto plan = machine.plan();
  CHECK(plan->plan.kernels().size() == kKernelKindCount);
  require(plan->plan.run(addressesFor(plan->plan.graph()), nullptr));
  std::set<std::string> kernels;
  for (const FakeLaunch& launch : machine.fake.launches()) kernels.insert(launch.kernel);
  CHECK(kernels.size() == kKernelKindCount);
}

TEST_CASE("parameters arrive as they were bound") {
  Machine machine;
  const auto plan = machine.plan();
  RunArguments run = addressesFor(plan->plan.graph());
  run.scalars.beta = 0.75;
  require(plan->plan.forward(run, nullptr));
  for (const FakeLaunch& launch : machine.fake.launches()) {
    if (launch.kernel == "lathe_row_map")
      CHECK(static_cast<const void*>(launch.parameter<device::RowMapArguments>(0).target) == run.target);
    if (launch.kernel == "lathe_loss") {
      const auto outputs = launch.parameter<device::LossArguments>(0);
      CHECK(outputs.outputs.loss == run.loss);
      CHECK(outputs.scalars.beta == 0.75f);
    }
  }
}

TEST_CASE("a run calls nothing of the driver but launches") {
  Machine machine;
  const auto plan = machine.plan();
  const PlanGraph& graph = plan->plan.graph();
  const RunArguments run = addressesFor(graph);
  const ContextGuard guard = require(ContextGuard::enter(machine.driver, plan->plan.device().context()));
  machine.fake.forgetCalls();
  require(plan->plan.run(run, nullptr));
  std::vector<std::string> expected{"cuCtxGetCurrent"};
  expected.insert(expected.end(), graph.forwardBackward.size(), "cuLaunchKernel");
  CHECK(machine.fake.calls() == expected);
}

TEST_CASE("wrong arguments are refused before the driver is called") {
  Machine machine;
  const auto plan = machine.plan();
  RunArguments run = addressesFor(plan->plan.graph());
  run.weight = nullptr;
  machine.fake.forgetCalls();
  CHECK_THAT(requireError(plan->plan.run(run, nullptr)).message, Contains("weight is null"));
  CHECK(machine.fake.calls().empty());
}

TEST_CASE("a run works in no context and in another one, and restores it") {
  Machine machine;
  machine.fake.setDeviceCount(2);
  const auto plan = machine.plan({}, 1);
  const RunArguments run = addressesFor(plan->plan.graph());
  CUcontext current = nullptr;

  require(plan->plan.run(run, nullptr));
  REQUIRE(machine.driver.ctxGetCurrent(&current) == CUDA_SUCCESS);
  CHECK(current == nullptr);

  const PrimaryContext other = require(PrimaryContext::retain(machine.driver, 0));
  REQUIRE(other.get() != plan->plan.device().context());
  const ContextGuard guard = require(ContextGuard::enter(machine.driver, other.get()));
  const size_t before = machine.fake.launches().size();
  require(plan->plan.forward(run, nullptr));
  CHECK(machine.fake.launches().size() == before + plan->plan.graph().forward.size());
  REQUIRE(machine.driver.ctxGetCurrent(&current) == CUDA_SUCCESS);
  CHECK(current == other.get());

  // And after a failure as well.
  machine.fake.failNext("cuLaunchKernel", CUDA_ERROR_LAUNCH_FAILED, 1);
  requireError(plan->plan.forward(run, nullptr));
  REQUIRE(machine.driver.ctxGetCurrent(&current) == CUDA_SUCCESS);
  CHECK(current == other.get());
}

TEST_CASE("a run can be captured into a graph") {
  Machine machine;
  const auto plan = machine.plan();
  const RunArguments run = addressesFor(plan->plan.graph());
  const ContextGuard guard = require(ContextGuard::enter(machine.driver, plan->plan.device().context()));
  const Stream stream = require(Stream::create(machine.driver));
  REQUIRE(machine.driver.streamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  require(plan->plan.run(run, stream.get()));
  CUgraph captured = nullptr;
  REQUIRE(machine.driver.streamEndCapture(stream.get(), &captured) == CUDA_SUCCESS);
  const Graph graph(machine.driver, captured);
  CHECK(machine.fake.launches().empty());
  CUgraphExec instance = nullptr;
  REQUIRE(machine.driver.graphInstantiateWithFlags(&instance, graph.get(), 0) == CUDA_SUCCESS);
  const GraphExec exec(machine.driver, instance);
  REQUIRE(machine.driver.graphLaunch(exec.get(), stream.get()) == CUDA_SUCCESS);
  CHECK(machine.fake.launches().size() == plan->plan.graph().forwardBackward.size());
}

TEST_CASE("a workload without gradients runs forward alone and refuses backward") {
  Machine machine;
  Workload workload = smallWorkload();
  workload.gradInput = workload.gradWeight = workload.gradBias = false;
  const auto plan = require(machine.runtime->plan(workload, kSmallShape, {}, std::nullopt));
  const RunArguments run = addressesFor(plan->plan.graph());
  require(plan->plan.run(run, nullptr));
  CHECK(machine.fake.launches().size() == plan->plan.graph().forward.size());
  CHECK_THAT(requireError(plan->plan.backward(run, nullptr)).message, Contains("gradients were asked"));
}

TEST_CASE("the error of a launch names the kernel") {
  Machine machine;
  const auto plan = machine.plan();
  machine.fake.failNext("cuLaunchKernel", CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 3);
  const ErrorSummary error = requireError(plan->plan.run(addressesFor(plan->plan.graph()), nullptr));
  CHECK(error.code == ErrorCode::Driver);
  const std::string entry = "lathe_" + toString(plan->plan.graph().forwardBackward[3].kind).str();
  CHECK_THAT(error.message, Contains(entry) && Contains("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"));
  CHECK(machine.fake.launches().size() == 3);
}

TEST_CASE("a plan of wgmma kernels encodes the tensor maps of every product") {
  Machine machine;
  Workload workload{.hidden = 128, .vocab = 1000};
  const auto configs = configsOf(Family::Wgmma, workload, hopper(), 0);
  REQUIRE(configs);
  const auto plan = require(machine.runtime->plan(workload, kSmallShape, {.configs = *configs}, std::nullopt));
  const PlanGraph& graph = plan->plan.graph();
  const RunArguments run = addressesFor(graph);
  const ContextGuard guard = require(ContextGuard::enter(machine.driver, plan->plan.device().context()));
  machine.fake.forgetCalls();
  require(plan->plan.run(run, nullptr));

  std::vector<std::string> expected{"cuCtxGetCurrent"};
  for (const Step& step : graph.forwardBackward) {
    const bool product =
        step.kind == KernelKind::Logits || step.kind == KernelKind::GradInput || step.kind == KernelKind::GradWeight;
    expected.insert(expected.end(), product ? (step.kind == KernelKind::GradInput ? 2 : 3) : 0,
                    "cuTensorMapEncodeTiled");
    expected.push_back("cuLaunchKernel");
  }
  CHECK(machine.fake.calls() == expected);
  CHECK(machine.fake.callCount("cuTensorMapEncodeTiled") == 8);
  checkLaunches(machine.fake.launches(), plan->plan, graph.forwardBackward, run, nullptr);
  for (const FakeLaunch& launch : machine.fake.launches())
    if (launch.parameters.size() > 1) CHECK(launch.parameters[1].size() == sizeof(device::TensorMaps));

  machine.fake.failNext("cuTensorMapEncodeTiled", CUDA_ERROR_INVALID_VALUE, 1);
  CHECK_THAT(requireError(plan->plan.run(run, nullptr)).message, Contains("cuTensorMapEncodeTiled"));
}

TEST_CASE("tensor maps cover the operands and stay inside their memory") {
  for (const int64_t vocab : {1000, 1024, 515 * 8}) {
    const Workload workload{.hidden = 136, .vocab = vocab};
    const auto configs = configsOf(Family::Wgmma, workload, hopper(), 3);
    REQUIRE(configs);
    const PlanGraph plan = require(makePlan(workload, kSmallShape, hopper(), {.configs = *configs}));
    const RunArguments run = addressesFor(plan);
    const WorkspaceOffsets offsets(plan);
    const StepBinder binder(plan, offsets, run);
    for (const Step& step : plan.forwardBackward) {
      if (!llvm::is_contained({KernelKind::Logits, KernelKind::GradInput, KernelKind::GradWeight}, step.kind)) continue;
      const StepBinder::TensorSources sources = binder.tensorSources(step);
      for (const StepBinder::TensorSource& source : {sources.a, sources.b, sources.out.value_or(sources.a)}) {
        INFO(toString(step.kind).str());
        CHECK(source.pitchBytes % 16 == 0);
        CHECK(source.columns * sizeOf(source.dtype) <= source.pitchBytes);
        CHECK(source.boxRows >= 1);
        CHECK(source.boxRows <= 256);
        const int64_t bytes = source.rows * source.pitchBytes;
        if (source.base == run.weight)
          CHECK(bytes == vocab * 136 * 2);
        else if (source.base == startOf(plan, run, "rows"))
          CHECK(bytes == plan.findRegion("rows")->bytes);
        else if (source.base == run.gradWeight)
          CHECK(bytes == vocab * 136 * sizeOf(workload.gradWeightDType));
        else {
          CHECK(source.base == startOf(plan, run, "exponentials"));
          CHECK(bytes == plan.findRegion("exponentials")->bytes);
        }
      }
    }
  }
}

TEST_CASE("kernels are unloaded in their context even when it is not current") {
  Machine machine;
  {
    const auto plan = machine.plan();
  }
  machine.runtime.reset();
  CHECK(machine.fake.leaks() == "");
}
