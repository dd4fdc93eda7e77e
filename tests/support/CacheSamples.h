//===- tests/support/CacheSamples.h - Kernels to keep ----------*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/cache/Cache.h"
#include "tests/support/Failures.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

namespace lathe::test {

/// A kernel with a consistent record; `name` decides its digests. The cache never looks into cubins, so `cubin` may be
/// any bytes.
inline CachedKernel sampleKernel(llvm::StringRef name,
                                 llvm::StringRef cubin = llvm::StringRef("cubin bytes \0 with a zero", 25)) {
  CachedKernel kernel;
  kernel.cubin = cubin.str();
  kernel.source = ("// unit of " + name + "\n").str();
  KernelRecord& record = kernel.record;
  record.sourceDigest = Digest::of(name);
  record.kind = "logits";
  record.entry = "lathe_" + name.str();
  record.arch = "sm_90a";
  record.compileOptions = {"--gpu-architecture=sm_90a", "--std=c++20"};
  record.nvrtcVersion = "13.0";
  record.kernelDigest = kernelDigest(record.sourceDigest, record.compileOptions, record.nvrtcVersion, record.arch);
  record.cubinBytes = kernel.cubin.size();
  record.cubinDigest = Digest::of(kernel.cubin);
  record.textDigest = Digest::of(kernel.source);
  record.threads = 256;
  record.registers = 168;
  record.config = llvm::json::Object{{"block_m", 128}};
  record.created = "2026-01-02T03:04:05Z";
  record.latheVersion = "0.1.0";
  return kernel;
}

inline Digest sampleWorkload() {
  return Digest::of("a workload");
}
inline KernelKey keyOf(const CachedKernel& kernel) {
  return {sampleWorkload(), kernel.record.arch, kernel.record.kernelDigest};
}

/// The path of a file of `kernel`, for example with `.json`, in the cache `root`.
inline std::string fileOf(llvm::StringRef root, const CachedKernel& kernel, llvm::StringRef extension) {
  return (llvm::Twine(entryFolder(root, sampleWorkload(), kernel.record.arch)) + "/" +
          kernel.record.kernelDigest.hex() + extension)
      .str();
}

/// Stores `kernel` in the cache `root`.
inline void keep(llvm::StringRef root, const CachedKernel& kernel) {
  require(Cache(root.str(), {}, [](llvm::StringRef) {}).store(keyOf(kernel), kernel));
}

inline std::string readAll(llvm::StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!buffer) FAIL(path.str() << ": " << buffer.getError().message());
  return (*buffer)->getBuffer().str();
}
inline void writeAll(llvm::StringRef path, llvm::StringRef bytes) {
  std::error_code error;
  llvm::raw_fd_ostream file(path, error);
  if (error) FAIL(path.str() << ": " << error.message());
  file << bytes;
}

/// The names in `folder`, sorted.
inline std::vector<std::string> namesIn(llvm::StringRef folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (llvm::sys::fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    names.push_back(llvm::sys::path::filename(it->path()).str());
  llvm::sort(names);
  return names;
}

} // namespace lathe::test
