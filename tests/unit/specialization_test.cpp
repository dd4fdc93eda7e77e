#include "generator/CostModel.h"
#include "generator/Workload.h"
#include "templates/EmbeddedTemplates.h"
#include "tests/support/Failures.h"

#include <catch2/catch.hpp>

#include <chrono>

using namespace lathe;
using lathe::test::require;
using lathe::test::requireError;

namespace {

constexpr KernelKind kKinds[] = {KernelKind::RowMap,    KernelKind::GatherRows, KernelKind::Logits,
                                 KernelKind::Loss,      KernelKind::GradLogits, KernelKind::GradBias,
                                 KernelKind::GradInput, KernelKind::GradWeight};

Workload seed() {
  Workload workload;
  workload.hidden = 4096;
  workload.vocab = 128256;
  return workload;
}

const Target& hopper() {
  static const Target target = require(parseTarget("sm_90a"));
  return target;
}

/// With the configs of the seed workload, so that only the workload differs.
Digest sourceOf(KernelKind kind, const Workload& workload) {
  static const GemmConfigs configs = require(chooseConfigs(seed(), hopper(), 4096));
  return specialize(kind, workload, hopper(), configs).sourceDigest;
}

} // namespace

TEST_CASE("The same input gives the same bytes") {
  const GemmConfigs configs = require(chooseConfigs(seed(), hopper(), 4096));
  for (const KernelKind kind : kKinds) {
    const Specialization first = specialize(kind, seed(), hopper(), configs);
    const Specialization second = specialize(kind, seed(), hopper(), configs);
    CHECK(first.unit == second.unit);
    CHECK(first.sourceDigest == second.sourceDigest);
    CHECK(first.flattened() == second.flattened());
    CHECK(require(parseKernelKind(toString(kind))) == kind);
    CHECK(first.entry == "lathe_" + toString(kind).str());
  }
}

TEST_CASE("A flattened unit includes nothing and holds what the unit includes") {
  const GemmConfigs configs = require(chooseConfigs(seed(), hopper(), 4096));
  for (const KernelKind kind : kKinds) {
    const std::string flat = specialize(kind, seed(), hopper(), configs).flattened();
    CHECK_FALSE(llvm::StringRef(flat).contains("#include"));
    CHECK_FALSE(llvm::StringRef(flat).contains("#pragma once"));
    CHECK(llvm::StringRef(flat).contains("struct RunState"));
    CHECK(llvm::StringRef(flat).contains("struct Config"));
  }
}

TEST_CASE("A flattened unit has one kernel, and every template once") {
  const GemmConfigs configs = require(chooseConfigs(seed(), hopper(), 4096));
  for (const KernelKind kind : kKinds) {
    const Specialization made = specialize(kind, seed(), hopper(), configs);
    const std::string flat = made.flattened();
    INFO(toString(kind).str());
    CHECK(llvm::StringRef(flat).count("extern \"C\" __global__") == 1);
    CHECK(llvm::StringRef(flat).count(made.entry + "(") == 1);
    CHECK(llvm::StringRef(flat).count("struct RunState {") == 1);
    // Whatever it uses is declared above it: the unit itself comes last.
    CHECK(llvm::StringRef(flat).find("struct Config {") > llvm::StringRef(flat).find("struct RunState {"));
    CHECK(made.target == hopper());
    CHECK(made.threads >= 32);
  }
}

TEST_CASE("Every kind of kernel has a name of its own, and a wrong name is shown with all of them") {
  CHECK(std::size(kKinds) == kKernelKindCount);
  const ErrorSummary error = requireError(parseKernelKind("lathe_logits"));
  CHECK(error.code == ErrorCode::InvalidArgument);
  CHECK_THAT(error.message, Catch::Contains("\"lathe_logits\""));
  for (const KernelKind kind : kKinds) CHECK_THAT(error.message, Catch::Contains(toString(kind).str()));
}

TEST_CASE("Rows and vocabularies are padded to what vector loads and panels need") {
  Workload workload = seed();
  for (const DType dtype : {DType::BF16, DType::FP16, DType::FP32})
    for (const int64_t size : {2, 31, 32, 33, 64, 65, 50257}) {
      workload.dtype = dtype;
      workload.hidden = workload.vocab = size;
      const int64_t element = sizeOf(dtype);
      CHECK(rowPitch(workload) * element % 16 == 0);
      CHECK(rowPitch(workload) >= size);
      CHECK((rowPitch(workload) - size) * element < 16);
      CHECK(paddedVocab(workload) * element % 128 == 0);
      CHECK(paddedVocab(workload) >= size);
      CHECK((paddedVocab(workload) - size) * element < 128);
    }
}

TEST_CASE("Only what matters to a kernel changes its source") {
  const struct {
    const char* name;
    void (*change)(Workload&);
    std::vector<KernelKind> changed;
  } cases[] = {
      {"hidden",
       [](Workload& w) { w.hidden = 2048; },
       {KernelKind::GatherRows, KernelKind::Logits, KernelKind::GradLogits, KernelKind::GradInput,
        KernelKind::GradWeight}},
      {"nll", [](Workload& w) { w.nll = false; }, {KernelKind::Loss}},
      {"bias", [](Workload& w) { w.bias = true; }, {KernelKind::Logits}},
      {"gradient of the bias", [](Workload& w) { w.gradBias = true; }, {KernelKind::GradLogits}},
      {"weight gradient's type", [](Workload& w) { w.gradWeightDType = DType::FP32; }, {KernelKind::GradWeight}},
      {"pinned tokens", [](Workload& w) { w.tokens = 1024; }, {KernelKind::RowMap}},
      {"vocabulary",
       [](Workload& w) { w.vocab = 32000; },
       {KernelKind::RowMap, KernelKind::Logits, KernelKind::Loss, KernelKind::GradLogits, KernelKind::GradBias,
        KernelKind::GradInput, KernelKind::GradWeight}},
      {"soft cap",
       [](Workload& w) { w.softcap = true; },
       {KernelKind::RowMap, KernelKind::GatherRows, KernelKind::Logits, KernelKind::Loss, KernelKind::GradLogits}},
      {"logit scale", [](Workload& w) { w.logitScale = true; }, {KernelKind::Logits, KernelKind::GradLogits}},
      {"mean logits",
       [](Workload& w) { w.logitMeans = false; },
       {KernelKind::RowMap, KernelKind::GatherRows, KernelKind::Logits, KernelKind::Loss}},
      {"all gradients", [](Workload& w) { w.gradInput = w.gradWeight = false; }, {KernelKind::Logits}},
      {"one gradient of two", [](Workload& w) { w.gradInput = false; }, {}},
      {"dtype",
       [](Workload& w) { w.dtype = w.gradWeightDType = DType::FP16; },
       {KernelKind::GatherRows, KernelKind::Logits, KernelKind::Loss, KernelKind::GradLogits, KernelKind::GradBias,
        KernelKind::GradInput, KernelKind::GradWeight}},
      {"pinned sequences", [](Workload& w) { w.sequences = 4; }, {KernelKind::RowMap}},
  };
  for (const auto& each : cases) {
    Workload workload = seed();
    each.change(workload);
    for (const KernelKind kind : kKinds) {
      INFO(each.name << ", " << toString(kind).str());
      CHECK((sourceOf(kind, workload) != sourceOf(kind, seed())) == llvm::is_contained(each.changed, kind));
    }
  }
}

TEST_CASE("A product's tile changes its own kernel and those that read its partials") {
  const GemmConfigs base = require(chooseConfigs(seed(), hopper(), 4096));
  const auto changedBy = [&](void (*change)(GemmConfigs&)) {
    GemmConfigs configs = base;
    change(configs);
    std::vector<KernelKind> changed;
    for (const KernelKind kind : kKinds)
      if (specialize(kind, seed(), hopper(), configs).unit != specialize(kind, seed(), hopper(), base).unit)
        changed.push_back(kind);
    return changed;
  };
  CHECK(changedBy([](GemmConfigs& c) { c.logits.groupM *= 2; }) == std::vector{KernelKind::Logits});
  CHECK(changedBy([](GemmConfigs& c) { c.gradInput.stages -= 1; }) == std::vector{KernelKind::GradInput});
  CHECK(changedBy([](GemmConfigs& c) { c.gradWeight.groupM *= 2; }) == std::vector{KernelKind::GradWeight});
  CHECK(changedBy([](GemmConfigs& c) { c.logits.blockN = 384 - c.logits.blockN; }) ==
        std::vector{KernelKind::Logits, KernelKind::Loss, KernelKind::GradLogits});
}

TEST_CASE("New numbers of sequences and tokens need no new kernels, unless they are pinned") {
  const auto unitsOf = [](const Workload& workload, Shape shape) {
    const PlanGraph plan = require(makePlan(workload, shape, hopper()));
    std::vector<std::string> units;
    for (const KernelKind kind : plan.kernels())
      units.push_back(specialize(kind, workload, hopper(), plan.choices.configs).unit);
    return units;
  };
  const std::vector<std::string> units = unitsOf(seed(), {4, 1024});
  CHECK(units.size() >= 7);
  for (const Shape shape : {Shape{4, 1023}, Shape{2, 2048}, Shape{4, 600}, Shape{6, 500}})
    CHECK(unitsOf(seed(), shape) == units);
  Workload pinned = seed();
  pinned.tokens = 1024;
  CHECK(unitsOf(pinned, {4, 1024}) != units);
}

TEST_CASE("Every point of every search space makes a self-contained unit") {
  for (const char* arch : {"sm_75", "sm_80", "sm_90a", "sm_120a"})
    for (const DType dtype : {DType::BF16, DType::FP32}) {
      Workload workload = seed();
      workload.dtype = workload.gradWeightDType = dtype;
      const Target target = require(parseTarget(arch));
      for (const auto& [gemm, kind] :
           {std::pair(Gemm::Logits, KernelKind::Logits), std::pair(Gemm::GradInput, KernelKind::GradInput),
            std::pair(Gemm::GradWeight, KernelKind::GradWeight)})
        for (const Config& config : searchSpace(gemm, workload, target)) {
          const Specialization made = specialize(kind, workload, target, {config, config, config});
          INFO(arch << " " << toString(config) << "\n" << made.unit);
          CHECK(made.config == config);
          CHECK(made.threads == config.threads());
          CHECK(made.sharedBytes == sharedBytes(config, gemm, workload));
          // Templates include each other by name; all of them are there.
          CHECK_FALSE(llvm::StringRef(made.flattened()).contains("#include"));
          CHECK(llvm::StringRef(made.unit).contains("kBlockM = " + std::to_string(config.blockM) + ";"));
        }
    }
}

TEST_CASE("A template's text is part of the source digest") {
  // The digests in the embedded table are those of the texts.
  for (const EmbeddedTemplate& file : embeddedTemplates())
    CHECK(Digest::of(file.text).hex() == std::string(file.digest));
}

TEST_CASE("A specialization takes less than a millisecond") {
  const GemmConfigs configs = require(chooseConfigs(seed(), hopper(), 4096));
  for (const KernelKind kind : kKinds) {
    double best = 1e9;
    for (int i = 0; i < 20; ++i) {
      const auto start = std::chrono::steady_clock::now();
      const Specialization unit = specialize(kind, seed(), hopper(), configs);
      best =
          std::min(best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
      CHECK_FALSE(unit.unit.empty());
    }
    INFO(toString(kind).str() << ": " << best << " ms");
    CHECK(best < 1.0);
  }
}
