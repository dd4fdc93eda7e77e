//===- runtime/api/RuntimeImplementation.h - What is behind lathe::Runtime --===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/CostModel.h"
#include "lathe/runtime.h"
#include "runtime/api/Log.h"
#include "runtime/cache/Environment.h"
#include "runtime/cache/TuningDocument.h"
#include "runtime/launch/LoadedPlan.h"

#include <functional>
#include <optional>
#include <unordered_map>

namespace lathe {

/// Opens the two libraries; replaced in tests.
struct LibraryOpeners {
  std::function<llvm::Expected<Driver>()> driver;
  std::function<llvm::Expected<Nvrtc>()> nvrtc;

  static LibraryOpeners fromEnvironment(const Environment& environment);
};

class Plan::Implementation {
public:
  explicit Implementation(LoadedPlan plan, std::optional<TunedChoice> tuned = std::nullopt)
      : plan(std::move(plan)), tuned(std::move(tuned)) {}
  const LoadedPlan plan;
  /// The tuning result that the plan was built from; none where the cost model chose.
  const std::optional<TunedChoice> tuned;
};

/// Makes plans with `llvm::Expected` in place of exceptions. Safe to use from several threads.
class Runtime::Implementation {
public:
  Implementation(Environment environment, CompilerOptions compilerOptions, LibraryOpeners openers);

  using PlanPointer = std::shared_ptr<const Plan::Implementation>;
  llvm::Expected<PlanPointer> plan(const Workload& workload, const Shape& shape, const PlanRequest& request,
                                   std::optional<int> device);
  /// Kernels for a target that need not be present: generated, compiled or found, not loaded.
  llvm::Expected<std::vector<KernelPointer>> kernels(const PlanGraph& graph);

  /// The tuned plan for `rows` rows of `workload` on `device`, from the cache folder or a layer; none where there is
  /// none that can be used.
  std::optional<TunedChoice> findTuned(const Workload& workload, int64_t rows, const DeviceContext& device);
  /// What `device` and the libraries here are called in tuning results.
  llvm::Expected<TuningSetting> settingOf(const DeviceContext& device);
  llvm::Expected<TuningSetting> settingOf(const Driver& driver, int ordinal, const Target& target);
  /// The device with `ordinal` (none: as `plan` chooses), in a context that plans use too.
  llvm::Expected<std::shared_ptr<const DeviceContext>> openDevice(std::optional<int> ordinal);
  /// Makes `plan` look for tuning results again where it has made a plan before.
  void forgetPlans();

  KernelStore& store() { return store_; }
  const Cache& cache() const { return cache_; }
  const Environment& environment() const { return environment_; }
  /// The driver; opened at the first call.
  llvm::Expected<std::shared_ptr<const Driver>> driver();

private:
  std::function<void(llvm::StringRef)> warn() const;

  struct PlanKey {
    Workload workload;
    Shape shape;
    PlanRequest request;
    CUcontext context;
    friend bool operator==(const PlanKey&, const PlanKey&) = default;
  };
  struct PlanKeyHash {
    size_t operator()(const PlanKey& key) const;
  };
  struct LoadedKey {
    Digest kernel;
    CUcontext context;
    friend auto operator<=>(const LoadedKey&, const LoadedKey&) = default;
  };

  llvm::Expected<std::shared_ptr<const DeviceContext>> device(std::shared_ptr<const Driver> driver,
                                                              std::optional<int> ordinal);
  llvm::Expected<PlanPointer> makeLoadedPlan(std::shared_ptr<const DeviceContext> device, const Workload& workload,
                                             const Shape& shape, const PlanRequest& request);
  llvm::Expected<LoadedKernel::Pointer> load(std::shared_ptr<const DeviceContext> device, const KernelPointer& kernel);

  const Environment environment_;
  const LibraryOpeners openers_;
  const std::shared_ptr<spdlog::logger> logger_;
  const Cache cache_;
  KernelStore store_;

  std::mutex mutex_;
  std::shared_ptr<const Driver> driver_;
  std::map<CUcontext, std::shared_ptr<const DeviceContext>> devices_;
  std::map<LoadedKey, LoadedKernel::Pointer> loaded_;
  std::unordered_map<PlanKey, PlanPointer, PlanKeyHash> plans_;
};

} // namespace lathe
