//===- tuning/OnlineTuner.cpp - Tuning inside a program --------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tuning/OnlineTuner.h"

#include "generator/Workload.h"
#include "tuning/BackgroundCompiler.h"
#include "tuning/Tuner.h"

#include "llvm/ADT/STLExtras.h"

#include <spdlog/logger.h>

#include <chrono>

using namespace lathe;

namespace {

double secondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool isSame(const TuningProblem& a, const TuningProblem& b) {
  return a.workload == b.workload && rowBucket(a.shape.rows()) == rowBucket(b.shape.rows()) && a.target == b.target;
}

/// Rests after every visit so that visits take no more than a share of the time, and ends the search when it is told to
/// stop.
class GentleMeasurer : public Measurer {
public:
  GentleMeasurer(Measurer& inner, double share, std::function<void(double)> pause, std::function<bool()> isStopping)
      : inner_(inner), share_(share), pause_(std::move(pause)), isStopping_(std::move(isStopping)) {}

  void prepare(llvm::ArrayRef<VisitRequest> candidates) override { inner_.prepare(candidates); }
  llvm::Expected<Visit> visit(const VisitRequest& request) override {
    if (isStopping_()) return makeError(ErrorCode::Unsupported, "the runtime ends");
    const double begin = secondsNow();
    llvm::Expected<Visit> seen = inner_.visit(request);
    pause_((secondsNow() - begin) * (1 / share_ - 1));
    return seen;
  }

private:
  Measurer& inner_;
  const double share_;
  const std::function<void(double)> pause_;
  const std::function<bool()> isStopping_;
};

/// A measurer in this process whose kernels are compiled ahead on other threads.
class CompilingMeasurer : public Measurer {
public:
  CompilingMeasurer(Runtime::Implementation& runtime, const WorkingSet& set, std::unique_ptr<DeviceMeasurer> inner,
                    const Target& target)
      : set_(set), target_(target), inner_(std::move(inner)), compiler_(runtime) {}

  void prepare(llvm::ArrayRef<VisitRequest> candidates) override {
    for (const VisitRequest& candidate : candidates) {
      llvm::Expected<PlanGraph> graph = buildPlan(set_.workload, set_.shape, target_, candidate.choices);
      if (graph)
        compiler_.submit(*graph);
      else
        llvm::consumeError(graph.takeError());
    }
  }

  llvm::Expected<Visit> visit(const VisitRequest& request) override {
    Visit visit;
    llvm::Expected<PlanGraph> graph = buildPlan(set_.workload, set_.shape, target_, request.choices);
    visit.failure = graph ? compiler_.wait(*graph) : takeSummary(graph.takeError()).message;
    if (!visit.failure.empty()) return visit;
    return inner_->visit(request);
  }

private:
  const WorkingSet set_;
  const Target target_;
  std::unique_ptr<DeviceMeasurer> inner_;
  BackgroundCompiler compiler_;
};

/// Device memory for the inputs, the results and the workspace of the plan of `choices`, and the buffer that flushes
/// L2.
llvm::Expected<int64_t> memoryFor(const WorkingSet& set, const PlanChoices& choices, const Target& target) {
  llvm::Expected<PlanGraph> graph = layOutPlan(set.workload, set.shape, target, choices);
  if (!graph) return graph.takeError();
  const Workload& workload = set.workload;
  const int64_t element = sizeOf(workload.dtype);
  const int64_t rows = set.shape.rows();
  return 2 * rows * workload.hidden * element +
         workload.vocab * workload.hidden * (element + sizeOf(workload.gradWeightDType)) + graph->workspaceBytes +
         2 * target.l2Bytes;
}

} // namespace

OnlineTuner::OnlineTuner(Runtime::Implementation& runtime, OpenMeasurer open)
    : runtime_(runtime), open_(std::move(open)) {}

OnlineTuner::~OnlineTuner() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

llvm::Expected<std::unique_ptr<Measurer>>
OnlineTuner::openDeviceMeasurer(Runtime::Implementation& runtime, const WorkingSet& set, const PlanChoices& first) {
  llvm::Expected<std::shared_ptr<const DeviceContext>> device = runtime.openDevice(set.device);
  if (!device) return device.takeError();
  const Driver& driver = (*device)->driver();
  llvm::Expected<ContextGuard> guard = ContextGuard::enter(driver, (*device)->context());
  if (!guard) return guard.takeError();
  llvm::Expected<int64_t> needed = memoryFor(set, first, (*device)->target());
  if (!needed) return needed.takeError();
  size_t free = 0, total = 0;
  if (llvm::Error error = check(driver, driver.memGetInfo(&free, &total), "cuMemGetInfo")) return error;
  if (static_cast<uint64_t>(*needed) + total / 10 > free)
    return makeError(ErrorCode::Unsupported,
                     "tuning needs {0} bytes of device memory and leaves a tenth of it free; {1} of {2} are free",
                     *needed, free, total);
  llvm::Expected<std::unique_ptr<DeviceMeasurer>> measurer = DeviceMeasurer::open(runtime, set, first);
  if (!measurer) return measurer.takeError();
  return std::make_unique<CompilingMeasurer>(runtime, set, std::move(*measurer), (*device)->target());
}

llvm::Error OnlineTuner::tuneOn(const DeviceContext& device, const TuningProblem& problem, double seconds,
                                double share) {
  llvm::Expected<TuningSetting> setting = runtime_.settingOf(device);
  if (!setting) return setting.takeError();
  if (const auto known = runtime_.findTuned(problem.workload, problem.shape.rows(), device); known && !known->stale)
    return llvm::Error::success();
  llvm::Expected<PlanChoices> untuned = untunedChoices(problem);
  if (!untuned) return untuned.takeError();
  const WorkingSet set{.workload = problem.workload, .shape = problem.shape, .scalars = scalarsFor(problem.workload)};
  llvm::Expected<std::unique_ptr<Measurer>> measurer = open_(runtime_, set, *untuned);
  if (!measurer) return measurer.takeError();
  GentleMeasurer gentle(**measurer, share, [this](double rest) { pause(rest); }, [this] { return isStopping(); });
  std::optional<TuningFile> file;
  if (runtime_.environment().cacheDir)
    file.emplace(
        entryFolder(*runtime_.environment().cacheDir, workloadDigest(problem.workload), problem.target.arch()));
  TunerOptions options;
  options.budgetSeconds = seconds;
  llvm::Expected<TunerReport> report =
      tune(problem, *setting, gentle, file ? &*file : nullptr, options, [](const SearchProgress&) {}, secondsNow);
  if (!report) return report.takeError();
  runtime_.rememberTuned(problem.workload, problem.target, report->plan);
  return llvm::Error::success();
}

void OnlineTuner::tuneNow(const Workload& workload, const Shape& shape, const PlanRequest& request,
                          std::optional<int> device, double seconds) {
  // What is wrong with a request shows when its plan is made.
  if (request.configs) return;
  if (llvm::Error error = validate(workload)) return llvm::consumeError(std::move(error));
  if (llvm::Error error = validate(workload, shape)) return llvm::consumeError(std::move(error));
  llvm::Expected<std::shared_ptr<const DeviceContext>> opened = runtime_.openDevice(device);
  if (!opened) return llvm::consumeError(opened.takeError());
  const DeviceContext& context = **opened;
  llvm::Expected<ContextGuard> guard = ContextGuard::enter(context.driver(), context.context());
  if (!guard) return warn(guard.takeError());
  const TuningProblem problem{workload, shape, context.target(), request.workspaceLimit};
  {
    const std::lock_guard lock(mutex_);
    const auto same = [&](const auto& entry) {
      return isSame(entry.first, problem) && entry.second == context.context();
    };
    if (llvm::any_of(begun_, same)) return;
    begun_.emplace_back(problem, context.context());
  }
  if (llvm::Error error = tuneOn(context, problem, seconds, /*share=*/1)) warn(std::move(error));
  runtime_.forgetPlans();
}

void OnlineTuner::tuneInBackground(std::shared_ptr<const Plan::Implementation> plan, const PlanRequest& request,
                                   double seconds) {
  if (request.configs) return;
  const PlanGraph& graph = plan->plan.graph();
  // The caller has made room for this plan: no other may need more.
  TuningProblem problem{graph.workload, graph.shape, graph.target, graph.workspaceBytes};
  const CUcontext context = plan->plan.device().context();
  const std::lock_guard lock(mutex_);
  const auto same = [&](const auto& entry) { return isSame(entry.first, problem) && entry.second == context; };
  if (stopping_ || llvm::any_of(begun_, same)) return;
  begun_.emplace_back(std::move(problem), context);
  plan->expectSuccessor();
  jobs_.push_back({std::move(plan), request, seconds});
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  changed_.notify_all();
}

void OnlineTuner::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    busy_ = true;
    lock.unlock();
    if (llvm::Error error = tuneJob(job)) warn(std::move(error));
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

llvm::Error OnlineTuner::tuneJob(const Job& job) {
  const LoadedPlan& old = job.plan->plan;
  const DeviceContext& device = old.device();
  const PlanGraph& graph = old.graph();
  llvm::Expected<ContextGuard> guard = ContextGuard::enter(device.driver(), device.context());
  if (!guard) return guard.takeError();
  const TuningProblem problem{graph.workload, graph.shape, graph.target, graph.workspaceBytes};
  if (llvm::Error error = tuneOn(device, problem, job.seconds, kBackgroundShare)) return error;
  runtime_.forgetPlans();
  auto made = runtime_.plan(graph.workload, graph.shape, job.request, std::nullopt);
  if (!made) return made.takeError();
  if ((*made)->plan.graph().choices == graph.choices) return llvm::Error::success();
  if ((*made)->plan.graph().workspaceBytes > graph.workspaceBytes) return llvm::Error::success();
  job.plan->setSuccessor(std::move(*made));
  return llvm::Error::success();
}

void OnlineTuner::waitForBackground() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopping_ || (jobs_.empty() && !busy_); });
}

bool OnlineTuner::isStopping() {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

void OnlineTuner::pause(double seconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return stopping_; });
}

void OnlineTuner::warn(llvm::Error error) const {
  runtime_.logger().warn("a plan is not tuned: {}", takeSummary(std::move(error)).message);
}
