//===- cli/CompileVerb.cpp - lathe compile ---------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/PlanFlags.h"
#include "cli/Text.h"
#include "cli/Verbs.h"
#include "cli/WorkloadOptions.h"
#include "runtime/api/PlanDescription.h"
#include "tuning/CompileAhead.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

using namespace lathe;
using namespace lathe::cli;

namespace {

struct CompileOptions {
  WorkloadOptions workload;
  std::string archs;
  PlanFlags plan;
  std::string cacheDir;
  std::optional<unsigned> threads;
  bool json = false;
};

llvm::Expected<std::vector<Target>> namedTargets(llvm::ArrayRef<llvm::StringRef> archs) {
  std::vector<Target> targets;
  for (const llvm::StringRef arch : archs) {
    llvm::Expected<Target> target = parseTarget(arch.trim());
    if (!target) return target.takeError();
    if (!llvm::is_contained(targets, *target)) targets.push_back(*target);
  }
  return targets;
}

/// The targets that `list` names; `all` is every known one that this NVRTC compiles for.
llvm::Expected<std::vector<Target>> targetsOf(llvm::StringRef list, Runtime::Implementation& runtime) {
  llvm::SmallVector<llvm::StringRef> archs;
  list.split(archs, ',');
  if (!llvm::is_contained(archs, "all")) return namedTargets(archs);
  llvm::Expected<const Compiler*> compiler = runtime.store().compiler();
  if (!compiler) return compiler.takeError();
  llvm::Expected<std::vector<int>> supported = (*compiler)->nvrtc().supportedArchitectures();
  if (!supported) return supported.takeError();
  std::vector<Target> targets;
  for (const Target& target : knownTargets())
    if (llvm::is_contained(*supported, target.sm)) targets.push_back(target);
  return targets;
}

llvm::Expected<std::vector<PlanGraph>> plansFor(const CompileOptions& options, llvm::ArrayRef<Target> targets) {
  llvm::Expected<WorkloadInput> input = options.workload.resolve();
  if (!input) return input.takeError();
  std::vector<PlanGraph> graphs;
  for (const Target& target : targets) {
    llvm::Expected<PlanRequest> request = options.plan.resolve(input->workload, target, input->shape.rows());
    if (!request) return request.takeError();
    llvm::Expected<PlanGraph> graph = makePlan(input->workload, input->shape, target, *request);
    if (!graph) return graph.takeError();
    graphs.push_back(std::move(*graph));
  }
  return graphs;
}

/// A bar that is redrawn on a terminal; a line for each kernel elsewhere.
void showProgress(const Session& session, size_t done, size_t total, const KernelOutcome& outcome) {
  const std::string name = (outcome.target.arch() + " " + toString(outcome.kind)).str();
  if (!session.progress) {
    session.err << llvm::formatv("[{0}/{1}] {2}: ", done, total, name)
                << (outcome.kernel ? toString(outcome.kernel->origin) : llvm::StringRef("failed")) << '\n';
    return;
  }
  constexpr size_t kWidth = 30;
  const size_t filled = done * kWidth / total;
  session.err << "\r\x1b[2K[" << std::string(filled, '#') << std::string(kWidth - filled, '.') << "] " << done << '/'
              << total << ' ' << name;
  if (done == total) session.err << "\r\x1b[2K";
  session.err.flush();
}

void report(llvm::ArrayRef<KernelOutcome> outcomes, const Session& session) {
  using enum Table::Align;
  Table table({{"arch"},
               {"kernel"},
               {"registers", Right},
               {"static shared", Right},
               {"dynamic shared", Right},
               {"local", Right},
               {"code", Right},
               {"time", Right},
               {"origin"},
               {"config"}});
  for (const KernelOutcome& outcome : outcomes) {
    if (!outcome.kernel) {
      table.add({outcome.target.arch(), toString(outcome.kind), "", "", "", "", "", "", Cell("failed", Tone::Bad)});
      continue;
    }
    const Kernel& kernel = *outcome.kernel;
    const auto& config = kernel.specialization.config;
    table.add({outcome.target.arch(), toString(outcome.kind), std::to_string(kernel.info.registers),
               std::to_string(kernel.info.sharedBytes), std::to_string(kernel.specialization.sharedBytes),
               Cell(std::to_string(kernel.info.localBytes), kernel.info.localBytes > 0 ? Tone::Bad : Tone::Plain),
               bytesText(static_cast<double>(kernel.info.codeBytes)),
               kernel.origin == KernelOrigin::Compiled ? timeText(kernel.compileMilliseconds) : "",
               toString(kernel.origin), config ? toString(*config) : ""});
  }
  session.print(table);
}

llvm::json::Value jsonOf(llvm::ArrayRef<KernelOutcome> outcomes, const Environment& environment) {
  llvm::json::Array kernels;
  for (const KernelOutcome& outcome : outcomes)
    if (outcome.kernel)
      kernels.push_back(toJson(*outcome.kernel));
    else
      kernels.push_back(llvm::json::Object{
          {"kernel", toString(outcome.kind)}, {"arch", outcome.target.arch()}, {"error", outcome.failure}});
  return llvm::json::Object{{"cache", environment.cacheDir ? llvm::json::Value(*environment.cacheDir) : nullptr},
                            {"kernels", std::move(kernels)}};
}

llvm::Error failuresOf(llvm::ArrayRef<KernelOutcome> outcomes) {
  llvm::Error errors = llvm::Error::success();
  for (const KernelOutcome& outcome : outcomes)
    if (!outcome.kernel)
      errors =
          llvm::joinErrors(std::move(errors), makeError(ErrorCode::Compile, "{0} for {1}: {2}", toString(outcome.kind),
                                                        outcome.target.arch(), outcome.failure));
  return errors;
}

Environment environmentOf(const CompileOptions& options, const Session& session) {
  Environment environment = session.environment;
  if (!options.cacheDir.empty()) environment.cacheDir = options.cacheDir;
  if (options.threads) environment.compileThreads = options.threads;
  return environment;
}

llvm::Expected<ExitCode> compileKernels(const CompileOptions& options, const Session& session) {
  const Environment environment = environmentOf(options, session);
  const std::shared_ptr<Runtime::Implementation> runtime = makeRuntime(environment);
  llvm::Expected<std::vector<Target>> targets = targetsOf(options.archs, *runtime);
  if (!targets) return targets.takeError();
  llvm::Expected<std::vector<PlanGraph>> graphs = plansFor(options, *targets);
  if (!graphs) return graphs.takeError();
  llvm::Expected<std::vector<KernelOutcome>> outcomes =
      compileAhead(*runtime, *graphs, [&](size_t done, size_t total, const KernelOutcome& outcome) {
        showProgress(session, done, total, outcome);
      });
  if (!outcomes) return outcomes.takeError();
  if (options.json) {
    session.print(jsonOf(*outcomes, environment));
  } else {
    report(*outcomes, session);
    if (environment.cacheDir) session.out << "\nkept in " << *environment.cacheDir << '\n';
  }
  if (llvm::Error errors = failuresOf(*outcomes)) return errors;
  return ExitCode::Ok;
}

} // namespace

void lathe::cli::addCompileVerb(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("compile", "Compile the kernels for a workload into a cache, ahead of time");
  const auto options = std::make_shared<CompileOptions>();
  verb->add_option("--arch", options->archs, "GPUs to compile for, such as sm_80,sm_90a; or all")
      ->type_name("ARCH,...")
      ->required();
  verb->add_option("--cache-dir", options->cacheDir, "The cache to fill (default: that of the environment)")
      ->type_name("DIR");
  verb->add_option("--threads", options->threads, "Compilations at once (default: all processors)")
      ->check(CLI::Range(1, 4096).description(""));
  addJsonFlag(*verb, options->json);
  options->plan.addTo(*verb);
  options->workload.addTo(*verb);
  verb->footer("Needs NVRTC and no GPU. Kernels serve every number of sequences and tokens that leads to the same\n"
               "configs; give --sequences and --tokens of the batches to come.\n\n"
               "Examples:\n"
               "  lathe compile --model llama-3-8b --arch sm_80,sm_90a\n"
               "  lathe compile --workload workload.json --arch all --cache-dir /opt/lathe-cache");
  setAction(*verb, action, options, compileKernels);
}
