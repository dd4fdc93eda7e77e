//===- runtime/kernels/KernelStore.h - Compiled kernels, found or made ------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Specialization.h"
#include "runtime/cache/Cache.h"
#include "runtime/compile/Compiler.h"

#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace lathe {

/// Where a kernel came from.
enum class KernelOrigin : uint8_t { Compiled, Cache };
llvm::StringRef toString(KernelOrigin origin);

/// A compiled specialization: immutable, not yet loaded into any GPU.
struct Kernel {
  Specialization specialization;
  Digest digest;
  std::string cubin;
  CubinInfo info;
  KernelOrigin origin = KernelOrigin::Compiled;
  /// Time of the compilation; 0 when it came from the cache.
  double compileMilliseconds = 0;
};
using KernelPointer = std::shared_ptr<const Kernel>;

/// Finds kernels in memory, then in the cache, then compiles and stores them. Safe to use from several threads: of
/// those that want the same kernel one finds or compiles it, and the others wait for that.
class KernelStore {
public:
  using OpenNvrtc = std::function<llvm::Expected<Nvrtc>()>;
  using Warn = std::function<void(llvm::StringRef)>;

  using NvrtcVersionByName = std::function<std::optional<NvrtcVersion>()>;

  /// `cache` may be null. NVRTC is opened when it is first needed: when a kernel is not in the cache, or when
  /// `versionByName` is absent or does not know which version of NVRTC a kernel must be by.
  KernelStore(const Cache* cache, OpenNvrtc openNvrtc, CompilerOptions options, Warn warn,
              NvrtcVersionByName versionByName = nullptr)
      : cache_(cache), openNvrtc_(std::move(openNvrtc)), options_(options), warn_(std::move(warn)),
        versionByName_(std::move(versionByName)) {}

  /// The kernels of `specializations`, in their order; what has to be compiled is compiled in parallel. All belong to
  /// `workload`, under whose digest the cache keeps them. Errors of several kernels are joined; the kernels without an
  /// error stay in memory all the same, and those with one are tried again when they are next asked for.
  llvm::Expected<std::vector<KernelPointer>> get(llvm::ArrayRef<Specialization> specializations,
                                                 const Workload& workload);

  /// The compiler; opens NVRTC.
  llvm::Expected<const Compiler*> compiler();

private:
  /// Source digest and architecture.
  using Key = std::pair<Digest, std::string>;
  /// A kernel, or why there is none; copyable, for all who wait for it.
  struct Outcome {
    KernelPointer kernel;
    std::optional<ErrorSummary> error;
  };
  class Claims;

  static Key keyOf(const Specialization& specialization);

  /// Finds or compiles `claimed`; an outcome for each, in their order.
  std::vector<Outcome> make(llvm::ArrayRef<const Specialization*> claimed, const Workload& workload);
  /// The kernels of `claimed` that are in the cache, into those outcomes that have none.
  void findAllInCache(llvm::ArrayRef<const Specialization*> claimed, const Digest& workload,
                      const std::optional<std::string>& nvrtcVersion, std::vector<Outcome>& outcomes) const;
  /// Null when the cache has none. Without `nvrtcVersion` a kernel by any version of NVRTC will do.
  KernelPointer findInCache(const Specialization& specialization, const Digest& workload,
                            const std::optional<std::string>& nvrtcVersion) const;
  /// The version of NVRTC if it is known without opening it.
  std::optional<std::string> knownVersion() const;
  /// Compiles and keeps `missing`; an outcome for each, in their order.
  std::vector<Outcome> compileMissing(const Compiler& compiler, llvm::ArrayRef<const Specialization*> missing,
                                      const Workload& workload) const;
  void keep(const Kernel& kernel, const Workload& workload) const;

  const Cache* cache_;
  OpenNvrtc openNvrtc_;
  CompilerOptions options_;
  Warn warn_;
  NvrtcVersionByName versionByName_;

  mutable std::mutex mutex_;
  std::map<Key, KernelPointer> kernels_;
  /// What some thread is finding or compiling now.
  std::map<Key, std::shared_future<Outcome>> pending_;
  std::unique_ptr<const Compiler> compiler_;
  std::string nvrtcVersion_;
};

} // namespace lathe
