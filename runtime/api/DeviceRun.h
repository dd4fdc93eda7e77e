//===- runtime/api/DeviceRun.h - A case on a GPU ----------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/api/RuntimeImplementation.h"
#include "runtime/io/Case.h"

namespace lathe {

/// How a case is run.
struct DeviceRunOptions {
  PlanRequest request;
  std::optional<int> device = std::nullopt;
  /// The loss and the gradients as two calls.
  bool twoCalls = false;
  float upstreamScale = 1.0f;
};

/// A case whose tensors are in device memory, with room for every result. What is not yet written reads as NaN.
class DeviceCase {
public:
  /// Makes the plan, allocates and uploads. `value` must outlive this.
  static llvm::Expected<DeviceCase> upload(Runtime::Implementation& runtime, const Case& value,
                                           const DeviceRunOptions& options);

  DeviceCase(DeviceCase&&) = default;
  DeviceCase& operator=(DeviceCase&&) = delete;
  /// Frees with the plan's context made current.
  ~DeviceCase();

  /// Enqueues the whole plan.
  llvm::Error run() const;
  /// Waits and copies the results.
  llvm::Expected<LossResult> download() const;
  /// As `download`, but of the gradients only the named parts, one after the other: the rows of `gradInput` (sequence
  /// times tokens plus token), and the entries of the vocabulary of `gradWeight` and `gradBias`.
  llvm::Expected<LossResult> downloadParts(llvm::ArrayRef<int64_t> rows, llvm::ArrayRef<int64_t> entries) const;

  /// Goes on with another plan for the same workload, shape and device. What was enqueued must have ended.
  llvm::Error replacePlan(Runtime::Implementation::PlanPointer plan);
  /// Fills every result and the workspace with NaN, so that what the next run does not write shows.
  llvm::Error poison() const;

  const LoadedPlan& plan() const { return plan_->plan; }
  const RunArguments& arguments() const { return arguments_; }
  RunArguments& arguments() { return arguments_; }
  const Stream& stream() const { return *stream_; }
  /// Device memory besides inputs and outputs.
  int64_t workspaceBytes() const { return plan().graph().workspaceBytes; }

private:
  DeviceCase(const Case& value, Runtime::Implementation::PlanPointer plan, bool twoCalls)
      : case_(&value), plan_(std::move(plan)), twoCalls_(twoCalls) {}

  /// Device memory of `bytes`, filled with bytes 0xff, or with `contents` where given.
  llvm::Expected<void*> allocate(int64_t bytes, const void* contents = nullptr);
  llvm::Error allocateInputs();
  llvm::Error allocateOutputs();
  /// Allocates the workspace of the plan, unless there is one that is as large.
  llvm::Error allocateWorkspace();
  llvm::Error fill(CUdeviceptr memory, int64_t bytes) const;
  llvm::Expected<std::vector<double>> read(const void* from, int64_t count, DType type) const;
  /// Everything but the gradients.
  llvm::Expected<LossResult> downloadLoss() const;

  const Case* case_;
  Runtime::Implementation::PlanPointer plan_;
  bool twoCalls_;
  std::optional<Stream> stream_;
  std::vector<DeviceBuffer> buffers_;
  /// Where the results begin in `buffers_`.
  size_t firstResult_ = 0;
  DeviceBuffer workspace_;
  RunArguments arguments_;
};

/// Uploads, runs and downloads.
llvm::Expected<LossResult> runOnDevice(Runtime::Implementation& runtime, const Case& value,
                                       const DeviceRunOptions& options);

} // namespace lathe
