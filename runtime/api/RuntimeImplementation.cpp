//===- runtime/api/RuntimeImplementation.cpp - What is behind lathe::Runtime -===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/api/RuntimeImplementation.h"

#include "generator/Workload.h"
#include "runtime/cache/TuningFile.h"

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

const Plan::Implementation& Plan::Implementation::current() const {
  if (!expecting_.load(std::memory_order_acquire)) return *this;
  const std::lock_guard lock(mutex_);
  return successor_ ? *successor_ : *this;
}

void Plan::Implementation::expectSuccessor() const {
  expecting_.store(true, std::memory_order_release);
}

void Plan::Implementation::setSuccessor(std::shared_ptr<const Implementation> successor) const {
  expectSuccessor();
  const std::lock_guard lock(mutex_);
  // Kept for good: a captured graph, or another thread, may still use its kernels.
  if (!successor_) successor_ = std::move(successor);
}

llvm::Error Plan::Implementation::run(const RunArguments& run, CUstream stream) const {
  return current().plan.run(run, stream);
}

llvm::Error Plan::Implementation::forward(const RunArguments& run, CUstream stream) const {
  if (!expecting_.load(std::memory_order_acquire)) return plan.forward(run, stream);
  const Implementation* chosen = this;
  {
    const std::lock_guard lock(mutex_);
    if (successor_) {
      chosen = successor_.get();
      own_.erase(run.workspace);
    } else {
      own_.insert(run.workspace);
    }
  }
  return chosen->plan.forward(run, stream);
}

const LoadedPlan& Plan::Implementation::planOf(const void* workspace) const {
  const std::lock_guard lock(mutex_);
  return successor_ && !own_.contains(workspace) ? successor_->plan : plan;
}

llvm::Error Plan::Implementation::backward(const RunArguments& run, CUstream stream) const {
  if (!expecting_.load(std::memory_order_acquire)) return plan.backward(run, stream);
  return planOf(run.workspace).backward(run, stream);
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
  auto context = openDevice(ordinal);
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

llvm::Expected<std::shared_ptr<const DeviceContext>> Runtime::Implementation::openDevice(std::optional<int> ordinal) {
  llvm::Expected<std::shared_ptr<const Driver>> opened = driver();
  if (!opened) return opened.takeError();
  return device(*opened, ordinal);
}

void Runtime::Implementation::forgetPlans() {
  const std::lock_guard lock(mutex_);
  plans_.clear();
  std::erase_if(loaded_, [](const auto& entry) { return entry.second.use_count() == 1; });
}

void Runtime::Implementation::rememberTuned(const Workload& workload, const Target& target, const TunedPlan& plan) {
  const std::lock_guard lock(mutex_);
  tuned_[{workloadDigest(workload), target.arch()}].join({{plan}, {}});
}

llvm::Expected<TuningSetting> Runtime::Implementation::settingOf(const DeviceContext& device) {
  return settingOf(device.driver(), device.ordinal(), device.target());
}

llvm::Expected<TuningSetting> Runtime::Implementation::settingOf(const Driver& driver, int ordinal,
                                                                 const Target& target) {
  llvm::Expected<CUdevice> handle = deviceAt(driver, ordinal);
  if (!handle) return handle.takeError();
  char name[256] = {};
  if (llvm::Error error = check(driver, driver.deviceGetName(name, sizeof(name) - 1, *handle), "cuDeviceGetName"))
    return error;
  int version = 0;
  if (llvm::Error error = check(driver, driver.driverGetVersion(&version), "cuDriverGetVersion")) return error;
  TuningSetting setting;
  setting.device = name;
  setting.multiprocessors = target.multiprocessors;
  setting.driver = llvm::formatv("{0}.{1}", version / 1000, version % 1000 / 10);
  llvm::Expected<const Compiler*> compiler = store_.compiler();
  if (!compiler) {
    llvm::consumeError(compiler.takeError());
    return setting;
  }
  llvm::Expected<NvrtcVersion> nvrtc = (*compiler)->nvrtc().version();
  if (!nvrtc) return nvrtc.takeError();
  setting.nvrtc = nvrtc->text();
  return setting;
}

namespace {

/// Whether every product can run with the configs of `plan`, which come from a file.
llvm::Error checkTuned(const TunedPlan& plan, const Workload& workload, const Target& target) {
  const GemmConfigs& configs = plan.choices.configs;
  if (llvm::Error error = checkConfig(configs.logits, Gemm::Logits, workload, target)) return error;
  if (workload.gradInput)
    if (llvm::Error error = checkConfig(configs.gradInput, Gemm::GradInput, workload, target)) return error;
  if (workload.gradWeight) return checkConfig(configs.gradWeight, Gemm::GradWeight, workload, target);
  return llvm::Error::success();
}

/// `request` with what it leaves open taken from `plan`. A limit on the workspace keeps the strategy open.
PlanRequest requestWith(const TunedPlan& plan, PlanRequest request, const Shape& shape) {
  request.configs = plan.choices.configs;
  const bool open = !request.strategy && !request.chunkPairs && !request.workspaceLimit;
  if (!open || plan.choices.strategy != Strategy::Chunked || plan.choices.chunkPairs >= shape.pairs()) return request;
  request.strategy = Strategy::Chunked;
  request.chunkPairs = plan.choices.chunkPairs;
  return request;
}

} // namespace

std::optional<TunedChoice> Runtime::Implementation::findTuned(const Workload& workload, int64_t rows,
                                                              const DeviceContext& device) {
  const Digest digest = workloadDigest(workload);
  std::vector<std::string> roots = cache_.layers();
  if (cache_.root()) roots.insert(roots.begin(), *cache_.root());
  TuningDocument results;
  for (const std::string& root : roots) {
    llvm::Expected<TuningDocument> found = TuningFile(entryFolder(root, digest, device.target().arch())).readFolded();
    if (found)
      results.join({std::move(found->plans), {}});
    else
      logger_->warn("tuning results are not used: {}", takeSummary(found.takeError()).message);
  }
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = tuned_.find({digest, device.target().arch()}); found != tuned_.end())
      results.join(found->second);
  }
  if (results.plans.empty()) return std::nullopt;

  llvm::Expected<TuningSetting> here = settingOf(device);
  if (!here) {
    logger_->warn("tuning results are not used: {}", takeSummary(here.takeError()).message);
    return std::nullopt;
  }
  std::optional<TunedChoice> choice = lathe::findTuned(results, *here, rows);
  if (!choice) return std::nullopt;
  if (llvm::Error error = checkTuned(choice->plan, workload, device.target())) {
    logger_->warn("a tuned plan of {} is not used: {}", choice->plan.date, takeSummary(std::move(error)).message);
    return std::nullopt;
  }
  if (choice->stale)
    logger_->info("a plan that was tuned with driver {} and NVRTC {} is used with {} and {}; tune again for the best",
                  choice->plan.setting.driver, choice->plan.setting.nvrtc, here->driver, here->nvrtc);
  return choice;
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
  std::optional<TunedChoice> tuned;
  // An invalid shape has no bucket; makePlan says what is wrong with it.
  if (!request.configs && shape.sequences > 0 && shape.tokens > 0 && shape.tokens <= INT32_MAX / shape.sequences)
    tuned = findTuned(workload, shape.rows(), *device);
  const PlanRequest wanted = tuned ? requestWith(tuned->plan, request, shape) : request;
  llvm::Expected<PlanGraph> graph = makePlan(workload, shape, device->target(), wanted);
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
      LoadedPlan(std::move(device), std::move(*graph), std::move(loaded)), std::move(tuned));
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
