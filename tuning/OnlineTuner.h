//===- tuning/OnlineTuner.h - Tuning inside a program -----------*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/api/PlanTuner.h"
#include "tuning/Candidates.h"
#include "tuning/DeviceMeasurer.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace lathe {

/// Share of the time that measuring in the background takes of the device, at most.
inline constexpr double kBackgroundShare = 0.05;

/// Tunes in the process that uses the plans. Candidates are not kept apart: one that faults takes the context along, so
/// only configs of the search space are tried, and nothing is tried where the memory would be scarce.
class OnlineTuner : public PlanTuner {
public:
  using OpenMeasurer = std::function<llvm::Expected<std::unique_ptr<Measurer>>(
      Runtime::Implementation& runtime, const WorkingSet& set, const PlanChoices& first)>;
  /// `runtime` must outlive this. `open` makes the measurer; tests replace it.
  explicit OnlineTuner(Runtime::Implementation& runtime, OpenMeasurer open = openDeviceMeasurer);
  /// Waits for the visit in progress.
  ~OnlineTuner() override;

  void tuneNow(const Workload& workload, const Shape& shape, const PlanRequest& request, std::optional<int> device,
               double seconds) override;
  void tuneInBackground(std::shared_ptr<const Plan::Implementation> plan, const PlanRequest& request,
                        double seconds) override;

  /// Waits until nothing is left to tune in the background.
  void waitForBackground();

  /// Refuses where the candidates' memory would leave less than a tenth of the device free.
  static llvm::Expected<std::unique_ptr<Measurer>> openDeviceMeasurer(Runtime::Implementation& runtime,
                                                                      const WorkingSet& set, const PlanChoices& first);

private:
  struct Job {
    std::shared_ptr<const Plan::Implementation> plan;
    PlanRequest request;
    double seconds;
  };

  /// Tunes on `device`, whose context is current.
  llvm::Error tuneOn(const DeviceContext& device, const TuningProblem& problem, double seconds, double share);
  void work();
  llvm::Error tuneJob(const Job& job);
  bool isStopping();
  void pause(double seconds);
  void warn(llvm::Error error) const;

  Runtime::Implementation& runtime_;
  const OpenMeasurer open_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  bool busy_ = false;
  std::deque<Job> jobs_;
  /// What was tuned or is being tuned; a problem is not begun twice.
  std::vector<std::pair<TuningProblem, CUcontext>> begun_;
  /// Started with the first job.
  std::thread thread_;
};

} // namespace lathe
