//===- runtime/launch/LoadedPlan.cpp - A plan whose kernels are on a GPU ----===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/launch/LoadedPlan.h"

using namespace lathe;

namespace {

CUtensorMapDataType mapType(DType dtype) {
  switch (dtype) {
  case DType::BF16:
    return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  case DType::FP16:
    return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  case DType::FP32:
    return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  }
  llvm_unreachable("unknown dtype");
}

/// Blocks of a persistent kernel that the device runs at once: how many clusters fit depends on how its multiprocessors
/// are grouped.
llvm::Expected<int64_t> residentBlocks(const Driver& driver, CUfunction function, const Specialization& kernel) {
  CUlaunchAttribute cluster{};
  cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  cluster.value.clusterDim = {static_cast<unsigned>(kernel.config->clusterM), 1, 1};
  CUlaunchConfig launch{};
  launch.gridDimX = cluster.value.clusterDim.x;
  launch.gridDimY = launch.gridDimZ = 1;
  launch.blockDimX = static_cast<unsigned>(kernel.threads);
  launch.blockDimY = launch.blockDimZ = 1;
  launch.sharedMemBytes = static_cast<unsigned>(kernel.sharedBytes);
  launch.attrs = &cluster;
  launch.numAttrs = 1;
  int clusters = 0;
  const CUresult result = driver.occupancyMaxActiveClusters(&clusters, function, &launch);
  if (llvm::Error error = check(driver, result, "cuOccupancyMaxActiveClusters of " + kernel.entry)) return error;
  if (clusters < 1)
    return makeError(ErrorCode::Unsupported, "{0} in clusters of {1} does not fit this device; use another config",
                     kernel.entry, kernel.config->clusterM);
  return int64_t(clusters) * kernel.config->clusterM;
}

} // namespace

llvm::Expected<LoadedKernel::Pointer> LoadedKernel::load(std::shared_ptr<const DeviceContext> device,
                                                         KernelPointer kernel) {
  const Driver& driver = device->driver();
  const Specialization& specialization = kernel->specialization;
  llvm::Expected<Module> module = Module::load(driver, kernel->cubin, specialization.entry);
  if (!module) return module.takeError();
  llvm::Expected<CUfunction> function = module->function(specialization.entry);
  if (!function) return function.takeError();
  if (specialization.sharedBytes > 0) {
    const CUresult result =
        driver.funcSetAttribute(*function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, specialization.sharedBytes);
    const std::string what = llvm::formatv("cuFuncSetAttribute of {0} to {1} bytes of shared memory",
                                           specialization.entry, specialization.sharedBytes);
    if (llvm::Error error = check(driver, result, what)) return error;
  }
  int64_t mostBlocks = INT32_MAX;
  if (specialization.config && specialization.config->family == Family::Wgmma) {
    llvm::Expected<int64_t> resident = residentBlocks(driver, *function, specialization);
    if (!resident) return resident.takeError();
    mostBlocks = *resident;
  }
  return std::make_shared<const LoadedKernel>(std::move(device), std::move(kernel), std::move(*module), *function,
                                              mostBlocks);
}

LoadedKernel::~LoadedKernel() {
  llvm::Expected<ContextGuard> guard = ContextGuard::enter(device_->driver(), device_->context());
  module_.reset();
  // A context that is already gone took its modules with it.
  if (!guard) llvm::consumeError(guard.takeError());
}

LoadedPlan::LoadedPlan(std::shared_ptr<const DeviceContext> device, PlanGraph graph,
                       std::vector<LoadedKernel::Pointer> kernels)
    : device_(std::move(device)), graph_(std::move(graph)), offsets_(graph_), kernels_(std::move(kernels)) {
  for (const LoadedKernel::Pointer& kernel : kernels_)
    byKind_[static_cast<size_t>(kernel->kernel().specialization.kind)] = kernel.get();
}

llvm::Error LoadedPlan::forward(const RunArguments& run, CUstream stream) const {
  return launchAll(graph_.forward, run, {.loss = true, .gradients = false}, stream);
}

llvm::Error LoadedPlan::backward(const RunArguments& run, CUstream stream) const {
  return launchAll(graph_.backward, run, {.loss = false, .gradients = true}, stream);
}

llvm::Error LoadedPlan::run(const RunArguments& run, CUstream stream) const {
  if (!graph_.workload.anyGradient()) return forward(run, stream);
  return launchAll(graph_.forwardBackward, run, {.loss = true, .gradients = true}, stream);
}

llvm::Error LoadedPlan::launch(const Step& step, const RunArguments& run, CUstream stream) const {
  return launch(StepBinder(graph_, offsets_, run), step, stream);
}

llvm::Error LoadedPlan::launchAll(const std::vector<Step>& steps, const RunArguments& run, WantedResults wanted,
                                  CUstream stream) const {
  if (llvm::Error error = checkArguments(graph_, run, wanted)) return error;
  const Driver& driver = device_->driver();
  CUcontext current = nullptr;
  if (llvm::Error error = check(driver, driver.ctxGetCurrent(&current), "cuCtxGetCurrent")) return error;
  std::optional<ContextGuard> guard;
  if (current != device_->context()) {
    llvm::Expected<ContextGuard> entered = ContextGuard::enter(driver, device_->context());
    if (!entered) return entered.takeError();
    guard.emplace(std::move(*entered));
  }
  const StepBinder binder(graph_, offsets_, run);
  for (const Step& step : steps)
    if (llvm::Error error = launch(binder, step, stream)) return error;
  return llvm::Error::success();
}

llvm::Error LoadedPlan::encodeMaps(const StepBinder::TensorSources& sources, device::TensorMaps& maps) const {
  if (llvm::Error error = encodeMap(sources.a, maps.a)) return error;
  if (llvm::Error error = encodeMap(sources.b, maps.b)) return error;
  if (sources.out) return encodeMap(*sources.out, maps.out);
  // A kernel may touch the map whether it copies or not.
  maps.out = maps.a;
  return llvm::Error::success();
}

llvm::Error LoadedPlan::encodeMap(const StepBinder::TensorSource& source, device::TensorMap& map) const {
  static_assert(sizeof(device::TensorMap) == sizeof(CUtensorMap) && alignof(device::TensorMap) >= alignof(CUtensorMap));
  const Driver& driver = device_->driver();
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(source.columns), static_cast<cuuint64_t>(source.rows)};
  const cuuint64_t pitch[] = {static_cast<cuuint64_t>(source.pitchBytes)};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(128 / sizeOf(source.dtype)),
                            static_cast<cuuint32_t>(source.boxRows)};
  const cuuint32_t steps[] = {1, 1};
  const CUresult result = driver.tensorMapEncodeTiled(
      reinterpret_cast<CUtensorMap*>(&map), mapType(source.dtype), 2, const_cast<void*>(source.base), extents, pitch,
      box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return llvm::Error::success();
  return check(driver, result, "cuTensorMapEncodeTiled");
}

llvm::Error LoadedPlan::launch(const StepBinder& binder, const Step& step, CUstream stream) const {
  const LoadedKernel& kernel = *byKind_[static_cast<size_t>(step.kind)];
  const Specialization& specialization = kernel.kernel().specialization;
  const Driver& driver = device_->driver();
  device::TensorMaps maps;
  if (specialization.config && specialization.config->family == Family::Wgmma)
    if (llvm::Error error = encodeMaps(binder.tensorSources(step), maps)) return error;
  const CUresult result = binder.bind(step, [&](auto parameter) {
    void* parameters[] = {&parameter, &maps};
    return driver.launchKernel(kernel.function(), static_cast<unsigned>(std::min(step.grid[0], kernel.mostBlocks())),
                               static_cast<unsigned>(step.grid[1]), static_cast<unsigned>(step.grid[2]),
                               static_cast<unsigned>(specialization.threads), 1, 1,
                               static_cast<unsigned>(specialization.sharedBytes), stream, parameters, nullptr);
  });
  if (result == CUDA_SUCCESS) return llvm::Error::success();
  return check(driver, result, "launching " + specialization.entry);
}
