//===- tuning/DeviceMeasurer.cpp - Measuring in this process ---------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tuning/DeviceMeasurer.h"

#include "generator/Workload.h"
#include "tuning/Measure.h"

#include "llvm/ADT/STLExtras.h"

#include <chrono>
#include <cmath>

using namespace lathe;

namespace {

/// The clocks count as settled when this many runs in a row differ by no more than this, or after this long.
constexpr size_t kSettledRuns = 5;
constexpr double kSettledSpread = 0.01;
constexpr auto kMostWarmUp = std::chrono::seconds(2);

/// c of a soft cap, as models have it.
constexpr double kUsualSoftcap = 30;

} // namespace

Scalars lathe::scalarsFor(const Workload& workload) {
  Scalars scalars;
  if (workload.softcap) scalars.softcap = kUsualSoftcap;
  return scalars;
}

PlanRequest lathe::requestOf(const PlanChoices& choices) {
  PlanRequest request;
  request.strategy = choices.strategy;
  if (choices.strategy == Strategy::Chunked) request.chunkPairs = choices.chunkPairs;
  request.configs = choices.configs;
  return request;
}

llvm::Expected<std::unique_ptr<DeviceMeasurer>> DeviceMeasurer::open(Runtime::Implementation& runtime,
                                                                     const WorkingSet& set, const PlanChoices& first) {
  if (llvm::Error error = validate(set.workload)) return error;
  if (llvm::Error error = validate(set.workload, set.shape)) return error;
  if (llvm::Error error = validate(set.workload, set.scalars)) return error;
  std::unique_ptr<DeviceMeasurer> measurer(new DeviceMeasurer(runtime));
  measurer->device_ = set.device;
  measurer->case_ = std::make_unique<const Case>(
      makeRandomCase(set.workload, set.shape, set.scalars, set.seed, set.logitStd, set.maskedFraction));
  llvm::Expected<DeviceCase> uploaded =
      DeviceCase::upload(runtime, *measurer->case_, {.request = requestOf(first), .device = set.device});
  if (!uploaded) return uploaded.takeError();
  measurer->uploaded_.emplace(std::move(*uploaded));
  const DeviceContext& device = measurer->uploaded_->plan().device();
  llvm::Expected<TuningSetting> setting = runtime.settingOf(device);
  if (!setting) return setting.takeError();
  measurer->setting_ = std::move(*setting);
  llvm::Expected<CUdevice> handle = deviceAt(device.driver(), device.ordinal());
  if (!handle) return handle.takeError();
  llvm::Expected<Nvml> nvml = Nvml::open(device.driver(), *handle);
  if (nvml)
    measurer->nvml_ = *nvml;
  else
    llvm::consumeError(nvml.takeError());
  if (llvm::Error error = measurer->warmUp()) return error;
  return measurer;
}

llvm::Error DeviceMeasurer::warmUp() {
  const auto end = std::chrono::steady_clock::now() + kMostWarmUp;
  std::vector<double> last;
  while (std::chrono::steady_clock::now() < end) {
    llvm::Expected<std::vector<double>> times = timeSteps(*uploaded_, {}, 1);
    if (!times) return times.takeError();
    last.push_back(times->front());
    if (last.size() < kSettledRuns) continue;
    const auto recent = llvm::ArrayRef(last).take_back(kSettledRuns);
    const auto [least, most] = std::minmax_element(recent.begin(), recent.end());
    if (*most - *least <= kSettledSpread * *least) break;
  }
  return llvm::Error::success();
}

llvm::Expected<Runtime::Implementation::PlanPointer> DeviceMeasurer::planOf(const PlanChoices& choices) {
  return runtime_.plan(case_->workload, case_->shape, requestOf(choices), device_);
}

llvm::Expected<Visit> DeviceMeasurer::visit(const VisitRequest& request) {
  Visit visit;
  auto plan = planOf(request.choices);
  if (!plan) {
    const ErrorSummary summary = takeSummary(plan.takeError());
    if (summary.code == ErrorCode::Driver) return makeError(summary.code, "{0}", summary.message);
    visit.failure = summary.message;
    return visit;
  }
  if (llvm::Error error = uploaded_->replacePlan(std::move(*plan))) return error;
  noteResources(request.subject, visit);
  if (request.check) {
    llvm::Expected<double> strain = check(visit.failure);
    if (!strain) return strain.takeError();
    visit.strain = *strain;
    if (!visit.failure.empty()) return visit;
  }
  llvm::Expected<std::vector<double>> times = time(request);
  if (!times) return times.takeError();
  visit.milliseconds = std::move(*times);
  if (const std::optional<ClockState> state = nvml_ ? nvml_->state() : std::nullopt) {
    visit.clock = state->clock;
    visit.throttled = state->throttled;
  }
  return visit;
}

llvm::Expected<double> DeviceMeasurer::check(std::string& failure) {
  if (!reference_) reference_.emplace(*case_, ReferenceSample());
  if (llvm::Error error = uploaded_->poison()) return error;
  if (llvm::Error error = uploaded_->run()) return error;
  llvm::Expected<LossResult> got = uploaded_->downloadParts(reference_->rows(), reference_->entries());
  if (!got) return got.takeError();
  double strain = 0;
  for (const Comparison& comparison : reference_->compare(*got)) {
    const double share = std::isnan(comparison.error) ? INFINITY : comparison.error / comparison.tolerance;
    strain = std::max(strain, share);
    if (!comparison.ok && failure.empty())
      failure = llvm::formatv("{0} is wrong: its error is {1:e2}, tolerated is {2:e2}", comparison.name,
                              comparison.error, comparison.tolerance);
  }
  // JSON has no infinity.
  return std::min(strain, 1e30);
}

llvm::Expected<std::vector<double>> DeviceMeasurer::time(const VisitRequest& request) {
  if (request.subject == TuningSubject::Plan) return timeSteps(*uploaded_, {}, request.repetitions);
  return timeSteps(*uploaded_, decidedBy(request.subject), request.repetitions);
}

const std::vector<KernelKind>& DeviceMeasurer::decidedBy(TuningSubject subject) {
  const auto [entry, isNew] = decided_.try_emplace(subject);
  const PlanGraph& graph = uploaded_->plan().graph();
  if (isNew)
    for (const Gemm gemm : productsOf(case_->workload))
      if (subjectOf(gemm) == subject) entry->second = kernelsDecidedBy(gemm, graph);
  return entry->second;
}

void DeviceMeasurer::noteResources(TuningSubject subject, Visit& visit) {
  for (const LoadedKernel::Pointer& loaded : uploaded_->plan().kernels()) {
    const Kernel& kernel = loaded->kernel();
    if (subject != TuningSubject::Plan && !llvm::is_contained(decidedBy(subject), kernel.specialization.kind)) continue;
    visit.registers = std::max<int64_t>(visit.registers, kernel.info.registers);
    visit.localBytes = std::max(visit.localBytes, kernel.info.localBytes);
    visit.sharedBytes = std::max(visit.sharedBytes, kernel.info.sharedBytes + kernel.specialization.sharedBytes);
  }
}
