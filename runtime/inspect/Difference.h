//===- runtime/inspect/Difference.h - Comparing two kernels -----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "lathe/inspect.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/JSON.h"

namespace lathe {

/// A kernel, and the step that it computes where that is known (else null).
struct ComparedKernel {
  const KernelInspection& kernel;
  const StepInspection* step = nullptr;
};

/// Every figure of both kernels, and the differences of their units.
KernelComparison compareKernels(const ComparedKernel& first, const ComparedKernel& second);

/// The lines of two texts, common ones once. Texts of very many lines are taken as wholly different in their middle.
std::vector<ComparedLine> compareLines(llvm::StringRef first, llvm::StringRef second);

llvm::json::Value toJson(const KernelComparison& comparison);

} // namespace lathe
