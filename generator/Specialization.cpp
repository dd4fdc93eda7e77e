//===- generator/Specialization.cpp - Generated CUDA sources ----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "generator/Specialization.h"

#include "templates/EmbeddedTemplates.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/raw_ostream.h"

using namespace lathe;

namespace {

/// The facts of a kernel kind that do not depend on the workload.
struct KernelTraits {
  llvm::StringRef name;
  /// The function template (for a product: its step), and the struct that is its parameter.
  llvm::StringRef function;
  llvm::StringRef arguments;
  int threads;
};

/// In the order of KernelKind.
constexpr KernelTraits kTraits[] = {
    {"row_map", "rowMap", "RowMapArguments", 512},
    {"gather_rows", "gatherRows", "GatherRowsArguments", 256},
    {"logits", "LogitsStep", "LogitsArguments", 0},
    {"loss", "loss", "LossArguments", 512},
    {"grad_logits", "gradLogits", "GradLogitsArguments", 256},
    {"grad_bias", "gradBias", "GradBiasArguments", 256},
    {"grad_input", "GradInputStep", "GradInputArguments", 0},
    {"grad_weight", "GradWeightStep", "GradWeightArguments", 0},
};

static_assert(std::size(kTraits) == kKernelKindCount);

const KernelTraits& traits(KernelKind kind) {
  return kTraits[static_cast<size_t>(kind)];
}

llvm::StringRef elementType(DType type) {
  switch (type) {
  case DType::BF16:
    return "lathe::device::bf16";
  case DType::FP16:
    return "lathe::device::fp16";
  case DType::FP32:
    return "float";
  }
  llvm_unreachable("unknown dtype");
}

/// Writes the members of `struct Config`: only what the kernel uses, so that kernels are shared where they may be.
class ConfigWriter {
public:
  ConfigWriter(llvm::raw_ostream& os, const Workload& workload) : os_(os), workload_(workload) {}

  void write(KernelKind kind, int threads, const GemmConfigs& configs) {
    constant("int", "kThreads", threads);
    switch (kind) {
    case KernelKind::RowMap:
      vocab();
      logitMeans();
      softcap();
      constant("int", "kSequences", workload_.sequences.value_or(0));
      return constant("int", "kTokens", workload_.tokens.value_or(0));
    case KernelKind::GatherRows:
      hidden();
      softcap();
      logitMeans();
      return flag("kTf32", workload_.precision == Precision::TF32);
    case KernelKind::Logits:
      hidden();
      vocab();
      softcap();
      logitMeans();
      flag("kBias", workload_.bias);
      flag("kLogitScale", workload_.logitScale);
      flag("kStoreExponentials", workload_.anyGradient());
      return tile(configs.logits);
    case KernelKind::Loss:
      element();
      vocab();
      softcap();
      logitMeans();
      flag("kNll", workload_.nll);
      return constant("int", "kLogitsBlockN", configs.logits.blockN);
    case KernelKind::GradLogits:
      hidden();
      vocab();
      softcap();
      flag("kLogitScale", workload_.logitScale);
      flag("kGradBias", workload_.gradBias);
      constant("int", "kLogitsBlockN", configs.logits.blockN);
      return constant("int", "kRowsPerBlock", kGradLogitsRowsPerBlock);
    case KernelKind::GradBias:
      element();
      return vocab();
    case KernelKind::GradInput:
      hidden();
      vocab();
      return tile(configs.gradInput);
    case KernelKind::GradWeight:
      hidden();
      vocab();
      os_ << "  using GradWeightElement = " << elementType(workload_.gradWeightDType) << ";\n";
      return tile(configs.gradWeight);
    }
  }

private:
  template <class T> void constant(llvm::StringRef type, llvm::StringRef name, T value) {
    os_ << "  static constexpr " << type << " " << name << " = " << value << ";\n";
  }
  void flag(llvm::StringRef name, bool value) { constant("bool", name, value ? "true" : "false"); }

  void element() { os_ << "  using Element = " << elementType(workload_.dtype) << ";\n"; }
  void hidden() {
    element();
    constant("int", "kHidden", workload_.hidden);
    constant("int", "kPitch", rowPitch(workload_));
  }
  void vocab() {
    constant("int", "kVocab", workload_.vocab);
    constant("int", "kPaddedVocab", paddedVocab(workload_));
  }
  void softcap() { flag("kSoftcap", workload_.softcap); }
  void logitMeans() { flag("kLogitMeans", workload_.logitMeans); }
  void tile(const Config& config) {
    constant("int", "kBlockM", config.blockM);
    constant("int", "kBlockN", config.blockN);
    constant("int", "kBlockK", config.blockK);
    constant("int", "kStages", config.stages);
    constant("int", "kWarpsM", config.warpsM);
    constant("int", "kWarpsN", config.warpsN);
    if (config.family == Family::Wgmma) constant("int", "kClusterM", config.clusterM);
    constant("int", "kGroupM", config.groupM);
  }

  llvm::raw_ostream& os_;
  const Workload& workload_;
};

/// The frame that runs a product's step, by family.
struct FamilyTraits {
  llvm::StringRef header;
  llvm::StringRef frame;
  /// What follows the step in the frame's template arguments.
  llvm::StringRef mainloop;
};

FamilyTraits familyTraits(Family family) {
  switch (family) {
  case Family::Simt:
    return {"simt/mainloop.cuh", "runTile", ", lathe::device::Simt"};
  case Family::MmaSync:
    return {"mma_sync/mainloop.cuh", "runTile", ", lathe::device::MmaSync"};
  case Family::Wgmma:
    return {"wgmma/persistent_kernel.cuh", "runPersistent", ""};
  }
  llvm_unreachable("unknown family");
}

void writeIncludes(llvm::raw_ostream& os, const KernelTraits& kernel, const Config* config) {
  if (config) {
    const FamilyTraits family = familyTraits(config->family);
    os << "#include \"" << family.header << "\"\n";
    if (family.frame == "runTile") os << "#include \"common/tile_kernel.cuh\"\n";
  }
  os << "#include \"steps/" << kernel.name << ".cuh\"\n";
}

void writeEntry(llvm::raw_ostream& os, const KernelTraits& kernel, const Config* config, llvm::StringRef entry) {
  const bool usesMaps = config && config->family == Family::Wgmma;
  os << "extern \"C\" __global__ void ";
  if (config && config->clusterM > 1) os << "__cluster_dims__(Config::kClusterM) ";
  os << "__launch_bounds__(Config::kThreads, " << (config ? config->blocksPerMultiprocessor : 1) << ")\n"
     << entry << "(const __grid_constant__ lathe::device::" << kernel.arguments << " arguments";
  if (usesMaps) os << ",\n    const __grid_constant__ lathe::device::TensorMaps maps";
  os << ") {\n";
  if (config) {
    const FamilyTraits family = familyTraits(config->family);
    os << "  lathe::device::" << family.frame << "<Config, lathe::device::" << kernel.function << family.mainloop
       << ">(arguments" << (usesMaps ? ", maps" : "") << ");\n}\n";
  } else {
    os << "  lathe::device::" << kernel.function << "<Config>(arguments);\n}\n";
  }
}

std::string writeUnit(KernelKind kind, const Workload& workload, const Target& target, const GemmConfigs& configs,
                      const Config* config, llvm::StringRef entry, int threads) {
  const KernelTraits& kernel = traits(kind);
  std::string unit;
  llvm::raw_string_ostream os(unit);
  os << "// Generated by Lathe: " << kernel.name << " for " << target.arch();
  if (config) os << ", " << toString(*config);
  os << ".\n";
  writeIncludes(os, kernel, config);
  os << "\nstruct Config {\n";
  ConfigWriter(os, workload).write(kind, threads, configs);
  os << "};\n\n";
  writeEntry(os, kernel, config, entry);
  return unit;
}

const EmbeddedTemplate* findTemplate(llvm::StringRef name) {
  const std::span<const EmbeddedTemplate> all = embeddedTemplates();
  const auto found = llvm::lower_bound(
      all, name, [](const EmbeddedTemplate& entry, llvm::StringRef key) { return llvm::StringRef(entry.name) < key; });
  return found != all.end() && llvm::StringRef(found->name) == name ? &*found : nullptr;
}

/// The name in a line `#include "name"`, or empty.
llvm::StringRef includedName(llvm::StringRef line) {
  if (!line.consume_front("#include \"")) return {};
  return line.take_until([](char c) { return c == '"'; });
}

/// Calls `visit` for every template that `text` includes, directly or not, each once, dependencies first.
template <class Visit> void visitIncludes(llvm::StringRef text, llvm::StringSet<>& seen, Visit visit) {
  for (llvm::StringRef rest = text; !rest.empty();) {
    const size_t at = rest.find("#include \"");
    if (at == llvm::StringRef::npos) return;
    rest = rest.drop_front(at);
    const llvm::StringRef name = includedName(rest);
    rest = rest.drop_front(1);
    if (!seen.insert(name).second) continue;
    const EmbeddedTemplate* file = findTemplate(name);
    if (!file) llvm::report_fatal_error(llvm::Twine("no embedded template named ") + name);
    visitIncludes(file->text, seen, visit);
    visit(*file);
  }
}

/// `text` without its includes and `#pragma once`.
void appendBody(std::string& out, llvm::StringRef text) {
  while (!text.empty()) {
    const auto [line, rest] = text.split('\n');
    if (includedName(line).empty() && line != "#pragma once") (out += line) += '\n';
    text = rest;
  }
}

Digest digestOf(llvm::StringRef unit) {
  llvm::SHA256 hash;
  hash.update(unit);
  llvm::StringSet<> seen;
  visitIncludes(unit, seen, [&](const EmbeddedTemplate& file) {
    hash.update(llvm::StringRef(file.name));
    hash.update(llvm::StringRef(file.digest));
  });
  return Digest(hash.final());
}

} // namespace

int64_t lathe::rowPitch(const Workload& workload) {
  const int64_t vector = 16 / sizeOf(workload.dtype);
  return (workload.hidden + vector - 1) / vector * vector;
}

int64_t lathe::paddedVocab(const Workload& workload) {
  const int64_t panel = 128 / sizeOf(workload.dtype);
  return (workload.vocab + panel - 1) / panel * panel;
}

llvm::StringRef lathe::toString(KernelKind kind) {
  return traits(kind).name;
}

llvm::Expected<KernelKind> lathe::parseKernelKind(llvm::StringRef name) {
  std::string known;
  for (size_t i = 0; i < std::size(kTraits); ++i) {
    if (kTraits[i].name == name) return static_cast<KernelKind>(i);
    known += (i ? ", " : "") + kTraits[i].name.str();
  }
  return makeError(ErrorCode::InvalidArgument, "unknown kernel \"{0}\"; the kernels are {1}", name, known);
}

std::optional<Gemm> lathe::productOf(KernelKind kind) {
  switch (kind) {
  case KernelKind::Logits:
    return Gemm::Logits;
  case KernelKind::GradInput:
    return Gemm::GradInput;
  case KernelKind::GradWeight:
    return Gemm::GradWeight;
  default:
    return std::nullopt;
  }
}

Config& GemmConfigs::of(Gemm gemm) {
  switch (gemm) {
  case Gemm::Logits:
    return logits;
  case Gemm::GradInput:
    return gradInput;
  case Gemm::GradWeight:
    return gradWeight;
  }
  llvm_unreachable("unknown product");
}

const Config& GemmConfigs::of(Gemm gemm) const {
  return const_cast<GemmConfigs*>(this)->of(gemm);
}

Specialization lathe::specialize(KernelKind kind, const Workload& workload, const Target& target,
                                 const GemmConfigs& configs) {
  const std::optional<Gemm> gemm = productOf(kind);
  const Config* config = gemm ? &configs.of(*gemm) : nullptr;
  Specialization result;
  result.kind = kind;
  result.target = target;
  if (config) result.config = *config;
  result.entry = ("lathe_" + traits(kind).name).str();
  result.threads = config ? config->threads() : traits(kind).threads;
  result.sharedBytes = config ? sharedBytes(*config, *gemm, workload) : 0;
  result.unit = writeUnit(kind, workload, target, configs, config, result.entry, result.threads);
  result.sourceDigest = digestOf(result.unit);
  return result;
}

std::string Specialization::flattened() const {
  std::string out;
  llvm::StringSet<> seen;
  visitIncludes(unit, seen, [&](const EmbeddedTemplate& file) { appendBody(out, file.text); });
  appendBody(out, unit);
  return out;
}
