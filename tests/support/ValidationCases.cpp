#include "tests/support/ValidationCases.h"

using namespace lathe;

namespace {

constexpr Family kFamilies[] = {Family::Simt, Family::MmaSync, Family::Wgmma};

Workload workloadOf(int64_t hidden, int64_t vocab, DType dtype, Precision precision, bool everything) {
  Workload workload;
  workload.hidden = hidden;
  workload.vocab = vocab;
  workload.dtype = dtype;
  workload.precision = precision;
  workload.gradWeightDType = everything ? DType::FP32 : dtype;
  workload.bias = workload.softcap = workload.logitScale = workload.gradBias = everything;
  return workload;
}

Scalars scalarsFor(const Workload& workload) {
  Scalars scalars{.beta = 0.5, .gamma = 0.7, .labelSmoothing = 0.1, .alpha = 0.8};
  if (workload.softcap) scalars.softcap = 6.0;
  if (workload.logitScale) scalars.logitScale = 0.7;
  return scalars;
}

struct Arithmetic {
  DType dtype;
  Precision precision;
};
constexpr Arithmetic kArithmetics[] = {{DType::BF16, Precision::IEEE},
                                       {DType::FP16, Precision::IEEE},
                                       {DType::FP32, Precision::IEEE},
                                       {DType::FP32, Precision::TF32}};

void addSmallCases(const Target& target, std::vector<ValidationCase>& cases) {
  // The second size is odd in every way that the family can take.
  const struct {
    int64_t hidden, vocab;
    bool everything;
    Shape shape;
  } sizes[] = {{128, 1000, false, {4, 150}}, {77, 515, true, {6, 47}}, {104, 777, true, {6, 147}}};
  for (const Family family : kFamilies)
    for (const Arithmetic& arithmetic : kArithmetics)
      for (size_t i = 0; i < std::size(sizes); ++i)
        for (const Strategy strategy : {Strategy::Stored, Strategy::Chunked}) {
          const Workload workload =
              workloadOf(sizes[i].hidden, sizes[i].vocab, arithmetic.dtype, arithmetic.precision, sizes[i].everything);
          const auto configs = configsOf(family, workload, target, 7 * i + (strategy == Strategy::Chunked ? 29 : 0));
          if (!configs) continue;
          ValidationCase value;
          value.name = llvm::formatv("{0} {1}{2} {3}x{4} {5}", toString(family),
                                     workload.dtype == DType::BF16   ? "bf16"
                                     : workload.dtype == DType::FP16 ? "fp16"
                                                                     : "fp32",
                                     workload.precision == Precision::TF32 ? " tf32" : "", workload.hidden,
                                     workload.vocab, toString(strategy));
          value.workload = workload;
          value.shape = sizes[i].shape;
          value.scalars = scalarsFor(workload);
          value.request.strategy = strategy;
          if (strategy == Strategy::Chunked) value.request.chunkPairs = 1;
          value.request.configs = configs;
          cases.push_back(std::move(value));
        }
}

void addModels(const Target& target, std::vector<ValidationCase>& cases) {
  const struct {
    const char* name;
    int64_t hidden, vocab;
    bool softcap;
  } models[] = {{"llama-3-8b", 4096, 128256, false},
                {"gemma-2-9b", 3584, 256000, true},
                {"mistral-7b", 4096, 32000, false},
                {"qwen2.5-7b", 3584, 152064, false},
                {"llama-3.2-1b", 2048, 128256, false}};
  for (const auto& model : models) {
    ValidationCase value;
    value.name = model.name;
    value.workload = workloadOf(model.hidden, model.vocab, DType::BF16, Precision::IEEE, false);
    value.workload.softcap = model.softcap;
    value.shape = {2, 128};
    value.scalars = scalarsFor(value.workload);
    if (model.softcap) value.scalars.softcap = 30.0;
    // The kernels of a batch of four sequences of 1024 tokens, on fewer.
    value.request.configs = llvm::cantFail(chooseConfigs(value.workload, target, 4096));
    value.large = true;
    cases.push_back(std::move(value));
  }
}

} // namespace

std::optional<GemmConfigs> lathe::configsOf(Family family, const Workload& workload, const Target& target,
                                            size_t index) {
  const auto pick = [&](Gemm gemm, size_t at) -> std::optional<Config> {
    std::vector<Config> matching;
    for (const Config& config : searchSpace(gemm, workload, target))
      if (config.family == family) matching.push_back(config);
    return matching.empty() ? std::nullopt : std::optional(matching[at % matching.size()]);
  };
  const auto logits = pick(Gemm::Logits, index);
  const auto gradInput = pick(Gemm::GradInput, index + 5);
  const auto gradWeight = pick(Gemm::GradWeight, index + 11);
  if (!logits || !gradInput || !gradWeight) return std::nullopt;
  return GemmConfigs{*logits, *gradInput, *gradWeight};
}

std::vector<ValidationCase> lathe::validationCases(const Target& target) {
  std::vector<ValidationCase> cases;
  addSmallCases(target, cases);
  addModels(target, cases);
  return cases;
}

std::vector<Specialization> lathe::specializationsOf(const ValidationCase& value, const Target& target) {
  const PlanGraph graph = llvm::cantFail(makePlan(value.workload, value.shape, target, value.request));
  std::vector<Specialization> result;
  for (const KernelKind kind : graph.kernels())
    result.push_back(specialize(kind, value.workload, target, graph.choices.configs));
  return result;
}
