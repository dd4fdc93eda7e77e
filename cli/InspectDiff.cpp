//===- cli/InspectDiff.cpp - Two kernels side by side -----------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/InspectDiff.h"

#include "generator/Workload.h"
#include "runtime/inspect/Difference.h"
#include "runtime/inspect/Explain.h"
#include "runtime/inspect/Inspector.h"
#include "runtime/inspect/Roofline.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace lathe;
using namespace lathe::cli;

namespace {

/// Lines of the source around those that differ.
constexpr size_t kContext = 2;

Inspector makeInspector(const Cache* cache, const Session& session) {
  return Inspector(session.environment, cache, LibraryOpeners::fromEnvironment(session.environment).nvrtc,
                   [&session](llvm::StringRef message) { session.note(message); });
}

/// `12 registers`
void printFigures(const KernelComparison& comparison, const Session& session) {
  using enum Table::Align;
  Table table({{""}, {""}, {"first", Right}, {"second", Right}});
  std::string group;
  for (const ComparedFigure& figure : comparison.figures) {
    if (!figure.differs()) continue;
    table.add(
        {figure.group == group ? "" : figure.group, figure.name, figure.first, Cell(figure.second, Tone::Strong)});
    group = figure.group;
  }
  if (table.empty())
    session.out << "no figure differs\n";
  else
    session.print(table);
}

void printSource(const std::vector<ComparedLine>& lines, const Session& session) {
  const auto differs = [](const ComparedLine& line) { return line.origin != LineOrigin::Both; };
  if (llvm::none_of(lines, differs)) {
    if (!lines.empty()) session.out << "\nthe sources are the same\n";
    return;
  }
  session.title("source");
  bool skipped = false;
  for (size_t i = 0; i < lines.size(); ++i) {
    const size_t begin = i < kContext ? 0 : i - kContext;
    const size_t end = std::min(lines.size(), i + kContext + 1);
    if (!std::any_of(lines.begin() + begin, lines.begin() + end, differs)) {
      skipped = true;
      continue;
    }
    if (skipped) write(session.out, "...\n", Tone::Faint, session.colour);
    skipped = false;
    switch (lines[i].origin) {
    case LineOrigin::Both:
      session.out << "  " << lines[i].text << '\n';
      break;
    case LineOrigin::First:
      write(session.out, "- " + lines[i].text + "\n", Tone::Bad, session.colour);
      break;
    case LineOrigin::Second:
      write(session.out, "+ " + lines[i].text + "\n", Tone::Good, session.colour);
      break;
    }
  }
}

/// The kernel that a plan would load.
std::optional<CachedKernel> planKernelInCache(const Specialization& unit, const Workload& workload,
                                              const Session& session) {
  const Cache cache(session.environment.cacheDir, session.environment.cachePath,
                    [&session](llvm::StringRef message) { session.note(message); });
  const std::string arch = unit.target.arch();
  const Digest digest = workloadDigest(workload);
  llvm::Expected<Nvrtc> nvrtc = LibraryOpeners::fromEnvironment(session.environment).nvrtc();
  llvm::Expected<NvrtcVersion> version = nvrtc ? nvrtc->version() : nvrtc.takeError();
  if (version)
    return cache.load({digest, arch, kernelDigest(unit.sourceDigest, defaultOptions(arch), version->text(), arch)});
  llvm::consumeError(version.takeError());
  return cache.loadBySource(digest, arch, unit.sourceDigest);
}

/// Units where both are known, else both in one file.
void unifySources(DiffSide& first, DiffSide& second) {
  if (first.hasUnit && second.hasUnit) return;
  for (DiffSide* side : {&first, &second})
    if (!side->flatSource.empty()) side->kernel.sources = {{side->kernel.entry + ".cu", side->flatSource}};
}

} // namespace

llvm::Expected<DiffSide> lathe::cli::sideOfPlan(const PlanGraph& graph, KernelKind kind, bool fresh,
                                                const Session& session) {
  const Cache cache(session.environment.cacheDir, session.environment.cachePath,
                    [&session](llvm::StringRef message) { session.note(message); });
  Inspector inspector = makeInspector(fresh ? nullptr : &cache, session);
  llvm::Expected<PlanInspection> plan = inspector.plan(graph, kind);
  if (!plan) return plan.takeError();
  DiffSide side{std::move(plan->kernels.front()), std::nullopt, "", true};
  side.flatSource = specialize(kind, graph.workload, graph.target, graph.choices.configs).flattened();
  for (const StepInspection& step : plan->steps)
    if (step.step == side.kernel.step && !side.step) side.step = step;
  return side;
}

llvm::Expected<DiffSide> lathe::cli::sideOfCubin(llvm::StringRef what, const Session& session) {
  llvm::Expected<KernelExplanation> explanation = explainKernel(what, cacheRoots(session.environment));
  if (!explanation) return explanation.takeError();
  if (explanation->entries.empty())
    return makeError(ErrorCode::Corrupt, "{0} has no kernel that could be compared", explanation->file);
  llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> buffer = llvm::MemoryBuffer::getFile(explanation->file);
  if (!buffer) return makeError(ErrorCode::Io, "cannot read {0}: {1}", explanation->file, buffer.getError().message());
  const CubinEntry& entry = explanation->entries.front();
  llvm::Expected<CubinInfo> info = readCubin((*buffer)->getBuffer(), entry.name);
  if (!info) return info.takeError();
  llvm::Expected<KernelInspection> kernel =
      makeInspector(nullptr, session)
          .cubin((*buffer)->getBuffer(), {entry.name, targetOfCubin(info->sm, info->archSpecific),
                                          entry.resources.threads, entry.resources.dynamicSharedBytes});
  if (!kernel) return kernel.takeError();
  kernel->step = explanation->step;
  kernel->configJson = explanation->configJson;
  kernel->configText = explanation->configText;
  kernel->kernelDigest = explanation->kernelDigest;
  kernel->sourceDigest = explanation->sourceDigest;
  return DiffSide{std::move(*kernel), std::nullopt, explanation->source, false};
}

llvm::Expected<DiffSide> lathe::cli::sideInCache(const PlanGraph& graph, KernelKind kind, const Session& session) {
  const Specialization unit = specialize(kind, graph.workload, graph.target, graph.choices.configs);
  const std::optional<CachedKernel> cached = planKernelInCache(unit, graph.workload, session);
  if (!cached)
    return makeError(ErrorCode::InvalidArgument,
                     "the cache has no kernel for {0} of this workload and config; `lathe compile` puts one there",
                     toString(kind));
  llvm::Expected<DiffSide> side = sideOfCubin(cached->record.kernelDigest.hex(), session);
  if (!side) return side;
  addWork(graph, unit, side->kernel);
  for (const Step& step : graph.workload.anyGradient() ? graph.forwardBackward : graph.forward)
    if (step.kind == kind && !side->step) side->step = inspectStep(step, graph, &side->kernel);
  return side;
}

void lathe::cli::printComparison(DiffSide first, DiffSide second, bool json, const Session& session) {
  unifySources(first, second);
  const KernelComparison comparison =
      compareKernels(ComparedKernel{first.kernel, first.step ? &*first.step : nullptr},
                     ComparedKernel{second.kernel, second.step ? &*second.step : nullptr});
  if (json) return session.print(toJson(comparison));
  printFigures(comparison, session);
  if (comparison.sameCode)
    session.out << '\n' << (*comparison.sameCode ? "the machine code is the same\n" : "the machine code differs\n");
  printSource(comparison.source, session);
}
