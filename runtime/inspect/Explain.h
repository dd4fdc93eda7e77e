//===- runtime/inspect/Explain.h - Where a cubin comes from -----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Error.h"
#include "generator/Target.h"
#include "lathe/inspect.h"
#include "runtime/cache/Environment.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/JSON.h"

namespace lathe {

/// The largest file that is taken for a cubin, in bytes.
inline constexpr uint64_t kMostCubinBytes = uint64_t(1) << 30;

/// Explains `what`: a cubin's file, or the first digits of a kernel digest (with or without `sha256:`), looked for in
/// the caches at `roots`, in their order. A file that is in no cache is explained from itself and the record beside it;
/// a record that is for other bytes does not count. Errors: ErrorCode::InvalidArgument where there is neither such a
/// file nor such a kernel, ErrorCode::Corrupt where the file is no cubin.
llvm::Expected<KernelExplanation> explainKernel(llvm::StringRef what, llvm::ArrayRef<std::string> roots);

/// The caches that `environment` names: its own, then the read-only layers.
std::vector<std::string> cacheRoots(const Environment& environment);

/// The target that a cubin's architecture names. One that Lathe does not know has no limits: only its name is right.
Target targetOfCubin(int sm, bool archSpecific);

llvm::json::Value toJson(const KernelExplanation& explanation);

} // namespace lathe
