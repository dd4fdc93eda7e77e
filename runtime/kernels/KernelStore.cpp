//===- runtime/kernels/KernelStore.cpp - Compiled kernels, found or made ----===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/kernels/KernelStore.h"

#include "generator/Workload.h"

using namespace lathe;

llvm::StringRef lathe::toString(KernelOrigin origin) {
  return origin == KernelOrigin::Cache ? "cache" : "compiled";
}

namespace {

CompileRequest requestFor(const Specialization& specialization) {
  return {specialization.entry + ".cu", specialization.entry, specialization.unit, specialization.target.arch(), {}};
}

KernelRecord recordOf(const Kernel& kernel, llvm::StringRef nvrtcVersion, const CompilerOptions& options) {
  const Specialization& specialization = kernel.specialization;
  KernelRecord record;
  record.kernelDigest = kernel.digest;
  record.sourceDigest = specialization.sourceDigest;
  record.kind = toString(specialization.kind).str();
  record.entry = specialization.entry;
  record.arch = specialization.target.arch();
  record.compileOptions = compileOptions(record.arch, options);
  record.nvrtcVersion = nvrtcVersion.str();
  record.cubinBytes = kernel.cubin.size();
  record.cubinDigest = Digest::of(kernel.cubin);
  record.threads = specialization.threads;
  record.dynamicSharedBytes = specialization.sharedBytes;
  record.staticSharedBytes = kernel.info.sharedBytes;
  record.registers = kernel.info.registers;
  record.localBytes = kernel.info.localBytes;
  record.compileMilliseconds = kernel.compileMilliseconds;
  if (specialization.config) record.config = toJson(*specialization.config);
  record.created = utcNow();
  record.latheVersion = LATHE_VERSION;
  return record;
}

} // namespace

llvm::Expected<const Compiler*> KernelStore::compiler() {
  const std::lock_guard lock(mutex_);
  if (!compiler_) {
    llvm::Expected<Nvrtc> nvrtc = openNvrtc_();
    if (!nvrtc) return nvrtc.takeError();
    llvm::Expected<NvrtcVersion> version = nvrtc->version();
    if (!version) return version.takeError();
    nvrtcVersion_ = version->text();
    compiler_ = std::make_unique<const Compiler>(std::move(*nvrtc), options_);
  }
  return compiler_.get();
}

llvm::Expected<std::vector<KernelPointer>> KernelStore::get(llvm::ArrayRef<Specialization> specializations,
                                                            const Workload& workload) {
  std::vector<KernelPointer> kernels = findInMemory(specializations);
  if (llvm::none_of(kernels, [](const KernelPointer& kernel) { return kernel == nullptr; })) return kernels;

  const Digest digest = workloadDigest(workload);
  llvm::Expected<const Compiler*> compiler = this->compiler();
  std::vector<size_t> missing;
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (!kernels[i]) kernels[i] = findInCache(specializations[i], digest, static_cast<bool>(compiler));
    if (!kernels[i]) missing.push_back(i);
  }
  if (missing.empty()) {
    if (!compiler) llvm::consumeError(compiler.takeError());
  } else if (!compiler) {
    return compiler.takeError();
  } else if (llvm::Error error = compileMissing(**compiler, specializations, missing, workload, kernels)) {
    return error;
  }
  remember(kernels);
  return kernels;
}

std::vector<KernelPointer> KernelStore::findInMemory(llvm::ArrayRef<Specialization> specializations) const {
  std::vector<KernelPointer> kernels;
  const std::lock_guard lock(mutex_);
  for (const Specialization& specialization : specializations) {
    const auto found = kernels_.find({specialization.sourceDigest, specialization.target.arch()});
    kernels.push_back(found == kernels_.end() ? nullptr : found->second);
  }
  return kernels;
}

void KernelStore::remember(llvm::ArrayRef<KernelPointer> kernels) {
  const std::lock_guard lock(mutex_);
  for (const KernelPointer& kernel : kernels)
    kernels_.try_emplace({kernel->specialization.sourceDigest, kernel->specialization.target.arch()}, kernel);
}

Digest KernelStore::digestOf(const Specialization& specialization) const {
  const std::string arch = specialization.target.arch();
  return kernelDigest(specialization.sourceDigest, compileOptions(arch, options_), nvrtcVersion_, arch);
}

KernelPointer KernelStore::findInCache(const Specialization& specialization, const Digest& workload,
                                       bool hasCompiler) const {
  if (!cache_) return nullptr;
  const std::string arch = specialization.target.arch();
  std::optional<CachedKernel> cached = hasCompiler ? cache_->load({workload, arch, digestOf(specialization)})
                                                   : cache_->loadBySource(workload, arch, specialization.sourceDigest);
  if (!cached) return nullptr;
  // The digest vouches for the bytes; what they need is read from them again, as the record is only text.
  llvm::Expected<CubinInfo> info = readCubin(cached->cubin, specialization.entry);
  if (!info) {
    warn_(llvm::formatv("kernel {0} in the cache: {1}; compiled anew", cached->record.kernelDigest.hex(),
                        llvm::toString(info.takeError()))
              .str());
    return nullptr;
  }
  return std::make_shared<const Kernel>(
      Kernel{specialization, cached->record.kernelDigest, std::move(cached->cubin), *info, KernelOrigin::Cache, 0.0});
}

llvm::Error KernelStore::compileMissing(const Compiler& compiler, llvm::ArrayRef<Specialization> specializations,
                                        llvm::ArrayRef<size_t> missing, const Workload& workload,
                                        std::vector<KernelPointer>& kernels) const {
  std::vector<CompileRequest> requests;
  for (const size_t i : missing) requests.push_back(requestFor(specializations[i]));
  std::vector<llvm::Expected<CompiledKernel>> compiled = compiler.compileAll(requests);

  llvm::Error errors = llvm::Error::success();
  for (size_t k = 0; k < missing.size(); ++k) {
    const Specialization& specialization = specializations[missing[k]];
    if (!compiled[k]) {
      errors = llvm::joinErrors(std::move(errors), compiled[k].takeError());
      continue;
    }
    auto kernel =
        std::make_shared<const Kernel>(Kernel{specialization, digestOf(specialization), std::move(compiled[k]->cubin),
                                              compiled[k]->info, KernelOrigin::Compiled, compiled[k]->milliseconds});
    keep(*kernel, workload);
    kernels[missing[k]] = std::move(kernel);
  }
  return errors;
}

void KernelStore::keep(const Kernel& kernel, const Workload& workload) const {
  if (!cache_) return;
  const Digest digest = workloadDigest(workload);
  const KernelKey key{digest, kernel.specialization.target.arch(), kernel.digest};
  llvm::Error error =
      cache_->store(key, {kernel.cubin, kernel.specialization.flattened(), recordOf(kernel, nvrtcVersion_, options_)});
  if (!error && !cache_->loadDocument(digest, "", "workload.json"))
    error = cache_->storeDocument(digest, "", "workload.json", canonicalJson(workload) + "\n");
  if (error) warn_("a kernel was not kept in the cache: " + llvm::toString(std::move(error)));
}
