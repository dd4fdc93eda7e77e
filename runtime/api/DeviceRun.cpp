//===- runtime/api/DeviceRun.cpp - A case on a GPU --------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/api/DeviceRun.h"

#include "runtime/io/HalfTypes.h"

#include <cstring>

using namespace lathe;

namespace {

/// The order of the scalar results in their one buffer; the arrays follow.
enum ScalarSlot : uint8_t { kLoss, kPreferenceLoss, kNll, kChosenLogitsMean, kRejectedLogitsMean, kScalarCount };

} // namespace

llvm::Expected<DeviceCase> DeviceCase::upload(Runtime::Implementation& runtime, const Case& value,
                                              const DeviceRunOptions& options) {
  auto plan = runtime.plan(value.workload, value.shape, options.request, options.device);
  if (!plan) return plan.takeError();
  DeviceCase result(value, std::move(*plan), options.twoCalls);
  const DeviceContext& device = result.plan().device();
  llvm::Expected<ContextGuard> guard = ContextGuard::enter(device.driver(), device.context());
  if (!guard) return guard.takeError();
  llvm::Expected<Stream> stream = Stream::create(device.driver());
  if (!stream) return stream.takeError();
  result.stream_.emplace(std::move(*stream));
  if (llvm::Error error = result.allocateInputs()) return error;
  if (llvm::Error error = result.allocateOutputs()) return error;
  if (llvm::Error error = result.allocateWorkspace()) return error;
  result.arguments_.upstreamScale = options.upstreamScale;
  // The uploads read host memory that belongs to the caller.
  if (llvm::Error error = result.stream_->synchronize()) return error;
  return result;
}

DeviceCase::~DeviceCase() {
  // Moved from: nothing to free.
  if (!plan_) return;
  llvm::Expected<ContextGuard> guard = ContextGuard::enter(plan().device().driver(), plan().device().context());
  buffers_.clear();
  workspace_ = DeviceBuffer();
  stream_.reset();
  if (!guard) llvm::consumeError(guard.takeError());
}

llvm::Expected<void*> DeviceCase::allocate(int64_t bytes, const void* contents) {
  const Driver& driver = plan().device().driver();
  llvm::Expected<DeviceBuffer> buffer = DeviceBuffer::allocate(driver, bytes);
  if (!buffer) return buffer.takeError();
  if (bytes > 0 && contents) {
    const CUresult result = driver.memcpyHtoDAsync(buffer->get(), contents, static_cast<size_t>(bytes), stream_->get());
    if (llvm::Error error = check(driver, result, "cuMemcpyHtoDAsync")) return error;
  } else if (llvm::Error error = fill(buffer->get(), bytes)) {
    return error;
  }
  buffers_.push_back(std::move(*buffer));
  return reinterpret_cast<void*>(buffers_.back().get());
}

llvm::Error DeviceCase::fill(CUdeviceptr memory, int64_t bytes) const {
  if (bytes == 0) return llvm::Error::success();
  const Driver& driver = plan().device().driver();
  const CUresult result = driver.memsetD8Async(memory, 0xff, static_cast<size_t>(bytes), stream_->get());
  return check(driver, result, "cuMemsetD8Async");
}

llvm::Error DeviceCase::allocateWorkspace() {
  if (workspaceBytes() > workspace_.bytes() || !arguments_.workspace) {
    // The old one goes first: there may not be room for both.
    workspace_ = DeviceBuffer();
    arguments_.workspace = nullptr;
    llvm::Expected<DeviceBuffer> buffer = DeviceBuffer::allocate(plan().device().driver(), workspaceBytes());
    if (!buffer) return buffer.takeError();
    workspace_ = std::move(*buffer);
    if (llvm::Error error = fill(workspace_.get(), workspace_.bytes())) return error;
    arguments_.workspace = reinterpret_cast<void*>(workspace_.get());
  }
  arguments_.workspaceBytes = workspaceBytes();
  return llvm::Error::success();
}

llvm::Error DeviceCase::replacePlan(Runtime::Implementation::PlanPointer plan) {
  const PlanGraph& graph = plan->plan.graph();
  if (graph.workload != case_->workload || graph.shape != case_->shape ||
      plan->plan.device().context() != this->plan().device().context())
    return makeError(ErrorCode::InvalidArgument, "a plan can be replaced only by one for the same problem and device");
  plan_ = std::move(plan);
  const DeviceContext& device = this->plan().device();
  llvm::Expected<ContextGuard> guard = ContextGuard::enter(device.driver(), device.context());
  if (!guard) return guard.takeError();
  return allocateWorkspace();
}

llvm::Error DeviceCase::poison() const {
  const DeviceContext& device = plan().device();
  llvm::Expected<ContextGuard> guard = ContextGuard::enter(device.driver(), device.context());
  if (!guard) return guard.takeError();
  for (const DeviceBuffer& buffer : llvm::ArrayRef(buffers_).drop_front(firstResult_))
    if (llvm::Error error = fill(buffer.get(), buffer.bytes())) return error;
  return fill(workspace_.get(), workspace_.bytes());
}

llvm::Error DeviceCase::allocateInputs() {
  const auto upload = [&](const std::string& bytes, const void*& to) -> llvm::Error {
    llvm::Expected<void*> memory = allocate(static_cast<int64_t>(bytes.size()), bytes.data());
    if (!memory) return memory.takeError();
    to = *memory;
    return llvm::Error::success();
  };
  if (llvm::Error error = upload(case_->input, arguments_.input)) return error;
  if (llvm::Error error = upload(case_->weight, arguments_.weight)) return error;
  if (case_->workload.bias)
    if (llvm::Error error = upload(case_->bias, arguments_.bias)) return error;
  llvm::Expected<void*> target = allocate(static_cast<int64_t>(case_->target.size()) * 8, case_->target.data());
  if (!target) return target.takeError();
  arguments_.target = static_cast<const int64_t*>(*target);
  arguments_.scalars = case_->scalars;
  return llvm::Error::success();
}

llvm::Error DeviceCase::allocateOutputs() {
  const Workload& workload = case_->workload;
  const int64_t pairs = case_->shape.pairs();
  const int64_t tokens = case_->shape.rows();
  firstResult_ = buffers_.size();
  llvm::Expected<void*> results = allocate((kScalarCount + 4 * pairs + tokens) * 4);
  if (!results) return results.takeError();
  auto* base = static_cast<float*>(*results);
  arguments_.loss = base + kLoss;
  arguments_.preferenceLoss = base + kPreferenceLoss;
  arguments_.nll = base + kNll;
  if (workload.logitMeans) {
    arguments_.chosenLogitsMean = base + kChosenLogitsMean;
    arguments_.rejectedLogitsMean = base + kRejectedLogitsMean;
  }
  arguments_.chosenLogps = base + kScalarCount;
  arguments_.rejectedLogps = arguments_.chosenLogps + pairs;
  arguments_.chosenRewards = arguments_.rejectedLogps + pairs;
  arguments_.rejectedRewards = arguments_.chosenRewards + pairs;
  arguments_.perTokenLogps = arguments_.rejectedRewards + pairs;

  const struct {
    void** to;
    int64_t bytes;
    bool wanted;
  } buffers[] = {
      {reinterpret_cast<void**>(&arguments_.diagnostics), sizeof(RunDiagnostics), true},
      {&arguments_.gradInput, tokens * workload.hidden * sizeOf(workload.dtype), workload.gradInput},
      {&arguments_.gradWeight, workload.vocab * workload.hidden * sizeOf(workload.gradWeightDType),
       workload.gradWeight},
      {&arguments_.gradBias, workload.vocab * sizeOf(workload.dtype), workload.gradBias},
  };
  for (const auto& buffer : buffers) {
    if (!buffer.wanted) continue;
    llvm::Expected<void*> memory = allocate(buffer.bytes);
    if (!memory) return memory.takeError();
    *buffer.to = *memory;
  }
  return llvm::Error::success();
}

llvm::Error DeviceCase::run() const {
  if (!twoCalls_ || !case_->workload.anyGradient()) return plan().run(arguments_, stream_->get());
  if (llvm::Error error = plan().forward(arguments_, stream_->get())) return error;
  return plan().backward(arguments_, stream_->get());
}

llvm::Expected<std::vector<double>> DeviceCase::read(const void* from, int64_t count, DType type) const {
  std::string bytes(static_cast<size_t>(count * sizeOf(type)), '\0');
  const Driver& driver = plan().device().driver();
  const CUresult result =
      driver.memcpyDtoHAsync(bytes.data(), reinterpret_cast<CUdeviceptr>(from), bytes.size(), stream_->get());
  if (llvm::Error error = check(driver, result, "cuMemcpyDtoHAsync")) return error;
  if (llvm::Error error = stream_->synchronize()) return error;
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = elementAt(bytes.data(), type, int64_t(i));
  return values;
}

llvm::Expected<LossResult> DeviceCase::downloadLoss() const {
  const Workload& workload = case_->workload;
  const int64_t pairs = case_->shape.pairs();
  LossResult result;
  llvm::Error errors = llvm::Error::success();
  const auto fetch = [&](const void* from, int64_t count) {
    llvm::Expected<std::vector<double>> values = read(from, count, DType::FP32);
    if (values) return std::move(*values);
    errors = llvm::joinErrors(std::move(errors), values.takeError());
    return std::vector<double>(static_cast<size_t>(count));
  };

  const std::vector<double> scalars = fetch(arguments_.loss, kScalarCount);
  result.loss = scalars[kLoss];
  result.preferenceLoss = scalars[kPreferenceLoss];
  result.nll = scalars[kNll];
  if (workload.logitMeans) {
    result.chosenLogitsMean = scalars[kChosenLogitsMean];
    result.rejectedLogitsMean = scalars[kRejectedLogitsMean];
  }
  result.chosenLogps = fetch(arguments_.chosenLogps, pairs);
  result.rejectedLogps = fetch(arguments_.rejectedLogps, pairs);
  result.chosenRewards = fetch(arguments_.chosenRewards, pairs);
  result.rejectedRewards = fetch(arguments_.rejectedRewards, pairs);
  result.perTokenLogps = fetch(arguments_.perTokenLogps, case_->shape.rows());

  RunDiagnostics counts{};
  const Driver& driver = plan().device().driver();
  const CUresult copied = driver.memcpyDtoHAsync(&counts, reinterpret_cast<CUdeviceptr>(arguments_.diagnostics),
                                                 sizeof(counts), stream_->get());
  errors = llvm::joinErrors(std::move(errors), check(driver, copied, "cuMemcpyDtoHAsync"));
  errors = llvm::joinErrors(std::move(errors), stream_->synchronize());
  if (errors) return errors;
  result.diagnostics = {counts.emptySequences, counts.badTargets, counts.firstBadSequence, counts.firstBadToken,
                        counts.validTokens};
  return result;
}

llvm::Expected<LossResult> DeviceCase::download() const {
  const DeviceContext& device = plan().device();
  llvm::Expected<ContextGuard> guard = ContextGuard::enter(device.driver(), device.context());
  if (!guard) return guard.takeError();
  llvm::Expected<LossResult> result = downloadLoss();
  if (!result) return result.takeError();
  const Workload& workload = case_->workload;
  const struct {
    bool wanted;
    const void* from;
    int64_t count;
    DType type;
    std::vector<double>& to;
  } gradients[] = {
      {workload.gradInput, arguments_.gradInput, case_->shape.rows() * workload.hidden, workload.dtype,
       result->gradInput},
      {workload.gradWeight, arguments_.gradWeight, workload.vocab * workload.hidden, workload.gradWeightDType,
       result->gradWeight},
      {workload.gradBias, arguments_.gradBias, workload.vocab, workload.dtype, result->gradBias},
  };
  for (const auto& gradient : gradients) {
    if (!gradient.wanted) continue;
    llvm::Expected<std::vector<double>> values = read(gradient.from, gradient.count, gradient.type);
    if (!values) return values.takeError();
    gradient.to = std::move(*values);
  }
  return result;
}

llvm::Expected<LossResult> DeviceCase::downloadParts(llvm::ArrayRef<int64_t> rows,
                                                     llvm::ArrayRef<int64_t> entries) const {
  const DeviceContext& device = plan().device();
  llvm::Expected<ContextGuard> guard = ContextGuard::enter(device.driver(), device.context());
  if (!guard) return guard.takeError();
  llvm::Expected<LossResult> result = downloadLoss();
  if (!result) return result.takeError();
  const Workload& workload = case_->workload;
  const auto append = [&](const void* base, int64_t index, int64_t width, DType type,
                          std::vector<double>& to) -> llvm::Error {
    const char* from = static_cast<const char*>(base) + index * width * sizeOf(type);
    llvm::Expected<std::vector<double>> values = read(from, width, type);
    if (!values) return values.takeError();
    to.insert(to.end(), values->begin(), values->end());
    return llvm::Error::success();
  };
  for (const int64_t row : rows)
    if (workload.gradInput)
      if (llvm::Error error = append(arguments_.gradInput, row, workload.hidden, workload.dtype, result->gradInput))
        return error;
  for (const int64_t entry : entries) {
    if (workload.gradWeight)
      if (llvm::Error error =
              append(arguments_.gradWeight, entry, workload.hidden, workload.gradWeightDType, result->gradWeight))
        return error;
    if (workload.gradBias)
      if (llvm::Error error = append(arguments_.gradBias, entry, 1, workload.dtype, result->gradBias)) return error;
  }
  return result;
}

llvm::Expected<LossResult> lathe::runOnDevice(Runtime::Implementation& runtime, const Case& value,
                                              const DeviceRunOptions& options) {
  llvm::Expected<DeviceCase> uploaded = DeviceCase::upload(runtime, value, options);
  if (!uploaded) return uploaded.takeError();
  if (llvm::Error error = uploaded->run()) return error;
  return uploaded->download();
}
