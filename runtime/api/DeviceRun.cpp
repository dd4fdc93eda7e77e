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

double elementAt(const std::string& bytes, DType type, size_t index) {
  if (type == DType::FP32) {
    float value = 0;
    std::memcpy(&value, bytes.data() + 4 * index, 4);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, bytes.data() + 2 * index, 2);
  return type == DType::BF16 ? bf16ToFloat(bits) : fp16ToFloat(bits);
}

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
  stream_.reset();
  if (!guard) llvm::consumeError(guard.takeError());
}

llvm::Expected<void*> DeviceCase::allocate(int64_t bytes, const void* contents) {
  const Driver& driver = plan().device().driver();
  llvm::Expected<DeviceBuffer> buffer = DeviceBuffer::allocate(driver, bytes);
  if (!buffer) return buffer.takeError();
  if (bytes > 0) {
    const CUresult result =
        contents ? driver.memcpyHtoDAsync(buffer->get(), contents, static_cast<size_t>(bytes), stream_->get())
                 : driver.memsetD8Async(buffer->get(), 0xff, static_cast<size_t>(bytes), stream_->get());
    if (llvm::Error error = check(driver, result, contents ? "cuMemcpyHtoDAsync" : "cuMemsetD8Async")) return error;
  }
  buffers_.push_back(std::move(*buffer));
  return reinterpret_cast<void*>(buffers_.back().get());
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
      {&arguments_.workspace, workspaceBytes(), true},
  };
  for (const auto& buffer : buffers) {
    if (!buffer.wanted) continue;
    llvm::Expected<void*> memory = allocate(buffer.bytes);
    if (!memory) return memory.takeError();
    *buffer.to = *memory;
  }
  arguments_.workspaceBytes = workspaceBytes();
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
  for (size_t i = 0; i < values.size(); ++i) values[i] = elementAt(bytes, type, i);
  return values;
}

llvm::Expected<LossResult> DeviceCase::download() const {
  const DeviceContext& device = plan().device();
  llvm::Expected<ContextGuard> guard = ContextGuard::enter(device.driver(), device.context());
  if (!guard) return guard.takeError();
  const Workload& workload = case_->workload;
  const int64_t pairs = case_->shape.pairs();
  const int64_t tokens = case_->shape.rows();
  LossResult result;
  llvm::Error errors = llvm::Error::success();
  const auto fetch = [&](const void* from, int64_t count, DType type) {
    llvm::Expected<std::vector<double>> values = read(from, count, type);
    if (values) return std::move(*values);
    errors = llvm::joinErrors(std::move(errors), values.takeError());
    return std::vector<double>(static_cast<size_t>(count));
  };

  const std::vector<double> scalars = fetch(arguments_.loss, kScalarCount, DType::FP32);
  result.loss = scalars[kLoss];
  result.preferenceLoss = scalars[kPreferenceLoss];
  result.nll = scalars[kNll];
  if (workload.logitMeans) {
    result.chosenLogitsMean = scalars[kChosenLogitsMean];
    result.rejectedLogitsMean = scalars[kRejectedLogitsMean];
  }
  result.chosenLogps = fetch(arguments_.chosenLogps, pairs, DType::FP32);
  result.rejectedLogps = fetch(arguments_.rejectedLogps, pairs, DType::FP32);
  result.chosenRewards = fetch(arguments_.chosenRewards, pairs, DType::FP32);
  result.rejectedRewards = fetch(arguments_.rejectedRewards, pairs, DType::FP32);
  result.perTokenLogps = fetch(arguments_.perTokenLogps, tokens, DType::FP32);
  if (workload.gradInput) result.gradInput = fetch(arguments_.gradInput, tokens * workload.hidden, workload.dtype);
  if (workload.gradWeight)
    result.gradWeight = fetch(arguments_.gradWeight, workload.vocab * workload.hidden, workload.gradWeightDType);
  if (workload.gradBias) result.gradBias = fetch(arguments_.gradBias, workload.vocab, workload.dtype);

  RunDiagnostics counts{};
  const Driver& driver = device.driver();
  const CUresult copied = driver.memcpyDtoHAsync(&counts, reinterpret_cast<CUdeviceptr>(arguments_.diagnostics),
                                                 sizeof(counts), stream_->get());
  errors = llvm::joinErrors(std::move(errors), check(driver, copied, "cuMemcpyDtoHAsync"));
  errors = llvm::joinErrors(std::move(errors), stream_->synchronize());
  if (errors) return errors;
  result.diagnostics = {counts.emptySequences, counts.badTargets, counts.firstBadSequence, counts.firstBadToken,
                        counts.validTokens};
  return result;
}

llvm::Expected<LossResult> lathe::runOnDevice(Runtime::Implementation& runtime, const Case& value,
                                              const DeviceRunOptions& options) {
  llvm::Expected<DeviceCase> uploaded = DeviceCase::upload(runtime, value, options);
  if (!uploaded) return uploaded.takeError();
  if (llvm::Error error = uploaded->run()) return error;
  return uploaded->download();
}
