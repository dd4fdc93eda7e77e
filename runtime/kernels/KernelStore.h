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
#include <map>
#include <memory>
#include <mutex>

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

/// Finds kernels in memory, then in the cache, then compiles and stores them. Safe to use from several threads.
class KernelStore {
public:
  using OpenNvrtc = std::function<llvm::Expected<Nvrtc>()>;
  using Warn = std::function<void(llvm::StringRef)>;

  /// `cache` may be null. NVRTC is opened when it is first needed.
  KernelStore(const Cache* cache, OpenNvrtc openNvrtc, CompilerOptions options, Warn warn)
      : cache_(cache), openNvrtc_(std::move(openNvrtc)), options_(options), warn_(std::move(warn)) {}

  /// The kernels of `specializations`, in their order; what has to be compiled is compiled in parallel. All belong to
  /// `workload`, under whose digest the cache keeps them. Errors of several kernels are joined.
  llvm::Expected<std::vector<KernelPointer>> get(llvm::ArrayRef<Specialization> specializations,
                                                 const Workload& workload);

  /// The compiler; opens NVRTC.
  llvm::Expected<const Compiler*> compiler();

private:
  /// In the order of `specializations`; null for those that are not there.
  std::vector<KernelPointer> findInMemory(llvm::ArrayRef<Specialization> specializations) const;
  void remember(llvm::ArrayRef<KernelPointer> kernels);
  /// Null when the cache has none. Without a compiler a kernel by any version of NVRTC will do.
  KernelPointer findInCache(const Specialization& specialization, const Digest& workload, bool hasCompiler) const;
  /// Compiles and keeps `specializations[i]` for every i in `missing`, and puts them into `kernels`.
  llvm::Error compileMissing(const Compiler& compiler, llvm::ArrayRef<Specialization> specializations,
                             llvm::ArrayRef<size_t> missing, const Workload& workload,
                             std::vector<KernelPointer>& kernels) const;
  void keep(const Kernel& kernel, const Workload& workload) const;
  Digest digestOf(const Specialization& specialization) const;

  const Cache* cache_;
  OpenNvrtc openNvrtc_;
  CompilerOptions options_;
  Warn warn_;

  mutable std::mutex mutex_;
  /// By source digest and architecture.
  std::map<std::pair<Digest, std::string>, KernelPointer> kernels_;
  std::unique_ptr<const Compiler> compiler_;
  std::string nvrtcVersion_;
};

} // namespace lathe
