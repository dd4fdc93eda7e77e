//===- runtime/api/RuntimeImplementation.h - What is behind lathe::Runtime --===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/CostModel.h"
#include "lathe/runtime.h"
#include "runtime/api/Log.h"
#include "runtime/api/PlanTuner.h"
#include "runtime/cache/Environment.h"
#include "runtime/cache/TuningDocument.h"
#include "runtime/launch/LoadedPlan.h"

#include <atomic>
#include <functional>
#include <optional>
#include <set>
#include <unordered_map>

namespace lathe {

/// Opens the two libraries; replaced in tests.
struct LibraryOpeners {
  std::function<llvm::Expected<Driver>()> driver;
  std::function<llvm::Expected<Nvrtc>()> nvrtc;
  /// The version of that NVRTC if it is known without opening it.
  std::function<std::optional<NvrtcVersion>()> nvrtcVersion = nullptr;

  static LibraryOpeners fromEnvironment(const Environment& environment);
};

class Plan::Implementation {
public:
  explicit Implementation(LoadedPlan plan, std::optional<TunedChoice> tuned = std::nullopt)
      : plan(std::move(plan)), tuned(std::move(tuned)) {}
  const LoadedPlan plan;
  /// The tuning result that the plan was built from; none where the cost model chose.
  const std::optional<TunedChoice> tuned;

  /// As those of the plan, but of its successor where there is one.
  llvm::Error forward(const RunArguments& run, CUstream stream) const;
  llvm::Error backward(const RunArguments& run, CUstream stream) const;
  llvm::Error run(const RunArguments& run, CUstream stream) const;
  /// What the next run uses.
  const Implementation& current() const;

  /// From now on notes which workspaces this plan's `forward` left something in: their `backward` belongs to it too.
  void expectSuccessor() const;
  /// Hands all further calls to `successor`, a plan for the same problem and device that needs no more workspace. At
  /// most once.
  void setSuccessor(std::shared_ptr<const Implementation> successor) const;

private:
  /// The plan whose `forward` was the last to use `workspace`.
  const LoadedPlan& planOf(const void* workspace) const;

  mutable std::atomic<bool> expecting_ = false;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Implementation> successor_;
  /// Workspaces between a `forward` of this plan and the next of its successor.
  mutable std::set<const void*> own_;
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
  /// Keeps a tuning result in memory, besides what the cache has.
  void rememberTuned(const Workload& workload, const Target& target, const TunedPlan& plan);
  /// Makes `plan` look for tuning results again where it has made a plan before, and unloads the kernels that no plan
  /// uses any more.
  void forgetPlans();

  /// May be null: then plans are never tuned.
  void setTuner(std::unique_ptr<PlanTuner> tuner) { tuner_ = std::move(tuner); }
  PlanTuner* tuner() const { return tuner_.get(); }
  spdlog::logger& logger() const { return *logger_; }

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
  /// By workload digest and architecture.
  std::map<std::pair<Digest, std::string>, TuningDocument> tuned_;
  /// Last, so that its threads end before what they use.
  std::unique_ptr<PlanTuner> tuner_;
};

} // namespace lathe
