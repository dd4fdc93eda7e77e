// NVRTC compiles the kernels of the search space without spilling: by default a sample for every
// architecture that it knows. LATHE_COMPILE_STRIDE=1 takes every config (hours on a small machine),
// LATHE_COMPILE_ARCH=sm_90a one architecture.
#include "tests/support/ValidationCases.h"

#include "generator/Workload.h"
#include "runtime/cache/Environment.h"
#include "runtime/compile/Compiler.h"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <set>

using namespace lathe;

namespace {

struct Features {
  bool bias;
  bool softcap;
  bool logitScale;
};
constexpr Features kFeatures[] = {
    {false, false, false}, {true, false, false}, {false, true, false}, {false, false, true}, {true, true, true}};

/// Plain, with one feature of the epilogue and with all, with rows that allow wide and only narrow accesses, and with
/// vocabularies of whole tiles and others.
std::vector<Workload> workloads() {
  std::vector<Workload> result;
  for (const auto& [dtype, precision] :
       {std::pair(DType::BF16, Precision::IEEE), std::pair(DType::FP16, Precision::IEEE),
        std::pair(DType::FP32, Precision::IEEE), std::pair(DType::FP32, Precision::TF32)})
    for (const int64_t hidden : {4096, 64, 104, 77})
      for (const Features& features : kFeatures) {
        Workload workload;
        workload.hidden = hidden;
        workload.vocab = hidden == 4096 ? 128256 : 1000;
        workload.dtype = dtype;
        workload.precision = precision;
        workload.gradWeightDType = features.bias ? DType::FP32 : dtype;
        workload.bias = workload.gradBias = features.bias;
        workload.softcap = features.softcap;
        workload.logitScale = features.logitScale;
        result.push_back(workload);
      }
  return result;
}

std::vector<CompileRequest> requestsFor(const Target& target, size_t stride) {
  std::set<Digest> seen;
  std::vector<CompileRequest> requests;
  size_t count = 0;
  for (const Workload& workload : workloads())
    for (const auto& [gemm, kind] :
         {std::pair(Gemm::Logits, KernelKind::Logits), std::pair(Gemm::GradInput, KernelKind::GradInput),
          std::pair(Gemm::GradWeight, KernelKind::GradWeight)})
      for (const Config& config : searchSpace(gemm, workload, target)) {
        if (count++ % stride != 0) continue;
        const Specialization unit = specialize(kind, workload, target, {config, config, config});
        if (!seen.insert(unit.sourceDigest).second) continue;
        requests.push_back({unit.entry + " " + toString(config) + " " + canonicalJson(workload),
                            unit.entry,
                            unit.unit,
                            target.arch(),
                            {}});
      }
  return requests;
}

} // namespace

TEST_CASE("Kernels of the search space compile without spilling", "[compile]") {
  // A stride that is no multiple of the inner loops' lengths visits every dimension of the space.
  const char* strideText = std::getenv("LATHE_COMPILE_STRIDE");
  const size_t stride = strideText ? std::strtoul(strideText, nullptr, 10) : 1531;
  REQUIRE(stride > 0);
  const char* only = std::getenv("LATHE_COMPILE_ARCH");
  llvm::Expected<Nvrtc> nvrtc = openNvrtc("", Environment::fromProcess().cudaSearchFolders);
  if (!nvrtc) {
    WARN("skipped: " << llvm::toString(nvrtc.takeError()));
    return;
  }
  const std::vector<int> known = llvm::cantFail(nvrtc->supportedArchitectures());
  const Compiler compiler(std::move(*nvrtc));
  size_t compiled = 0;
  for (const Target& target : knownTargets()) {
    if (llvm::find(known, target.sm) == known.end()) continue;
    if (only && target.arch() != only) continue;
    const std::vector<CompileRequest> requests = requestsFor(target, stride);
    std::vector<llvm::Expected<CompiledKernel>> kernels = compiler.compileAll(requests);
    for (size_t i = 0; i < kernels.size(); ++i) {
      INFO(requests[i].arch << " " << requests[i].name);
      if (!kernels[i]) FAIL_CHECK(llvm::toString(kernels[i].takeError()));
    }
    compiled += kernels.size();
  }
  CHECK(compiled > 0);
}

TEST_CASE("The kernels that hardware validates compile without spilling", "[compile]") {
  llvm::Expected<Nvrtc> nvrtc = openNvrtc("", Environment::fromProcess().cudaSearchFolders);
  if (!nvrtc) {
    WARN("skipped: " << llvm::toString(nvrtc.takeError()));
    return;
  }
  const Compiler compiler(std::move(*nvrtc));
  const Target target = llvm::cantFail(parseTarget("sm_90a"));
  std::set<Digest> seen;
  std::vector<CompileRequest> requests;
  for (const ValidationCase& value : validationCases(target))
    for (const Specialization& unit : specializationsOf(value, target))
      if (unit.config && seen.insert(unit.sourceDigest).second)
        requests.push_back({value.name + " " + unit.entry, unit.entry, unit.unit, target.arch(), {}});
  std::vector<llvm::Expected<CompiledKernel>> kernels = compiler.compileAll(requests);
  for (size_t i = 0; i < kernels.size(); ++i) {
    INFO(requests[i].name);
    if (!kernels[i]) FAIL_CHECK(llvm::toString(kernels[i].takeError()));
  }
  CHECK(kernels.size() > 100);
}
