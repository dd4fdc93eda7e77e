//===- tuning/DeviceMeasurer.h - Measuring in this process -----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "tuning/Candidates.h"
#include "tuning/Measurer.h"
#include "tuning/Nvml.h"
#include "tuning/SampledReference.h"

#include "runtime/api/DeviceRun.h"

#include <map>

namespace lathe {

/// What the candidates run on.
struct WorkingSet {
  Workload workload;
  Shape shape;
  Scalars scalars;
  uint64_t seed = 1;
  /// Standard deviation of the logits: 1 for random numbers, 8 or more for the peaky logits of a trained model.
  double logitStd = 1;
  double maskedFraction = 0;
  /// None: as plans choose.
  std::optional<int> device = std::nullopt;
};

/// Scalars with values for what `workload` has.
Scalars scalarsFor(const Workload& workload);

/// Measures candidates on a GPU in this process. Nothing protects it from a candidate that hangs or faults: see
/// WorkerMeasurer for that.
class DeviceMeasurer : public Measurer {
public:
  /// Makes the inputs, uploads them, and runs the plan of `first` until the clocks have settled. `runtime` must outlive
  /// the result.
  static llvm::Expected<std::unique_ptr<DeviceMeasurer>> open(Runtime::Implementation& runtime, const WorkingSet& set,
                                                              const PlanChoices& first);

  void prepare(llvm::ArrayRef<VisitRequest>) override {}
  /// An error of the driver is an error here: the context may be lost.
  llvm::Expected<Visit> visit(const VisitRequest& request) override;

  const TuningSetting& setting() const { return setting_; }
  /// Release of the driver; empty where unknown.
  std::string driverRelease() const { return nvml_ ? nvml_->driverRelease() : ""; }

private:
  explicit DeviceMeasurer(Runtime::Implementation& runtime) : runtime_(runtime) {}

  llvm::Error warmUp();
  llvm::Expected<Runtime::Implementation::PlanPointer> planOf(const PlanChoices& choices);
  /// Largest error over its tolerance; `failure` names it when that is above 1.
  llvm::Expected<double> check(std::string& failure);
  llvm::Expected<std::vector<double>> time(const VisitRequest& request);
  const std::vector<KernelKind>& decidedBy(TuningSubject subject);
  void noteResources(TuningSubject subject, Visit& visit);

  Runtime::Implementation& runtime_;
  std::unique_ptr<const Case> case_;
  std::optional<int> device_;
  std::optional<DeviceCase> uploaded_;
  std::optional<SampledReference> reference_;
  std::optional<Nvml> nvml_;
  TuningSetting setting_;
  std::map<TuningSubject, std::vector<KernelKind>> decided_;
};

/// The request for the very plan that `choices` describe.
PlanRequest requestOf(const PlanChoices& choices);

} // namespace lathe
