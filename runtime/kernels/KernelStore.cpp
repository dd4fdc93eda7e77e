//===- runtime/kernels/KernelStore.cpp - Compiled kernels, found or made ----===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/kernels/KernelStore.h"

#include "generator/Workload.h"

#include "llvm/ADT/StringSet.h"

using namespace lathe;

llvm::StringRef lathe::toString(KernelOrigin origin) {
  return origin == KernelOrigin::Cache ? "cache" : "compiled";
}

namespace {

CompileRequest requestFor(const Specialization& specialization) {
  return {specialization.entry + ".cu", specialization.entry, specialization.unit, specialization.target.arch(), {}};
}

/// The record of `kernel`, whose .cu has the text `source`.
KernelRecord recordOf(const Kernel& kernel, llvm::StringRef source, llvm::StringRef nvrtcVersion,
                      const CompilerOptions& options) {
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
  record.textDigest = Digest::of(source);
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

Digest digestOf(const Specialization& specialization, llvm::StringRef nvrtcVersion, const CompilerOptions& options) {
  const std::string arch = specialization.target.arch();
  return kernelDigest(specialization.sourceDigest, compileOptions(arch, options), nvrtcVersion, arch);
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

/// The kernels of one call of `get`: those in memory, those that this thread has claimed, and those to wait for.
class KernelStore::Claims {
public:
  Claims(KernelStore& store, llvm::ArrayRef<Specialization> specializations) : store_(store) {
    const std::lock_guard lock(store_.mutex_);
    for (const Specialization& specialization : specializations) {
      Key key = keyOf(specialization);
      if (const auto found = store_.kernels_.find(key); found != store_.kernels_.end()) {
        outcomes_.push_back(ready({found->second, std::nullopt}));
        continue;
      }
      const auto [pending, isNew] = store_.pending_.try_emplace(std::move(key));
      if (isNew) {
        pending->second = promises_.emplace_back().get_future().share();
        claimed_.push_back(&specialization);
      }
      outcomes_.push_back(pending->second);
    }
  }
  Claims(const Claims&) = delete;
  Claims& operator=(const Claims&) = delete;
  /// Claims that were not settled, as an exception passes, fail: nobody waits for ever.
  ~Claims() {
    if (!isSettled_) settle({claimed_.size(), Outcome{nullptr, ErrorSummary{ErrorCode::Internal, kInterrupted}}});
  }

  llvm::ArrayRef<const Specialization*> claimed() const { return claimed_; }

  /// Hands `outcomes`, in the order of `claimed()`, to all who wait.
  void settle(const std::vector<Outcome>& outcomes) {
    {
      const std::lock_guard lock(store_.mutex_);
      for (size_t i = 0; i < claimed_.size(); ++i) {
        const Key key = keyOf(*claimed_[i]);
        if (outcomes[i].kernel) store_.kernels_.try_emplace(key, outcomes[i].kernel);
        store_.pending_.erase(key);
      }
    }
    for (size_t i = 0; i < claimed_.size(); ++i) promises_[i].set_value(outcomes[i]);
    isSettled_ = true;
  }

  /// All outcomes, in the order of the specializations; waits for other threads. What was claimed must be settled
  /// before: two threads that wait for each other's kernels have then both made theirs.
  llvm::Expected<std::vector<KernelPointer>> wait() const {
    std::vector<KernelPointer> kernels;
    llvm::Error errors = llvm::Error::success();
    // What all kernels lack, such as NVRTC, is told once.
    llvm::StringSet<> told;
    for (const std::shared_future<Outcome>& future : outcomes_) {
      const Outcome& outcome = future.get();
      kernels.push_back(outcome.kernel);
      if (outcome.error && told.insert(outcome.error->message).second)
        errors = llvm::joinErrors(std::move(errors), makeError(outcome.error->code, "{0}", outcome.error->message));
    }
    if (errors) return errors;
    return kernels;
  }

private:
  static constexpr const char* kInterrupted = "the thread that compiled this kernel was interrupted; try again";

  static std::shared_future<Outcome> ready(Outcome outcome) {
    std::promise<Outcome> promise;
    promise.set_value(std::move(outcome));
    return promise.get_future().share();
  }

  KernelStore& store_;
  std::vector<const Specialization*> claimed_;
  /// In the order of `claimed_`.
  std::vector<std::promise<Outcome>> promises_;
  std::vector<std::shared_future<Outcome>> outcomes_;
  bool isSettled_ = false;
};

KernelStore::Key KernelStore::keyOf(const Specialization& specialization) {
  return {specialization.sourceDigest, specialization.target.arch()};
}

llvm::Expected<std::vector<KernelPointer>> KernelStore::get(llvm::ArrayRef<Specialization> specializations,
                                                            const Workload& workload) {
  Claims claims(*this, specializations);
  if (!claims.claimed().empty()) claims.settle(make(claims.claimed(), workload));
  return claims.wait();
}

std::vector<KernelStore::Outcome> KernelStore::make(llvm::ArrayRef<const Specialization*> claimed,
                                                    const Workload& workload) {
  const Digest digest = workloadDigest(workload);
  std::vector<Outcome> outcomes(claimed.size());
  const std::optional<std::string> known = cache_ ? knownVersion() : std::nullopt;
  if (known) {
    findAllInCache(claimed, digest, known, outcomes);
    if (llvm::all_of(outcomes, [](const Outcome& outcome) { return outcome.kernel != nullptr; })) return outcomes;
  }
  llvm::Expected<const Compiler*> compiler = this->compiler();
  const std::optional<std::string> version = compiler ? std::optional(nvrtcVersion_) : std::nullopt;
  if (version != known || !known) findAllInCache(claimed, digest, version, outcomes);

  std::vector<size_t> places;
  std::vector<const Specialization*> missing;
  for (size_t i = 0; i < claimed.size(); ++i) {
    if (outcomes[i].kernel) continue;
    places.push_back(i);
    missing.push_back(claimed[i]);
  }
  if (!compiler) {
    const ErrorSummary error = takeSummary(compiler.takeError());
    for (const size_t i : places) outcomes[i].error = error;
  } else if (!missing.empty()) {
    std::vector<Outcome> compiled = compileMissing(**compiler, missing, workload);
    for (size_t k = 0; k < places.size(); ++k) outcomes[places[k]] = std::move(compiled[k]);
  }
  return outcomes;
}

std::optional<std::string> KernelStore::knownVersion() const {
  {
    const std::lock_guard lock(mutex_);
    if (compiler_) return nvrtcVersion_;
  }
  const std::optional<NvrtcVersion> version = versionByName_ ? versionByName_() : std::nullopt;
  if (!version) return std::nullopt;
  return version->text();
}

void KernelStore::findAllInCache(llvm::ArrayRef<const Specialization*> claimed, const Digest& workload,
                                 const std::optional<std::string>& nvrtcVersion, std::vector<Outcome>& outcomes) const {
  for (size_t i = 0; i < claimed.size(); ++i)
    if (!outcomes[i].kernel) outcomes[i].kernel = findInCache(*claimed[i], workload, nvrtcVersion);
}

KernelPointer KernelStore::findInCache(const Specialization& specialization, const Digest& workload,
                                       const std::optional<std::string>& nvrtcVersion) const {
  if (!cache_) return nullptr;
  const std::string arch = specialization.target.arch();
  std::optional<CachedKernel> cached =
      nvrtcVersion ? cache_->load({workload, arch, digestOf(specialization, *nvrtcVersion, options_)})
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

std::vector<KernelStore::Outcome> KernelStore::compileMissing(const Compiler& compiler,
                                                              llvm::ArrayRef<const Specialization*> missing,
                                                              const Workload& workload) const {
  std::vector<CompileRequest> requests;
  for (const Specialization* specialization : missing) requests.push_back(requestFor(*specialization));
  std::vector<llvm::Expected<CompiledKernel>> compiled = compiler.compileAll(requests);

  std::vector<Outcome> outcomes;
  for (size_t i = 0; i < missing.size(); ++i) {
    if (!compiled[i]) {
      outcomes.push_back({nullptr, takeSummary(compiled[i].takeError())});
      continue;
    }
    auto kernel = std::make_shared<const Kernel>(Kernel{*missing[i], digestOf(*missing[i], nvrtcVersion_, options_),
                                                        std::move(compiled[i]->cubin), compiled[i]->info,
                                                        KernelOrigin::Compiled, compiled[i]->milliseconds});
    keep(*kernel, workload);
    outcomes.push_back({std::move(kernel), std::nullopt});
  }
  return outcomes;
}

void KernelStore::keep(const Kernel& kernel, const Workload& workload) const {
  if (!cache_) return;
  const Digest digest = workloadDigest(workload);
  const KernelKey key{digest, kernel.specialization.target.arch(), kernel.digest};
  std::string source = kernel.specialization.flattened();
  KernelRecord record = recordOf(kernel, source, nvrtcVersion_, options_);
  llvm::Error error = cache_->store(key, {kernel.cubin, std::move(source), std::move(record)});
  if (!error && !cache_->loadDocument(digest, "", "workload.json"))
    error = cache_->storeDocument(digest, "", "workload.json", canonicalJson(workload) + "\n");
  if (error) warn_("a kernel was not kept in the cache: " + llvm::toString(std::move(error)));
}
