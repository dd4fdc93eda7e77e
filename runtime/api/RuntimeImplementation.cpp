//===- runtime/api/RuntimeImplementation.cpp - What is behind lathe::Runtime -===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/api/RuntimeImplementation.h"

#include "generator/Workload.h"

#include "llvm/ADT/Hashing.h"

#include <spdlog/logger.h>

using namespace lathe;

LibraryOpeners LibraryOpeners::fromEnvironment(const Environment& environment) {
  const std::string driverPath = environment.driverPath.value_or("libcuda.so.1");
  const std::string nvrtcPath = environment.nvrtcPath.value_or("");
  return {[driverPath] { return openDriver(driverPath); },
          [nvrtcPath, folders = environment.cudaSearchFolders] { return openNvrtc(nvrtcPath, folders); },
          [nvrtcPath, folders = environment.cudaSearchFolders] { return nvrtcVersionByName(nvrtcPath, folders); }};
}

size_t Runtime::Implementation::PlanKeyHash::operator()(const PlanKey& key) const {
  // Equality looks at everything; the hash at what usually differs.
  return llvm::hash_combine(key.workload.hidden, key.workload.vocab, static_cast<int>(key.workload.dtype),
                            key.workload.anyGradient(), key.shape.sequences, key.shape.tokens, key.context);
}

Runtime::Implementation::Implementation(Environment environment, CompilerOptions compilerOptions,
                                        LibraryOpeners openers)
    : environment_(std::move(environment)), openers_(std::move(openers)), logger_(makeLogger(environment_)),
      cache_(environment_.cacheDir, environment_.cachePath, warn()),
      store_(&cache_, openers_.nvrtc, compilerOptions, warn(), openers_.nvrtcVersion) {}

std::function<void(llvm::StringRef)> Runtime::Implementation::warn() const {
  return [logger = logger_](llvm::StringRef message) { logger->warn("{}", message.str()); };
}

llvm::Expected<std::shared_ptr<const Driver>> Runtime::Implementation::driver() {
  const std::lock_guard lock(mutex_);
  if (!driver_) {
    llvm::Expected<Driver> opened = openers_.driver();
    if (!opened) return opened.takeError();
    if (llvm::Error error = initialize(*opened)) return error;
    driver_ = std::make_shared<const Driver>(*opened);
  }
  return driver_;
}

llvm::Expected<std::shared_ptr<const DeviceContext>>
Runtime::Implementation::device(std::shared_ptr<const Driver> driver, std::optional<int> ordinal) {
  CUcontext current = nullptr;
  if (llvm::Error error = check(*driver, driver->ctxGetCurrent(&current), "cuCtxGetCurrent")) return error;
  const std::lock_guard lock(mutex_);
  if (const auto found = devices_.find(current); found != devices_.end())
    if (!ordinal || found->second->ordinal() == *ordinal) return found->second;
  for (const auto& entry : devices_)
    if (!current && entry.second->isPrimary() && entry.second->ordinal() == ordinal.value_or(0)) return entry.second;

  llvm::Expected<DeviceContext> opened = DeviceContext::open(std::move(driver), ordinal);
  if (!opened) return opened.takeError();
  const CUcontext context = opened->context();
  auto device = std::make_shared<const DeviceContext>(std::move(*opened));
  return devices_.try_emplace(context, std::move(device)).first->second;
}

llvm::Expected<Runtime::Implementation::PlanPointer> Runtime::Implementation::plan(const Workload& workload,
                                                                                   const Shape& shape,
                                                                                   const PlanRequest& request,
                                                                                   std::optional<int> ordinal) {
  llvm::Expected<std::shared_ptr<const Driver>> opened = driver();
  if (!opened) return opened.takeError();
  auto context = device(*opened, ordinal);
  if (!context) return context.takeError();

  const PlanKey key{workload, shape, request, (*context)->context()};
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = plans_.find(key); found != plans_.end()) return found->second;
  }
  // Made outside the lock, so that threads with other plans do not wait for this compilation. Of two threads that make
  // the same plan, the second takes the first's.
  llvm::Expected<PlanPointer> made = makeLoadedPlan(*context, workload, shape, request);
  if (!made) return made.takeError();
  const std::lock_guard lock(mutex_);
  return plans_.try_emplace(key, std::move(*made)).first->second;
}

llvm::Expected<std::vector<KernelPointer>> Runtime::Implementation::kernels(const PlanGraph& graph) {
  std::vector<Specialization> specializations;
  for (const KernelKind kind : graph.kernels())
    specializations.push_back(specialize(kind, graph.workload, graph.target, graph.choices.configs));
  return store_.get(specializations, graph.workload);
}

llvm::Expected<Runtime::Implementation::PlanPointer>
Runtime::Implementation::makeLoadedPlan(std::shared_ptr<const DeviceContext> device, const Workload& workload,
                                        const Shape& shape, const PlanRequest& request) {
  llvm::Expected<PlanGraph> graph = makePlan(workload, shape, device->target(), request);
  if (!graph) return graph.takeError();
  llvm::Expected<std::vector<KernelPointer>> compiled = kernels(*graph);
  if (!compiled) return compiled.takeError();
  llvm::Expected<ContextGuard> guard = ContextGuard::enter(device->driver(), device->context());
  if (!guard) return guard.takeError();
  std::vector<LoadedKernel::Pointer> loaded;
  for (const KernelPointer& kernel : *compiled) {
    llvm::Expected<LoadedKernel::Pointer> one = load(device, kernel);
    if (!one) return one.takeError();
    loaded.push_back(std::move(*one));
  }
  return std::make_shared<const Plan::Implementation>(
      LoadedPlan(std::move(device), std::move(*graph), std::move(loaded)));
}

llvm::Expected<LoadedKernel::Pointer> Runtime::Implementation::load(std::shared_ptr<const DeviceContext> device,
                                                                    const KernelPointer& kernel) {
  const LoadedKey key{kernel->digest, device->context()};
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = loaded_.find(key); found != loaded_.end()) return found->second;
  }
  llvm::Expected<LoadedKernel::Pointer> fresh = LoadedKernel::load(std::move(device), kernel);
  if (!fresh) return fresh.takeError();
  const std::lock_guard lock(mutex_);
  return loaded_.try_emplace(key, std::move(*fresh)).first->second;
}
