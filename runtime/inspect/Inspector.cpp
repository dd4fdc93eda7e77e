//===- runtime/inspect/Inspector.cpp - Taking kernels apart -----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/inspect/Inspector.h"

#include "generator/Workload.h"
#include "runtime/inspect/Occupancy.h"
#include "runtime/inspect/Roofline.h"
#include "runtime/inspect/Sass.h"
#include "runtime/inspect/TuningEvidence.h"
#include "templates/EmbeddedTemplates.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/ThreadPool.h"

using namespace lathe;

namespace {

CompilerOptions inspectingOptions(const Environment& environment) {
  return {.threads = environment.compileThreads.value_or(0), .spillLimit = kAnySpill, .lineInfo = true};
}

/// The PTX that a compilation with line information leaves in the cubin; its lines end in zeros.
std::string ptxOf(llvm::StringRef cubin) {
  llvm::Expected<llvm::StringRef> section = readCubinSection(cubin, ".nv_debug_ptx_txt");
  if (!section) {
    llvm::consumeError(section.takeError());
    return "";
  }
  std::string text = section->str();
  std::replace(text.begin(), text.end(), '\0', '\n');
  // What follows the code are tables of names.
  if (const size_t tables = text.find("\n.section"); tables != std::string::npos) text.resize(tables + 1);
  return text;
}

KernelResources resourcesOf(const CubinInfo& info, const CubinContext& context) {
  KernelResources resources;
  resources.threads = context.threads > 0 ? context.threads : info.maxThreads;
  resources.registers = info.registers;
  resources.staticSharedBytes = info.sharedBytes;
  resources.dynamicSharedBytes = context.dynamicSharedBytes;
  resources.stackBytes = info.localBytes;
  resources.barriers = info.barriers;
  resources.parameterBytes = info.parameterBytes;
  resources.codeBytes = info.codeBytes;
  resources.occupancy =
      occupancyOf({resources.threads, resources.registers, resources.staticSharedBytes + resources.dynamicSharedBytes},
                  context.target);
  return resources;
}

/// The unit and the templates that the machine code points into; without machine code all that the unit names.
std::vector<SourceFile> sourcesOf(const Specialization& unit, const std::optional<SassListing>& sass) {
  std::vector<SourceFile> sources = {{unit.entry + ".cu", unit.unit}};
  llvm::StringSet<> used;
  if (sass)
    for (const std::vector<SourcePlace>& stack : sass->stacks)
      for (const SourcePlace& place : stack) used.insert(place.file);
  for (const EmbeddedTemplate& file : embeddedTemplates())
    if (used.contains(file.name)) sources.push_back({std::string(file.name), std::string(file.text)});
  return sources;
}

/// The listing of the function `entry`.
llvm::Expected<SassListing> listingOf(llvm::StringRef text, llvm::StringRef entry) {
  llvm::Expected<std::vector<SassListing>> listings = parseSass(text);
  if (!listings) return listings.takeError();
  const auto found = llvm::find_if(*listings, [&](const SassListing& listing) { return listing.entry == entry; });
  if (found == listings->end()) return makeError(ErrorCode::Corrupt, "the disassembly has no function '{0}'", entry);
  for (std::vector<SourcePlace>& stack : found->stacks)
    for (SourcePlace& place : stack) place.file = sourceName(place.file);
  return std::move(*found);
}

/// Everything but the kernels.
void describePlan(const PlanGraph& graph, PlanInspection& result) {
  result.workload = canonicalJson(graph.workload);
  result.workloadDigest = workloadDigest(graph.workload).text();
  result.sequences = graph.shape.sequences;
  result.tokens = graph.shape.tokens;
  result.arch = graph.target.arch();
  result.multiprocessors = graph.target.multiprocessors;
  result.rates = ratesOf(graph.target);
  result.strategy = toString(graph.choices.strategy).str();
  result.workspaceBytes = graph.workspaceBytes;
  result.latheVersion = LATHE_VERSION;
  for (const Step& step : graph.workload.anyGradient() ? graph.forwardBackward : graph.forward) {
    const auto kernel = llvm::find_if(
        result.kernels, [&](const KernelInspection& candidate) { return candidate.step == toString(step.kind); });
    result.steps.push_back(inspectStep(step, graph, kernel == result.kernels.end() ? nullptr : &*kernel));
  }
}

} // namespace

std::string lathe::sourceName(llvm::StringRef path) {
  for (const EmbeddedTemplate& file : embeddedTemplates()) {
    const llvm::StringRef name = file.name;
    if (path == name || (path.ends_with(name) && path.drop_back(name.size()).ends_with("/"))) return name.str();
  }
  const llvm::StringRef last = llvm::sys::path::filename(path);
  return last.starts_with("lathe_") && last.ends_with(".cu") ? last.str() : path.str();
}

void lathe::addWork(const PlanGraph& graph, const Specialization& unit, KernelInspection& kernel) {
  const std::optional<Gemm> gemm = productOf(unit.kind);
  if (!gemm || !unit.config) return;
  kernel.tile = tileWorkOf(*gemm, *unit.config, graph.workload, 2 * graph.choices.chunkPairs * graph.shape.tokens);
  if (!kernel.hotLoop) return;
  const SassLoop& loop = kernel.loops[*kernel.hotLoop];
  const double flops = loop.flops * unit.config->warpsM * unit.config->warpsN;
  if (flops <= 0) return;
  kernel.tile->iterations = kernel.tile->flops / flops;
  kernel.tile->instructions = kernel.tile->iterations * double(loop.instructions());
}

Inspector::Inspector(const Environment& environment, const Cache* cache, OpenNvrtc openNvrtc, const Warn& warn)
    : environment_(environment), cache_(cache),
      store_(cache, std::move(openNvrtc), inspectingOptions(environment), warn) {}

void Inspector::addMachineCode(llvm::StringRef cubin, KernelInspection& result) const {
  const auto read = [&]() -> llvm::Expected<SassListing> {
    llvm::Expected<Disassembler> disassembler =
        findDisassembler(environment_.nvdisasmPath.value_or(""), environment_.cudaSearchFolders);
    if (!disassembler) return disassembler.takeError();
    llvm::Expected<std::string> text = disassembler->run(cubin);
    if (!text) return text.takeError();
    return listingOf(*text, result.entry);
  };
  llvm::Expected<SassListing> listing = read();
  if (!listing) {
    result.sassProblem = takeSummary(listing.takeError()).message;
    return;
  }
  result.sass = std::move(*listing);
  result.mix = mixOf(result.sass->instructions);
  result.resources.spillInstructions = result.mix[InstructionClass::Local];
  result.loops = findLoops(*result.sass);
  result.hotLoop = findHotLoop(result.loops);
}

llvm::Expected<KernelInspection> Inspector::cubin(llvm::StringRef bytes, const CubinContext& context) const {
  llvm::Expected<CubinInfo> info = readCubin(bytes, context.entry);
  if (!info) return info.takeError();
  KernelInspection result;
  result.entry = context.entry;
  result.arch = context.target.arch();
  result.resources = resourcesOf(*info, context);
  result.ptx = ptxOf(bytes);
  addMachineCode(bytes, result);
  return result;
}

llvm::Expected<KernelInspection> Inspector::inspectKernel(const Kernel& kernel) const {
  const Specialization& unit = kernel.specialization;
  llvm::Expected<KernelInspection> result =
      cubin(kernel.cubin, {unit.entry, unit.target, unit.threads, unit.sharedBytes});
  if (!result) return result;
  result->step = toString(unit.kind).str();
  if (unit.config) {
    result->configJson = llvm::formatv("{0}", toJson(*unit.config));
    result->configText = toString(*unit.config);
  }
  result->kernelDigest = kernel.digest.text();
  result->sourceDigest = unit.sourceDigest.text();
  result->origin = toString(kernel.origin).str();
  result->compileMilliseconds = kernel.compileMilliseconds;
  result->sources = sourcesOf(unit, result->sass);
  return result;
}

void Inspector::addTuning(const PlanGraph& graph, PlanInspection& result) const {
  if (!cache_) return;
  const std::optional<std::string> json =
      cache_->loadDocument(workloadDigest(graph.workload), graph.target.arch(), "plan.json");
  if (!json) return;
  TuningEvidence evidence = readTuningEvidence(*json);
  result.tuning = std::move(evidence.plans);
  for (Landscape& landscape : result.landscapes)
    for (LandscapePoint& point : landscape.points)
      if (const auto found = evidence.measured.find({landscape.step, point.config}); found != evidence.measured.end())
        point.measuredMilliseconds = found->second;
}

/// The tools may be missing where everything came from a cache: then their versions stay empty.
void Inspector::addTools(PlanInspection& result) {
  llvm::Expected<Disassembler> disassembler =
      findDisassembler(environment_.nvdisasmPath.value_or(""), environment_.cudaSearchFolders);
  if (disassembler)
    result.disassembler = disassembler->program();
  else
    llvm::consumeError(disassembler.takeError());
  llvm::Expected<NvrtcVersion> version = nvrtcVersion();
  if (!version) return llvm::consumeError(version.takeError());
  result.nvrtcVersion = version->text();
  // Plans use kernels without line information, whose digests are others.
  for (KernelInspection& kernel : result.kernels)
    if (llvm::Expected<Digest> source = Digest::parse(kernel.sourceDigest))
      kernel.kernelDigest = kernelDigest(*source, defaultOptions(kernel.arch), result.nvrtcVersion, kernel.arch).text();
    else
      llvm::consumeError(source.takeError());
}

llvm::Expected<NvrtcVersion> Inspector::nvrtcVersion() {
  llvm::Expected<const Compiler*> compiler = store_.compiler();
  if (!compiler) return compiler.takeError();
  return (*compiler)->nvrtc().version();
}

llvm::Expected<KernelInspection> Inspector::kernel(const Specialization& unit, const Workload& workload) {
  llvm::Expected<std::vector<KernelPointer>> kernels = store_.get(unit, workload);
  if (!kernels) return kernels.takeError();
  return inspectKernel(*kernels->front());
}

llvm::Expected<PlanInspection> Inspector::plan(const PlanGraph& graph, std::optional<KernelKind> wanted) {
  std::vector<Specialization> units;
  for (const KernelKind kind : graph.kernels())
    if (!wanted || kind == *wanted)
      units.push_back(specialize(kind, graph.workload, graph.target, graph.choices.configs));
  llvm::Expected<std::vector<KernelPointer>> kernels = store_.get(units, graph.workload);
  if (!kernels) return kernels.takeError();

  std::vector<std::optional<llvm::Expected<KernelInspection>>> slots(units.size());
  {
    llvm::DefaultThreadPool pool(llvm::hardware_concurrency(environment_.compileThreads.value_or(0)));
    for (size_t i = 0; i < slots.size(); ++i) pool.async([&, i] { slots[i].emplace(inspectKernel(*(*kernels)[i])); });
    pool.wait();
  }
  PlanInspection result;
  llvm::Error errors = llvm::Error::success();
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!*slots[i]) {
      errors = llvm::joinErrors(std::move(errors), slots[i]->takeError());
      continue;
    }
    KernelInspection& kernel = **slots[i];
    addWork(graph, units[i], kernel);
    if (kernel.tile) result.landscapes.push_back(landscapeOf(units[i].kind, graph));
    result.kernels.push_back(std::move(kernel));
  }
  if (errors) return errors;
  describePlan(graph, result);
  addTuning(graph, result);
  addTools(result);
  return result;
}
