//===- cli/CaseRun.cpp - A case on whichever device ------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/CaseRun.h"

#include "cli/Text.h"

#include <unistd.h>

using namespace lathe;
using namespace lathe::cli;

llvm::Expected<PlanRequest> lathe::cli::requestFor(const PlanFlags& flags, const Case& value, const GpuInfo& gpu) {
  return flags.resolve(value.workload, gpu.target, value.shape.rows());
}

llvm::Error lathe::cli::checkHostMemory(const Workload& workload, const Shape& shape) {
  // Input and weight in their type, once more in double, and their gradients in double; the rest is small.
  const double elements = (double(shape.rows()) + double(workload.vocab)) * double(workload.hidden);
  const double needed = elements * (double(sizeOf(workload.dtype)) + 8 + (workload.anyGradient() ? 8 : 0));
  const double memory = double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE));
  if (needed <= memory) return llvm::Error::success();
  return makeError(ErrorCode::InvalidArgument,
                   "the case needs about {0} of host memory, this machine has {1}; make it smaller", bytesText(needed),
                   bytesText(memory));
}
