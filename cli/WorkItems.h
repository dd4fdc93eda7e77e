//===- cli/WorkItems.h - Workloads to go through ---------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "cli/WorkloadOptions.h"
#include "tuning/WorkloadList.h"

namespace lathe::cli {

/// The items of the list in the file `list`, or where that is empty the one that `options` describe.
llvm::Expected<std::vector<WorkItem>> workItems(const std::string& list, const WorkloadOptions& options);

/// The text of the file `path`, or of standard input where that is `-`. `what` is for the message: `the workload list`.
llvm::Expected<std::string> readText(const char* what, const std::string& path);

} // namespace lathe::cli
