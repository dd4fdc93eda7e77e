#include "generator/CostModel.h"
#include "generator/Workload.h"
#include "templates/EmbeddedTemplates.h"
#include "tests/support/Failures.h"

#include <catch2/catch.hpp>

#include <chrono>

using namespace lathe;
using lathe::test::require;

namespace {

constexpr KernelKind kKinds[] = {KernelKind::RowMap,    KernelKind::GatherRows,     KernelKind::MaskedMean,
                                 KernelKind::Logits,    KernelKind::Logsumexp,      KernelKind::PairLoss,
                                 KernelKind::Outputs,   KernelKind::GradScale,      KernelKind::GradLogits,
                                 KernelKind::GradBias,  KernelKind::ZeroMaskedRows, KernelKind::GradInput,
                                 KernelKind::GradWeight};

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

TEST_CASE("Only what matters to a kernel changes its source") {
  const struct {
    const char* name;
    void (*change)(Workload&);
    std::vector<KernelKind> changed;
  } cases[] = {
      {"hidden",
       [](Workload& w) { w.hidden = 2048; },
       {KernelKind::GatherRows, KernelKind::MaskedMean, KernelKind::Logits, KernelKind::ZeroMaskedRows,
        KernelKind::GradInput, KernelKind::GradWeight}},
      {"nll", [](Workload& w) { w.nll = false; }, {KernelKind::PairLoss, KernelKind::Outputs}},
      {"bias", [](Workload& w) { w.bias = true; }, {KernelKind::Logits}},
      {"gradient of the bias", [](Workload& w) { w.gradBias = true; }, {KernelKind::GradLogits}},
      {"weight gradient's type", [](Workload& w) { w.gradWeightDType = DType::FP32; }, {KernelKind::GradWeight}},
      {"pinned tokens", [](Workload& w) { w.tokens = 1024; }, {KernelKind::RowMap}},
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
