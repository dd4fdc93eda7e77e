//===- tuning/Measure.cpp - Times on a GPU ---------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tuning/Measure.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>

using namespace lathe;

namespace {

/// The value below which `fraction` of the sorted `values` lie.
double quantile(llvm::ArrayRef<double> values, double fraction) {
  const double position = fraction * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(std::floor(position));
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (position - static_cast<double>(below)) * (values[above] - values[below]);
}

/// Times runs on one stream, each with a cold L2 cache.
class Stopwatch {
public:
  static llvm::Expected<Stopwatch> create(const Driver& driver, CUstream stream, const Target& target) {
    llvm::Expected<DeviceBuffer> flush = DeviceBuffer::allocate(driver, std::max(2 * target.l2Bytes, kLeastFlush));
    if (!flush) return flush.takeError();
    return Stopwatch(driver, stream, std::move(*flush));
  }

  /// Enqueues `parts` parts with `enqueue(index)` after a flush, and gives the milliseconds of each.
  template <class Enqueue> llvm::Expected<std::vector<double>> time(size_t parts, Enqueue enqueue) {
    if (llvm::Error error = makeEvents(parts + 1)) return error;
    const CUresult flushed = driver_->memsetD8Async(flush_.get(), 0x5a, static_cast<size_t>(flush_.bytes()), stream_);
    if (llvm::Error error = check(*driver_, flushed, "cuMemsetD8Async")) return error;
    if (llvm::Error error = events_[0].record(stream_)) return error;
    for (size_t i = 0; i < parts; ++i) {
      if (llvm::Error error = enqueue(i)) return error;
      if (llvm::Error error = events_[i + 1].record(stream_)) return error;
    }
    if (llvm::Error error = events_[parts].synchronize()) return error;
    return readEvents(parts);
  }

private:
  /// Keeps small caches cold as well.
  static constexpr int64_t kLeastFlush = int64_t(64) << 20;

  Stopwatch(const Driver& driver, CUstream stream, DeviceBuffer flush)
      : driver_(&driver), stream_(stream), flush_(std::move(flush)) {}

  llvm::Error makeEvents(size_t count) {
    while (events_.size() < count) {
      llvm::Expected<Event> event = Event::create(*driver_);
      if (!event) return event.takeError();
      events_.push_back(std::move(*event));
    }
    return llvm::Error::success();
  }

  llvm::Expected<std::vector<double>> readEvents(size_t parts) const {
    std::vector<double> times;
    for (size_t i = 0; i < parts; ++i) {
      llvm::Expected<float> milliseconds = events_[i + 1].millisecondsSince(events_[i]);
      if (!milliseconds) return milliseconds.takeError();
      times.push_back(*milliseconds);
    }
    return times;
  }

  const Driver* driver_;
  CUstream stream_;
  DeviceBuffer flush_;
  std::vector<Event> events_;
};

/// `times[part][repetition]`: `repetitions` runs of `parts` parts after one that is not counted.
template <class Enqueue>
llvm::Expected<std::vector<std::vector<double>>> repeat(Stopwatch& stopwatch, int repetitions, size_t parts,
                                                        Enqueue enqueue) {
  std::vector<std::vector<double>> times(parts);
  for (int repetition = -1; repetition < repetitions; ++repetition) {
    llvm::Expected<std::vector<double>> run = stopwatch.time(parts, enqueue);
    if (!run) return run.takeError();
    if (repetition < 0) continue;
    for (size_t i = 0; i < parts; ++i) times[i].push_back((*run)[i]);
  }
  return times;
}

} // namespace

Timing lathe::summarize(std::vector<double> milliseconds) {
  if (milliseconds.empty()) return {};
  llvm::sort(milliseconds);
  // The number of times below the true median is binomial; 1.96 standard deviations of that on both sides.
  const double count = static_cast<double>(milliseconds.size());
  const double reach = 1.96 * std::sqrt(count) / 2;
  const auto low = static_cast<size_t>(std::max(0.0, std::floor(count / 2 - reach)));
  const auto high = static_cast<size_t>(std::min(count - 1, std::ceil(count / 2 + reach)));
  return {quantile(milliseconds, 0.5),           quantile(milliseconds, 0.2), quantile(milliseconds, 0.8),
          static_cast<int>(milliseconds.size()), milliseconds[low],           milliseconds[high]};
}

std::vector<Step> lathe::stepsOfRun(const PlanGraph& graph, bool twoCalls) {
  if (!graph.workload.anyGradient()) return graph.forward;
  if (!twoCalls) return graph.forwardBackward;
  std::vector<Step> steps = graph.forward;
  llvm::append_range(steps, graph.backward);
  return steps;
}

llvm::Expected<PlanTiming> lathe::measurePlan(const DeviceCase& value, bool twoCalls, int repetitions) {
  if (repetitions < 1)
    return makeError(ErrorCode::InvalidArgument, "{0} repetitions; it must be at least 1", repetitions);
  const LoadedPlan& plan = value.plan();
  const DeviceContext& device = plan.device();
  const CUstream stream = value.stream().get();
  llvm::Expected<ContextGuard> guard = ContextGuard::enter(device.driver(), device.context());
  if (!guard) return guard.takeError();
  llvm::Expected<Stopwatch> stopwatch = Stopwatch::create(device.driver(), stream, device.target());
  if (!stopwatch) return stopwatch.takeError();

  PlanTiming timing;
  timing.steps = stepsOfRun(plan.graph(), twoCalls);
  auto whole = repeat(*stopwatch, repetitions, 1, [&](size_t) { return value.run(); });
  if (!whole) return whole.takeError();
  timing.whole = summarize(std::move(whole->front()));
  auto steps = repeat(*stopwatch, repetitions, timing.steps.size(),
                      [&](size_t i) { return plan.launch(timing.steps[i], value.arguments(), stream); });
  if (!steps) return steps.takeError();
  for (std::vector<double>& times : *steps) timing.stepTimings.push_back(summarize(std::move(times)));
  return timing;
}

llvm::Expected<std::vector<double>> lathe::timeSteps(const DeviceCase& value, llvm::ArrayRef<KernelKind> counted,
                                                     int repetitions) {
  const LoadedPlan& plan = value.plan();
  const DeviceContext& device = plan.device();
  const CUstream stream = value.stream().get();
  llvm::Expected<ContextGuard> guard = ContextGuard::enter(device.driver(), device.context());
  if (!guard) return guard.takeError();
  llvm::Expected<Stopwatch> stopwatch = Stopwatch::create(device.driver(), stream, device.target());
  if (!stopwatch) return stopwatch.takeError();
  if (counted.empty()) {
    auto whole = repeat(*stopwatch, repetitions, 1, [&](size_t) { return value.run(); });
    if (!whole) return whole.takeError();
    return std::move(whole->front());
  }
  const std::vector<Step> steps = stepsOfRun(plan.graph(), /*twoCalls=*/false);
  auto times = repeat(*stopwatch, repetitions, steps.size(),
                      [&](size_t i) { return plan.launch(steps[i], value.arguments(), stream); });
  if (!times) return times.takeError();
  std::vector<double> sums(static_cast<size_t>(repetitions));
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!llvm::is_contained(counted, steps[i].kind)) continue;
    for (size_t repetition = 0; repetition < sums.size(); ++repetition) sums[repetition] += (*times)[i][repetition];
  }
  return sums;
}
