//===- cli/InspectVerb.cpp - lathe inspect ----------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/Device.h"
#include "cli/InspectionTables.h"
#include "cli/Listing.h"
#include "cli/Pager.h"
#include "cli/PlanFlags.h"
#include "cli/Verbs.h"
#include "cli/WorkloadOptions.h"
#include "generator/CanonicalJson.h"
#include "runtime/inspect/InspectionJson.h"
#include "runtime/inspect/Inspector.h"
#include "runtime/inspect/Roofline.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace lathe;
using namespace lathe::cli;

namespace {

struct InspectOptions {
  WorkloadOptions workload;
  std::string arch;
  PlanFlags plan;
  std::string step = "all";
  std::string config;
  std::string show = "summary";
  std::optional<int> columns;
  bool noPager = false;
  bool json = false;
};

/// A config as JSON text, or a file that has it.
llvm::Expected<Config> readConfig(const std::string& text) {
  std::string json = text;
  if (!llvm::StringRef(text).ltrim().starts_with("{")) {
    llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> buffer = llvm::MemoryBuffer::getFile(text);
    if (!buffer)
      return makeError(ErrorCode::InvalidArgument,
                       "--config is \"{0}\", which is neither JSON nor a file that can be read ({1})", text,
                       buffer.getError().message());
    json = (*buffer)->getBuffer().str();
  }
  llvm::Expected<llvm::json::Value> value = parseJson(json);
  if (!value) return value.takeError();
  return parseConfig(*value);
}

/// The step that is named; none for `all`.
llvm::Expected<std::optional<KernelKind>> wantedStep(const InspectOptions& options, const PlanGraph& graph) {
  if (options.step == "all") return std::nullopt;
  llvm::Expected<KernelKind> kind = parseKernelKind(options.step);
  if (!kind) return kind.takeError();
  if (llvm::is_contained(graph.kernels(), *kind)) return *kind;
  std::string names;
  for (const KernelKind known : graph.kernels()) names += (names.empty() ? "" : ", ") + toString(known).str();
  return makeError(ErrorCode::InvalidArgument, "the plan has no step \"{0}\"; --step may be all, {1}", options.step,
                   names);
}

/// Puts `config` in the place of the one that was chosen for `step`.
llvm::Error setConfig(GemmConfigs& configs, llvm::StringRef step, const Config& config) {
  llvm::Expected<KernelKind> kind = parseKernelKind(step);
  if (!kind) return kind.takeError();
  const std::optional<Gemm> gemm = productOf(*kind);
  if (!gemm)
    return makeError(ErrorCode::InvalidArgument,
                     "--config is for a matrix product, and {0} is none; give --step "
                     "logits, grad_input or grad_weight with it",
                     step);
  (*gemm == Gemm::Logits ? configs.logits : *gemm == Gemm::GradInput ? configs.gradInput : configs.gradWeight) = config;
  return llvm::Error::success();
}

llvm::Expected<PlanGraph> graphOf(const InspectOptions& options, const Session& session) {
  llvm::Expected<WorkloadInput> input = options.workload.resolve();
  if (!input) return input.takeError();
  llvm::Expected<Target> target = chooseTarget(options.arch, session.environment);
  if (!target) return target.takeError();
  llvm::Expected<PlanRequest> request = options.plan.resolve(input->workload, *target, input->shape.rows());
  if (!request) return request.takeError();
  if (!options.config.empty()) {
    llvm::Expected<Config> config = readConfig(options.config);
    if (!config) return config.takeError();
    if (!request->configs) {
      llvm::Expected<GemmConfigs> chosen = chooseConfigs(input->workload, *target, input->shape.rows());
      if (!chosen) return chosen.takeError();
      request->configs = *chosen;
    }
    if (llvm::Error error = setConfig(*request->configs, options.step, *config)) return error;
  }
  return makePlan(input->workload, input->shape, *target, *request);
}

/// Writes to a pager where there is a terminal, else to standard output.
template <class Body> void withPager(const InspectOptions& options, const Session& session, Body body) {
  if (const std::unique_ptr<Pager> pager = options.noPager ? nullptr : Pager::start())
    return body(Session{pager->out(), session.err, session.colour, session.progress, session.environment});
  body(session);
}

void printListing(const InspectOptions& options, const KernelInspection& kernel, const Session& session) {
  const ListingStyle style{session.colour, options.columns ? *options.columns : terminalColumns().value_or(0)};
  if (options.show == "ptx") return printPtx(session.out, kernel, style);
  if (options.show == "sass") return printSass(session.out, kernel, style);
  printSideBySide(session.out, kernel, style);
}

/// A source is printed as it is: it may go to a compiler.
llvm::Error printSource(const InspectOptions& options, const PlanGraph& graph, KernelKind kind,
                        const Session& session) {
  const Specialization unit = specialize(kind, graph.workload, graph.target, graph.choices.configs);
  const std::string text = options.show == "flat" ? unit.flattened() : unit.unit;
  withPager(options, session, [&](const Session& to) { to.out << text; });
  return llvm::Error::success();
}

llvm::Error checkCode(const InspectOptions& options, const KernelInspection& kernel) {
  if (options.show == "ptx" && kernel.ptx.empty())
    return makeError(ErrorCode::Unsupported,
                     "the cubin of {0} has no PTX: it was found in a cache that was filled "
                     "without line information, and there is no NVRTC to compile it anew",
                     kernel.step);
  if (options.show != "ptx" && !kernel.sass) return makeError(ErrorCode::MissingLibrary, "{0}", kernel.sassProblem);
  return llvm::Error::success();
}

llvm::Expected<ExitCode> inspectWorkload(const InspectOptions& options, const Session& session) {
  llvm::Expected<PlanGraph> graph = graphOf(options, session);
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
  if (options.json) {
    session.print(toJson(*plan, *wanted ? CodeInJson::With : CodeInJson::Without));
    return ExitCode::Ok;
  }
  if (listing) {
    if (llvm::Error error = checkCode(options, plan->kernels.front())) return error;
    withPager(options, session, [&](const Session& to) { printListing(options, plan->kernels.front(), to); });
    return ExitCode::Ok;
  }
  withPager(options, session,
            [&](const Session& to) { *wanted ? printKernel(*plan, plan->kernels.front(), to) : printPlan(*plan, to); });
  return ExitCode::Ok;
}

void addOutputOptions(CLI::App& verb, InspectOptions& options) {
  verb.add_option("--show", options.show,
                  "What to print of one kernel: figures, or the generated unit, the unit in one file, PTX, machine "
                  "code, source beside machine code (default summary)")
      ->check(CLI::IsMember({"summary", "source", "flat", "ptx", "sass", "side"}))
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
  const auto options = std::make_shared<InspectOptions>();
  std::vector<std::string> steps = {"all"};
  for (size_t kind = 0; kind < kKernelKindCount; ++kind) steps.push_back(toString(static_cast<KernelKind>(kind)).str());
  verb->add_option("--step", options->step, "One kernel, or all (default all)")->check(CLI::IsMember(steps));
  verb->add_option("--config", options->config, "Config of the product that --step names: JSON, or a file of it")
      ->type_name("JSON");
  addOutputOptions(*verb, *options);
  addArchOption(*verb, options->arch);
  options->plan.addTo(*verb);
  options->workload.addTo(*verb);
  verb->footer("Needs NVRTC, no GPU, and for machine code nvdisasm (pip install nvidia-cuda-nvdisasm).\n\n"
               "Examples:\n"
               "  lathe inspect --model llama-3-8b --arch sm_90a\n"
               "  lathe inspect --model llama-3-8b --arch sm_90a --step logits --show side");
  setAction(*verb, action, options, inspectWorkload);
}
