//===- runtime/launch/LoadedPlan.h - A plan whose kernels are on a GPU ------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/PlanGraph.h"
#include "runtime/kernels/KernelStore.h"
#include "runtime/launch/CheckArguments.h"
#include "runtime/launch/DeviceContext.h"
#include "runtime/launch/StepBinder.h"

#include <array>

namespace lathe {

/// A kernel loaded into a context.
class LoadedKernel {
public:
  using Pointer = std::shared_ptr<const LoadedKernel>;

  /// Loads `kernel` into the context of `device`, which must be current, and raises its shared-memory limit.
  static llvm::Expected<Pointer> load(std::shared_ptr<const DeviceContext> device, KernelPointer kernel);

  LoadedKernel(std::shared_ptr<const DeviceContext> device, KernelPointer kernel, Module module, CUfunction function,
               int64_t mostBlocks)
      : device_(std::move(device)), kernel_(std::move(kernel)), module_(std::move(module)), function_(function),
        mostBlocks_(mostBlocks) {}
  LoadedKernel(const LoadedKernel&) = delete;
  LoadedKernel& operator=(const LoadedKernel&) = delete;
  /// Unloads with the context made current.
  ~LoadedKernel();

  CUfunction function() const { return function_; }
  /// Blocks of a launch: a grid is cut down to it. For persistent kernels the blocks that run at once, else no limit.
  int64_t mostBlocks() const { return mostBlocks_; }
  const Kernel& kernel() const { return *kernel_; }
  const KernelPointer& pointer() const { return kernel_; }

private:
  std::shared_ptr<const DeviceContext> device_;
  KernelPointer kernel_;
  std::optional<Module> module_;
  CUfunction function_;
  int64_t mostBlocks_;
};

/// A plan graph with its loaded kernels. Immutable; launching is safe from several threads.
class LoadedPlan {
public:
  /// `kernels` holds one kernel for every kind in `graph.kernels()`.
  LoadedPlan(std::shared_ptr<const DeviceContext> device, PlanGraph graph, std::vector<LoadedKernel::Pointer> kernels);

  llvm::Error forward(const RunArguments& run, CUstream stream) const;
  llvm::Error backward(const RunArguments& run, CUstream stream) const;
  llvm::Error run(const RunArguments& run, CUstream stream) const;
  /// Enqueues one step, for measurement; the arguments must have been checked.
  llvm::Error launch(const Step& step, const RunArguments& run, CUstream stream) const;

  const PlanGraph& graph() const { return graph_; }
  const DeviceContext& device() const { return *device_; }
  llvm::ArrayRef<LoadedKernel::Pointer> kernels() const { return kernels_; }

private:
  llvm::Error launchAll(const std::vector<Step>& steps, const RunArguments& run, WantedResults wanted,
                        CUstream stream) const;
  llvm::Error encodeMaps(const StepBinder::TensorSources& sources, device::TensorMaps& maps) const;
  llvm::Error encodeMap(const StepBinder::TensorSource& source, device::TensorMap& map) const;
  llvm::Error launch(const StepBinder& binder, const Step& step, CUstream stream) const;

  std::shared_ptr<const DeviceContext> device_;
  PlanGraph graph_;
  WorkspaceOffsets offsets_;
  std::vector<LoadedKernel::Pointer> kernels_;
  /// By KernelKind; null for kinds that the plan does not use.
  std::array<const LoadedKernel*, kKernelKindCount> byKind_{};
};

} // namespace lathe
