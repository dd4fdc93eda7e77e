//===- runtime/cache/KernelRecord.h - What the cache knows of a kernel ------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Digest.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/JSON.h"

#include <optional>
#include <string>
#include <vector>

namespace lathe {

/// The `.json` beside a cached cubin. As JSON it also has a digest of itself, so that a change anywhere is noticed.
struct KernelRecord {
  Digest kernelDigest;
  Digest sourceDigest;
  /// `logits`, `row_map`, ...
  std::string kind;
  std::string entry;
  std::string arch;
  std::vector<std::string> compileOptions;
  std::string nvrtcVersion;
  uint64_t cubinBytes = 0;
  Digest cubinDigest;
  /// Of the text of the .cu.
  Digest textDigest;
  int64_t threads = 0;
  int64_t dynamicSharedBytes = 0;
  int64_t staticSharedBytes = 0;
  int64_t registers = 0;
  int64_t localBytes = 0;
  double compileMilliseconds = 0;
  /// The kernel's config, for products.
  std::optional<llvm::json::Value> config = std::nullopt;
  /// UTC, ISO 8601.
  std::string created;
  std::string latheVersion;

  llvm::json::Value toJson() const;
  /// Reads what `toJson` wrote; ErrorCode::Corrupt names the field that is missing or wrong.
  static llvm::Expected<KernelRecord> parse(llvm::StringRef json);

  friend bool operator==(const KernelRecord&, const KernelRecord&) = default;
};

/// The key of a kernel: SHA-256 over everything that decides the cubin's bytes, so that nothing stale is ever loaded.
Digest kernelDigest(const Digest& source, llvm::ArrayRef<std::string> options, llvm::StringRef nvrtcVersion,
                    llvm::StringRef arch);

/// Now, as `KernelRecord::created` has it.
std::string utcNow();

} // namespace lathe
