//===- cli/InspectVerb.cpp - lathe inspect ----------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/Device.h"
#include "cli/InspectDiff.h"
#include "cli/InspectMeasure.h"
#include "cli/InspectionTables.h"
#include "cli/Listing.h"
#include "cli/Pager.h"
#include "cli/PlanInputs.h"
#include "cli/Verbs.h"
#include "runtime/inspect/InspectionJson.h"
#include "runtime/inspect/Inspector.h"
#include "runtime/inspect/PlanParts.h"
#include "runtime/inspect/Report.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace lathe;
using namespace lathe::cli;

namespace {

struct InspectVerbOptions {
  WorkloadOptions workload;
  std::string arch;
  PlanFlags plan;
  std::string step = "all";
  std::string config;
  std::string show = "summary";
  std::vector<std::string> diff;
  int measure = 0;
  std::string html;
  std::optional<int> columns;
  bool noPager = false;
  bool json = false;
};

/// JSON text, or that in a file.
llvm::Expected<std::string> jsonText(const std::string& text) {
  if (llvm::StringRef(text).ltrim().starts_with("{")) return text;
  // A device or a pipe might never end.
  if (!llvm::sys::fs::is_regular_file(text))
    return makeError(ErrorCode::InvalidArgument, "\"{0}\" is neither JSON nor a file", text);
  llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> buffer = llvm::MemoryBuffer::getFile(text);
  if (buffer) return (*buffer)->getBuffer().str();
  return makeError(ErrorCode::InvalidArgument, "\"{0}\" is neither JSON nor a file that can be read ({1})", text,
                   buffer.getError().message());
}

/// The step that is named; none for `all`.
llvm::Expected<std::optional<KernelKind>> wantedStep(const InspectVerbOptions& options, const PlanGraph& graph) {
  if (options.step == "all") return std::nullopt;
  llvm::Expected<KernelKind> kind = findStep(graph, options.step);
  if (!kind) return kind.takeError();
  return *kind;
}

/// The plan, with `config` (JSON or a file; empty: none) for the product that --step names.
llvm::Expected<PlanGraph> graphOf(const InspectVerbOptions& options, const std::string& config,
                                  const Session& session) {
  llvm::Expected<PlanInputs> inputs = resolvePlanInputs(options.workload, options.arch, options.plan, session);
  if (!inputs) return inputs.takeError();
  if (!config.empty()) {
    llvm::Expected<std::string> json = jsonText(config);
    if (!json) return json.takeError();
    PlanRequest& request = inputs->request;
    if (!request.configs) {
      const WorkloadInput& input = inputs->workload;
      llvm::Expected<GemmConfigs> chosen = chooseConfigs(input.workload, inputs->target, input.shape.rows());
      if (!chosen) return chosen.takeError();
      request.configs = *chosen;
    }
    llvm::Expected<GemmConfigs> configs = withConfig(*request.configs, options.step, *json);
    if (!configs) return configs.takeError();
    request.configs = *configs;
  }
  return inputs->plan();
}

/// Measures `steps` of `graph` where --measure asks for it.
llvm::Error measure(const InspectVerbOptions& options, const PlanGraph& graph, const Session& session,
                    llvm::MutableArrayRef<StepInspection> steps) {
  if (options.measure == 0) return llvm::Error::success();
  llvm::Expected<WorkloadInput> input = options.workload.resolve();
  if (!input) return input.takeError();
  return measureSteps(graph, input->scalars, options.measure, session, steps);
}

/// One side of --diff: `cached`, `fresh`, a config (JSON or its file), a digest, or a cubin's file.
llvm::Expected<DiffSide> diffSide(const InspectVerbOptions& options, const std::string& what, const Session& session) {
  const llvm::StringRef text = what;
  const bool isConfig = text.ltrim().starts_with("{") || text.ends_with(".json");
  if (!isConfig && text != "cached" && text != "fresh") return sideOfCubin(what, session);
  llvm::Expected<PlanGraph> graph = graphOf(options, isConfig ? what : options.config, session);
  if (!graph) return graph.takeError();
  llvm::Expected<std::optional<KernelKind>> kind = wantedStep(options, *graph);
  if (!kind) return kind.takeError();
  if (!*kind)
    return makeError(ErrorCode::InvalidArgument, "--diff compares one kernel; name it with --step, such as logits");
  llvm::Expected<DiffSide> side =
      text == "cached" ? sideInCache(*graph, **kind, session) : sideOfPlan(*graph, **kind, text == "fresh", session);
  if (side && side->step)
    if (llvm::Error error = measure(options, *graph, session, *side->step)) return error;
  return side;
}

/// Writes to a pager where there is a terminal, else to standard output.
template <class Body> void withPager(const InspectVerbOptions& options, const Session& session, Body body) {
  if (const std::unique_ptr<Pager> pager = options.noPager ? nullptr : Pager::start())
    return body(Session{pager->out(), session.err, session.colour, session.progress, session.environment});
  body(session);
}

void printListing(const InspectVerbOptions& options, const KernelInspection& kernel, const Session& session) {
  const ListingStyle style{session.colour, options.columns ? *options.columns : terminalColumns().value_or(0)};
  if (options.show == "ptx") return printPtx(session.out, kernel, style);
  if (options.show == "sass") return printSass(session.out, kernel, style);
  printSideBySide(session.out, kernel, style);
}

/// A source is printed as it is: it may go to a compiler.
llvm::Error printSource(const InspectVerbOptions& options, const PlanGraph& graph, KernelKind kind,
                        const Session& session) {
  const Specialization unit = specialize(kind, graph.workload, graph.target, graph.choices.configs);
  const std::string text = options.show == "flat" ? unit.flattened() : unit.unit;
  withPager(options, session, [&](const Session& to) { to.out << text; });
  return llvm::Error::success();
}

llvm::Error checkCode(const InspectVerbOptions& options, const KernelInspection& kernel) {
  if (options.show == "ptx" && kernel.ptx.empty())
    return makeError(ErrorCode::Unsupported,
                     "the cubin of {0} has no PTX: it was found in a cache that was filled "
                     "without line information, and there is no NVRTC to compile it anew",
                     kernel.step);
  if (options.show != "ptx" && !kernel.sass) return makeError(ErrorCode::MissingLibrary, "{0}", kernel.sassProblem);
  return llvm::Error::success();
}

llvm::Expected<ExitCode> compareTwo(const InspectVerbOptions& options, const Session& session) {
  llvm::Expected<DiffSide> first = diffSide(options, options.diff[0], session);
  if (!first) return first.takeError();
  llvm::Expected<DiffSide> second = diffSide(options, options.diff[1], session);
  if (!second) return second.takeError();
  withPager(options, session,
            [&](const Session& to) { printComparison(std::move(*first), std::move(*second), options.json, to); });
  return ExitCode::Ok;
}

llvm::Expected<ExitCode> inspectWorkload(const InspectVerbOptions& options, const Session& session) {
  if (!options.diff.empty()) return compareTwo(options, session);
  llvm::Expected<PlanGraph> graph = graphOf(options, options.config, session);
  if (!graph) return graph.takeError();
  llvm::Expected<std::optional<KernelKind>> wanted = wantedStep(options, *graph);
  if (!wanted) return wanted.takeError();
  const bool listing = options.show != "summary";
  if (listing && !*wanted)
    return makeError(ErrorCode::InvalidArgument, "--show {0} is for one kernel; name it with --step", options.show);
  if (options.show == "source" || options.show == "flat") {
    if (llvm::Error error = printSource(options, *graph, **wanted, session)) return error;
    return ExitCode::Ok;
  }

  const std::shared_ptr<Runtime::Implementation> runtime = makeRuntime(session.environment);
  Inspector inspector(session.environment, &runtime->cache(),
                      LibraryOpeners::fromEnvironment(session.environment).nvrtc,
                      [&](llvm::StringRef message) { session.note(message); });
  llvm::Expected<PlanInspection> plan = inspector.plan(*graph, *wanted);
  if (!plan) return plan.takeError();
  if (llvm::Error error = measure(options, *graph, session, plan->steps)) return error;
  if (!options.html.empty()) {
    if (llvm::Error error = writeAtomically(options.html, renderReport(*plan))) return error;
    session.note("wrote " + options.html);
  }
  if (options.json) {
    session.print(toJson(*plan, *wanted ? CodeInJson::With : CodeInJson::Without));
    return ExitCode::Ok;
  }
  if (!options.html.empty()) return ExitCode::Ok;
  if (listing) {
    if (llvm::Error error = checkCode(options, plan->kernels.front())) return error;
    withPager(options, session, [&](const Session& to) { printListing(options, plan->kernels.front(), to); });
    return ExitCode::Ok;
  }
  withPager(options, session,
            [&](const Session& to) { *wanted ? printKernel(*plan, plan->kernels.front(), to) : printPlan(*plan, to); });
  return ExitCode::Ok;
}

void addOutputOptions(CLI::App& verb, InspectVerbOptions& options) {
  verb.add_option("--show", options.show,
                  "What to print of one kernel: figures, or the generated unit, the unit in one file, PTX, machine "
                  "code, source beside machine code (default summary)")
      ->check(CLI::IsMember({"summary", "source", "flat", "ptx", "sass", "side"}))
      ->group("Output");
  verb.add_option("--html", options.html, "Write everything into one page for a browser")
      ->type_name("FILE")
      ->group("Output");
  verb.add_option("--columns", options.columns, "Width of listings (default: that of the terminal)")
      ->check(CLI::Range(40, 1000).description(""))
      ->group("Output");
  verb.add_flag("--no-pager", options.noPager, "Print to the terminal without a pager")->group("Output");
  addJsonFlag(verb, options.json);
}

} // namespace

void lathe::cli::addInspectVerb(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("inspect", "Take the kernels for a workload apart: source, PTX, SASS, resources");
  const auto options = std::make_shared<InspectVerbOptions>();
  addStepOption(*verb, options->step);
  verb->add_option("--config", options->config, "Config of the product that --step names: JSON, or a file of it")
      ->type_name("JSON");
  verb->add_option("--diff", options->diff,
                   "Compare two kernels: each a config (JSON or its file), cached, fresh, a digest or a cubin")
      ->type_name("A B")
      ->expected(2);
  verb->add_option("--measure", options->measure, "Measure the steps on this machine's GPU over N runs")
      ->type_name("N")
      ->check(CLI::Range(1, 1000000).description(""));
  addOutputOptions(*verb, *options);
  addArchOption(*verb, options->arch);
  options->plan.addTo(*verb);
  options->workload.addTo(*verb);
  verb->footer("Needs NVRTC, no GPU, and for machine code nvdisasm (pip install nvidia-cuda-nvdisasm).\n\n"
               "Examples:\n"
               "  lathe inspect --model llama-3-8b --arch sm_90a\n"
               "  lathe inspect --model llama-3-8b --arch sm_90a --step logits --show side\n"
               "  lathe inspect --model llama-3-8b --arch sm_90a --html report.html\n"
               "  lathe inspect --model llama-3-8b --arch sm_90a --step logits --diff cached fresh\n"
               "  lathe inspect --model llama-3-8b --measure 20 --html report.html");
  setAction(*verb, action, options, inspectWorkload);
}
