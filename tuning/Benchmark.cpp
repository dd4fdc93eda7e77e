//===- tuning/Benchmark.cpp - How fast plans are ----------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tuning/Benchmark.h"

#include "generator/Workload.h"
#include "runtime/cache/KernelRecord.h"
#include "tuning/SvgPlot.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <map>

using namespace lathe;

namespace {

constexpr llvm::StringLiteral kPasses[] = {"forward", "full"};

/// A plan that takes part.
struct Contender {
  Runtime::Implementation::PlanPointer plan;
  size_t result;
};

/// The contenders of one pass, which share their inputs and results.
struct Lane {
  std::unique_ptr<const Case> value;
  std::optional<DeviceCase> uploaded;
  std::vector<Contender> contenders;
};

class Bench {
public:
  Bench(Runtime::Implementation& runtime, const WorkItem& item, const BenchOptions& options)
      : runtime_(runtime), item_(item), options_(options) {}

  llvm::Expected<std::vector<BenchResult>> run() {
    for (const BenchPass pass : options_.passes)
      if (llvm::Error error = addLane(pass)) return error;
    for (Lane& lane : lanes_)
      if (llvm::Error error = check(lane)) return error;
    std::vector<std::vector<double>> times(results_.size());
    for (int round = 0; round < options_.rounds; ++round)
      if (llvm::Error error = visitAll(times)) return error;
    for (size_t i = 0; i < results_.size(); ++i) results_[i].timing = summarize(std::move(times[i]));
    return std::move(results_);
  }

private:
  llvm::Error addLane(BenchPass pass) {
    const Workload workload = workloadFor(item_.workload, pass);
    Lane lane;
    lane.value = std::make_unique<const Case>(makeRandomCase(workload, item_.shape, scalarsFor(workload), options_.seed,
                                                             options_.logitStd, options_.maskedFraction));
    llvm::Expected<DeviceCase> uploaded =
        DeviceCase::upload(runtime_, *lane.value, {.request = {}, .device = options_.device});
    if (!uploaded) return uploaded.takeError();
    lane.uploaded.emplace(std::move(*uploaded));
    if (llvm::Error error = addContenders(pass, workload, lane)) return error;
    lanes_.push_back(std::move(lane));
    return llvm::Error::success();
  }

  llvm::Error addContenders(BenchPass pass, const Workload& workload, Lane& lane) {
    auto own = runtime_.plan(workload, item_.shape, {}, options_.device);
    if (!own) return own.takeError();
    const DeviceContext& device = (*own)->plan.device();
    if (llvm::Error error = addContender(pass, *own, lane)) return error;
    if (!(*own)->tuned) return llvm::Error::success();
    llvm::Expected<PlanChoices> untuned = untunedChoices({workload, item_.shape, device.target(), std::nullopt});
    if (!untuned) return untuned.takeError();
    if (*untuned == (*own)->plan.graph().choices) return llvm::Error::success();
    auto plain = runtime_.plan(workload, item_.shape, requestOf(*untuned), options_.device);
    if (!plain) return plain.takeError();
    return addContender(pass, *plain, lane);
  }

  llvm::Error addContender(BenchPass pass, const Runtime::Implementation::PlanPointer& plan, Lane& lane) {
    const PlanGraph& graph = plan->plan.graph();
    BenchResult result;
    result.item = item_;
    result.pass = pass;
    result.tuned = plan->tuned.has_value();
    result.stale = plan->tuned && plan->tuned->stale;
    result.choices = graph.choices;
    for (const Step& step : stepsOfRun(graph, /*twoCalls=*/false)) result.flops += step.flops;
    result.workspaceBytes = graph.workspaceBytes;
    result.date = utcNow();
    llvm::Expected<TuningSetting> setting = runtime_.settingOf(plan->plan.device());
    if (!setting) return setting.takeError();
    result.setting = std::move(*setting);
    for (const LoadedKernel::Pointer& loaded : plan->plan.kernels()) result.kernels.push_back(loaded->pointer());
    lane.contenders.push_back({plan, results_.size()});
    results_.push_back(std::move(result));
    return openNvml(plan->plan.device());
  }

  llvm::Error openNvml(const DeviceContext& device) {
    llvm::Expected<CUdevice> handle = deviceAt(device.driver(), device.ordinal());
    if (!handle) return handle.takeError();
    llvm::Expected<Nvml> opened = Nvml::open(device.driver(), *handle);
    if (opened)
      nvml_ = *opened;
    else
      llvm::consumeError(opened.takeError());
    if (nvml_) results_.back().driverRelease = nvml_->driverRelease();
    return llvm::Error::success();
  }

  llvm::Error check(Lane& lane) {
    SampledReference reference(*lane.value, ReferenceSample());
    for (const Contender& contender : lane.contenders) {
      if (llvm::Error error = lane.uploaded->replacePlan(contender.plan)) return error;
      if (llvm::Error error = lane.uploaded->poison()) return error;
      if (llvm::Error error = lane.uploaded->run()) return error;
      llvm::Expected<LossResult> got = lane.uploaded->downloadParts(reference.rows(), reference.entries());
      if (!got) return got.takeError();
      BenchResult& result = results_[contender.result];
      result.checks = reference.compare(*got);
      for (const Comparison& comparison : result.checks)
        if (!comparison.ok)
          return makeError(ErrorCode::Internal,
                           "{0}, {1} pass: {2} is wrong, its error is {3:e2}; see `lathe verify`, and please report it",
                           item_.name, toString(result.pass), comparison.name, comparison.error);
    }
    return llvm::Error::success();
  }

  llvm::Error visitAll(std::vector<std::vector<double>>& times) {
    for (Lane& lane : lanes_)
      for (const Contender& contender : lane.contenders) {
        if (llvm::Error error = lane.uploaded->replacePlan(contender.plan)) return error;
        llvm::Expected<std::vector<double>> visit = timeSteps(*lane.uploaded, {}, options_.repetitions);
        if (!visit) return visit.takeError();
        llvm::append_range(times[contender.result], *visit);
        const std::optional<ClockState> state = nvml_ ? nvml_->state() : std::nullopt;
        results_[contender.result].throttled += state && state->throttled;
      }
    return llvm::Error::success();
  }

  Runtime::Implementation& runtime_;
  const WorkItem& item_;
  const BenchOptions& options_;
  std::optional<Nvml> nvml_;
  std::vector<Lane> lanes_;
  std::vector<BenchResult> results_;
};

double milliToTera(double flops, double milliseconds) {
  return milliseconds > 0 ? flops / milliseconds / 1e9 : 0;
}

} // namespace

llvm::StringRef lathe::toString(BenchPass pass) {
  return kPasses[static_cast<size_t>(pass)];
}

llvm::Expected<BenchPass> lathe::parseBenchPass(llvm::StringRef name) {
  for (size_t i = 0; i < std::size(kPasses); ++i)
    if (name == kPasses[i]) return static_cast<BenchPass>(i);
  return makeError(ErrorCode::InvalidArgument, "\"{0}\" is not a pass; it must be forward or full", name);
}

double BenchResult::strain() const {
  double most = 0;
  for (const Comparison& comparison : checks) most = std::max(most, comparison.error / comparison.tolerance);
  return most;
}

Workload lathe::workloadFor(const Workload& workload, BenchPass pass) {
  if (pass == BenchPass::Full) return workload;
  Workload forward = workload;
  forward.gradInput = forward.gradWeight = forward.gradBias = false;
  forward.gradWeightDType = forward.dtype;
  return forward;
}

llvm::Expected<std::vector<BenchResult>> lathe::benchmark(Runtime::Implementation& runtime, const WorkItem& item,
                                                          const BenchOptions& options) {
  if (options.rounds < 1 || options.repetitions < 1)
    return makeError(ErrorCode::InvalidArgument, "{0} rounds of {1} repetitions; both must be at least 1",
                     options.rounds, options.repetitions);
  if (llvm::Error error = validate(item.workload)) return error;
  if (llvm::Error error = validate(item.workload, item.shape)) return error;
  return Bench(runtime, item, options).run();
}

llvm::json::Value lathe::toJson(const BenchResult& result) {
  llvm::json::Array checks;
  for (const Comparison& comparison : result.checks)
    checks.push_back(llvm::json::Object{
        {"name", comparison.name}, {"error", comparison.error}, {"tolerance", comparison.tolerance}});
  const Timing& timing = result.timing;
  return llvm::json::Object{{"name", result.item.name},
                            {"workload", toJson(workloadFor(result.item.workload, result.pass))},
                            {"sequences", result.item.shape.sequences},
                            {"tokens", result.item.shape.tokens},
                            {"pass", toString(result.pass)},
                            {"plan", result.tuned ? "tuned" : "default"},
                            {"stale", result.stale},
                            {"choices", toJson(result.choices)},
                            {"median_ms", timing.median},
                            {"p20_ms", timing.p20},
                            {"p80_ms", timing.p80},
                            {"low_ms", timing.low},
                            {"high_ms", timing.high},
                            {"repetitions", timing.repetitions},
                            {"tflops", milliToTera(result.flops, timing.median)},
                            {"workspace_bytes", result.workspaceBytes},
                            {"throttled", result.throttled},
                            {"checks", std::move(checks)},
                            {"setting", toJson(result.setting)},
                            {"driver_release", result.driverRelease},
                            {"date", result.date}};
}

std::string lathe::toCsv(const std::vector<BenchResult>& results) {
  std::string text = "name,sequences,tokens,pass,plan,median_ms,p20_ms,p80_ms,low_ms,high_ms,repetitions,tflops,"
                     "workspace_bytes,strain,device,driver,nvrtc,date\n";
  llvm::raw_string_ostream os(text);
  for (const BenchResult& result : results) {
    const Timing& timing = result.timing;
    os << llvm::formatv("{0},{1},{2},{3},{4},", result.item.name, result.item.shape.sequences, result.item.shape.tokens,
                        toString(result.pass), result.tuned ? "tuned" : "default")
       << llvm::formatv("{0:f4},{1:f4},{2:f4},{3:f4},{4:f4},{5},{6:f1},", timing.median, timing.p20, timing.p80,
                        timing.low, timing.high, timing.repetitions, milliToTera(result.flops, timing.median))
       << llvm::formatv("{0},{1:f3},\"{2}\",{3},{4},{5}\n", result.workspaceBytes, result.strain(),
                        result.setting.device, result.setting.driver, result.setting.nvrtc, result.date);
  }
  return text;
}

std::string lathe::benchSvg(const std::vector<BenchResult>& results) {
  Plot plot{"Time of a call" + (results.empty() ? std::string() : ", " + results.front().setting.device),
            "rows (sequences x tokens)",
            "milliseconds",
            {}};
  std::map<std::string, PlotSeries> series;
  for (const BenchResult& result : results) {
    const std::string name =
        (llvm::Twine(result.item.name) + ", " + toString(result.pass) + (result.tuned ? ", tuned" : ", default")).str();
    PlotSeries& line = series[name];
    line.name = name;
    line.points.push_back(
        {static_cast<double>(result.item.shape.rows()), result.timing.median, result.timing.p20, result.timing.p80});
  }
  for (auto& [name, line] : series) {
    llvm::sort(line.points, [](const PlotPoint& a, const PlotPoint& b) { return a.x < b.x; });
    plot.series.push_back(std::move(line));
  }
  return toSvg(plot);
}
