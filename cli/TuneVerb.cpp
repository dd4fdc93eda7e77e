//===- cli/TuneVerb.cpp - lathe tune ---------------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/Device.h"
#include "cli/Text.h"
#include "cli/TuneReport.h"
#include "cli/Verbs.h"
#include "cli/WorkItems.h"
#include "generator/Workload.h"
#include "tuning/Worker.h"
#include "tuning/WorkerMeasurer.h"

#include "llvm/Support/FileSystem.h"

#include <cmath>
#include <unistd.h>

using namespace lathe;
using namespace lathe::cli;

namespace {

constexpr const char* kWorkerVerb = "tune-worker";

struct TuneOptions {
  std::string list;
  WorkloadOptions workload;
  std::string device = "auto";
  std::string arch;
  std::string budget = "60s";
  std::optional<int64_t> trials;
  bool exhaustive = false;
  bool again = false;
  bool explain = false;
  std::string shard = "0/1";
  std::optional<std::string> workspaceLimit;
  double logitStd = 1;
  double maskedFraction = 0;
  double visitSeconds = 15;
  std::string svg;
  bool json = false;
};

/// What this call has to do.
llvm::Expected<std::vector<WorkItem>> itemsOf(const TuneOptions& options) {
  llvm::Expected<Shard> shard = parseShard(options.shard);
  if (!shard) return shard.takeError();
  llvm::Expected<std::vector<WorkItem>> items = workItems(options.list, options.workload);
  if (!items) return items.takeError();
  return lathe::itemsOf(*shard, onePerBucket(*items));
}

llvm::Expected<TuningProblem> problemOf(const TuneOptions& options, const WorkItem& item, const Target& target) {
  TuningProblem problem{item.workload, item.shape, target, std::nullopt};
  if (!options.workspaceLimit) return problem;
  llvm::Expected<int64_t> bytes = parseBytes("--workspace-limit", *options.workspaceLimit);
  if (!bytes) return bytes.takeError();
  problem.workspaceLimit = *bytes;
  return problem;
}

std::optional<TuningFile> fileFor(const TuningProblem& problem, const Environment& environment) {
  if (!environment.cacheDir) return std::nullopt;
  return TuningFile(entryFolder(*environment.cacheDir, workloadDigest(problem.workload), problem.target.arch()));
}

llvm::Expected<ExitCode> explainAll(const TuneOptions& options, const Session& session) {
  llvm::Expected<std::vector<WorkItem>> items = itemsOf(options);
  if (!items) return items.takeError();
  llvm::Expected<Target> target = chooseTarget(options.arch, session.environment);
  if (!target) return target.takeError();
  for (const WorkItem& item : *items) {
    llvm::Expected<TuningProblem> problem = problemOf(options, item, *target);
    if (!problem) return problem.takeError();
    TuningDocument known;
    if (const std::optional<TuningFile> file = fileFor(*problem, session.environment)) {
      llvm::Expected<TuningDocument> read = file->read();
      if (read)
        known = std::move(*read);
      else
        session.note(takeSummary(read.takeError()).message);
    }
    explain(*problem, known, options.json, session);
  }
  return ExitCode::Ok;
}

double secondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Tunes on one GPU.
class TuneSession {
public:
  TuneSession(const TuneOptions& options, const Session& session, Runtime::Implementation& runtime, GpuInfo gpu,
              TuningSetting setting, TunerOptions tuner)
      : options_(options), session_(session), runtime_(runtime), gpu_(std::move(gpu)), setting_(std::move(setting)),
        tuner_(tuner), reporter_(session, options.json, tuner.budgetSeconds) {}

  llvm::Error tuneItem(const WorkItem& item, size_t index, size_t count) {
    reporter_.begin(item, index, count);
    llvm::Expected<TunerReport> report = measure(item);
    if (report) {
      reporter_.end(item, *report);
      return options_.svg.empty() || report->known ? llvm::Error::success() : plot(item, *report);
    }
    const ErrorSummary summary = takeSummary(report.takeError());
    reporter_.fail(item, summary.message);
    return makeError(summary.code, "{0} could not be tuned", item.name);
  }

private:
  llvm::Error plot(const WorkItem& item, const TunerReport& report) const {
    llvm::Expected<TuningProblem> problem = problemOf(options_, item, gpu_.target);
    if (!problem) return problem.takeError();
    return writeAtomically(options_.svg, landscapeSvg(*problem, report));
  }

  llvm::Expected<TunerReport> measure(const WorkItem& item) {
    const double begin = secondsNow();
    llvm::Expected<TuningProblem> problem = problemOf(options_, item, gpu_.target);
    if (!problem) return problem.takeError();
    const std::optional<TuningFile> file = fileFor(*problem, session_.environment);
    if (std::optional<TunerReport> known = knownResult(*problem, file)) return std::move(*known);
    llvm::Expected<PlanChoices> untuned = untunedChoices(*problem);
    if (!untuned) return untuned.takeError();

    WorkerOpen open;
    open.set = {.workload = item.workload,
                .shape = item.shape,
                .scalars = scalarsFor(item.workload),
                .logitStd = options_.logitStd,
                .maskedFraction = options_.maskedFraction,
                .device = gpu_.ordinal};
    open.first = *untuned;
    const WorkerCommand command{
        .program = llvm::sys::fs::getMainExecutable(nullptr, nullptr),
        .arguments = {kWorkerVerb, "--parent", std::to_string(::getpid())},
        .visitSeconds = options_.visitSeconds,
    };
    llvm::Expected<std::unique_ptr<WorkerMeasurer>> measurer =
        WorkerMeasurer::open(runtime_, command, open, gpu_.target);
    if (!measurer) return measurer.takeError();
    // The start of the worker is part of the time that was allowed.
    TunerOptions tuner = tuner_;
    tuner.budgetSeconds = std::max(1.0, tuner_.budgetSeconds - (secondsNow() - begin));
    return tune(
        *problem, (*measurer)->ready().setting, **measurer, file ? &*file : nullptr, tuner,
        [&](const SearchProgress& progress) { reporter_.progress(progress); }, secondsNow);
  }

  /// A result for this very setting, without starting a worker.
  std::optional<TunerReport> knownResult(const TuningProblem& problem, const std::optional<TuningFile>& file) const {
    if (!file || options_.again) return std::nullopt;
    llvm::Expected<TuningDocument> document = file->readFolded();
    if (!document) {
      session_.note(takeSummary(document.takeError()).message + "; it will be set aside");
      return std::nullopt;
    }
    const std::optional<TunedChoice> known = findTuned(*document, setting_, problem.shape.rows());
    if (!known || known->stale) return std::nullopt;
    TunerReport report;
    report.plan = known->plan;
    report.known = true;
    return report;
  }

  const TuneOptions& options_;
  const Session& session_;
  Runtime::Implementation& runtime_;
  const GpuInfo gpu_;
  const TuningSetting setting_;
  const TunerOptions tuner_;
  TuneReporter reporter_;
};

llvm::Expected<TunerOptions> tunerOptions(const TuneOptions& options) {
  TunerOptions tuner;
  llvm::Expected<int64_t> seconds = parseAge("--budget", options.budget);
  if (!seconds) return seconds.takeError();
  tuner.budgetSeconds = static_cast<double>(*seconds);
  tuner.visits = options.trials;
  if (options.exhaustive) tuner.width = 0;
  tuner.again = options.again;
  if (!(options.maskedFraction >= 0 && options.maskedFraction < 1) || !std::isfinite(options.logitStd))
    return makeError(ErrorCode::InvalidArgument,
                     "--masked-fraction is {0} and --logit-std {1}; the first must be at least 0 and below 1, the "
                     "second finite",
                     options.maskedFraction, options.logitStd);
  return tuner;
}

llvm::Expected<ExitCode> tuneAll(const TuneOptions& options, const Session& session) {
  if (options.explain) return explainAll(options, session);
  llvm::Expected<TunerOptions> tuner = tunerOptions(options);
  if (!tuner) return tuner.takeError();
  llvm::Expected<std::vector<WorkItem>> items = itemsOf(options);
  if (!items) return items.takeError();
  const std::shared_ptr<Runtime::Implementation> runtime = makeRuntime(session.environment);
  llvm::Expected<DeviceChoice> device = chooseDevice(options.device, *runtime);
  if (!device) return device.takeError();
  if (!device->gpu)
    return makeError(ErrorCode::Unsupported, "tuning needs a GPU{0}; --explain --arch sm_90a needs none",
                     device->reason.empty() ? "" : " (" + device->reason + ")");
  llvm::Expected<std::shared_ptr<const Driver>> driver = runtime->driver();
  if (!driver) return driver.takeError();
  llvm::Expected<TuningSetting> setting = runtime->settingOf(**driver, device->gpu->ordinal, device->gpu->target);
  if (!setting) return setting.takeError();
  if (!session.environment.cacheDir)
    session.note("there is no cache folder, so the results will not be kept; set LATHE_CACHE_DIR");

  TuneSession tuning(options, session, *runtime, *device->gpu, *setting, *tuner);
  llvm::Error errors = llvm::Error::success();
  for (size_t i = 0; i < items->size(); ++i)
    errors = llvm::joinErrors(std::move(errors), tuning.tuneItem((*items)[i], i, items->size()));
  if (errors) return errors;
  return ExitCode::Ok;
}

struct WorkerOptions {
  int parent = 0;
};

/// Measures for another process. Whatever else prints must not get into its pipe.
llvm::Expected<ExitCode> serve(const WorkerOptions& options, const Session& session) {
  endWithParent(options.parent);
  const int out = ::dup(STDOUT_FILENO);
  if (out < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
    return makeError(ErrorCode::Io, "a worker cannot set its output aside");
  const std::shared_ptr<Runtime::Implementation> runtime = makeRuntime(session.environment);
  if (llvm::Error error = serveWorker(*runtime, STDIN_FILENO, out)) return error;
  return ExitCode::Ok;
}

} // namespace

void lathe::cli::addTuneVerb(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("tune", "Measure which kernels are fastest here, and keep the result");
  const auto options = std::make_shared<TuneOptions>();
  verb->add_option("list", options->list, "A list of workloads with sweeps over their sizes; - reads standard input")
      ->type_name("FILE");
  addJsonFlag(*verb, options->json);
  verb->add_option("--svg", options->svg, "Plot what was measured over what was predicted (of a list: of its last)")
      ->type_name("FILE")
      ->group("Output");
  addDeviceOption(*verb, options->device);
  const auto search = [](CLI::Option* option) { return option->group("Search"); };
  search(verb->add_option("--budget", options->budget, "Time for each workload (default 60s)"))->type_name("TIME");
  search(verb->add_option("--trials", options->trials, "Most measurements for each workload"))
      ->type_name("N")
      ->check(CLI::Range(1, 1000000).description(""));
  search(verb->add_flag("--exhaustive", options->exhaustive, "Measure every legal config, not only the likeliest"));
  search(verb->add_flag("--again", options->again, "Tune anew where there is a result"));
  search(verb->add_option("--workspace-limit", options->workspaceLimit, "Most workspace, such as 500M or 2G"))
      ->type_name("SIZE");
  search(verb->add_option("--timeout", options->visitSeconds,
                          "Seconds after which a candidate counts as hung (default 15)"))
      ->check(CLI::Range(0.1, 3600.0).description(""));
  search(verb->add_option("--shard", options->shard, "Do part I of N of the list, from 0; parts need no coordination"))
      ->type_name("I/N");
  verb->add_option("--logit-std", options->logitStd, "Standard deviation of the logits (default 1; a trained model: 8)")
      ->group("Data");
  verb->add_option("--masked-fraction", options->maskedFraction, "Tokens that do not count (default 0)")->group("Data");
  verb->add_flag("--explain", options->explain, "Only show the search space, as the cost model ranks it")
      ->group("Explain");
  verb->add_option("--arch", options->arch, "GPU to explain for, such as sm_90a (default: the first GPU here)")
      ->type_name("ARCH")
      ->group("Explain");
  options->workload.addTo(*verb);
  verb->footer("Results go into the cache, and every plan for this kind of GPU uses them. A run that is stopped is\n"
               "taken up by the next.\n\n"
               "Examples:\n"
               "  lathe tune --model llama-3-8b\n"
               "  lathe tune workloads.json --budget 2m --shard 3/16\n"
               "  lathe tune --explain --model llama-3-8b --arch sm_90a");
  setAction(*verb, action, options, tuneAll);

  CLI::App* worker = app.add_subcommand(kWorkerVerb, "Measure for lathe tune")->group("");
  const auto workerOptions = std::make_shared<WorkerOptions>();
  worker->add_option("--parent", workerOptions->parent, "Process to end with")->required();
  setAction(*worker, action, workerOptions, serve);
}
