//===- tuning/WorkerProtocol.h - What a tuner and its worker say -----------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// A worker is a process of its own that measures candidates, so that one that hangs or faults takes nothing else with
/// it. It is asked over a pipe and answers over another, a line of JSON each:
///
///     {"op": "open", "workload": {...}, ..., "choices": {...}}   {"setting": {...}, "driver_release": "..."}
///     {"op": "visit", "subject": "logits", "choices": {...}, ...}   {"times_ms": [...], ...}
///
/// An answer `{"error": "...", "code": n}` means that the worker can do no more, and ends.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "tuning/DeviceMeasurer.h"

namespace lathe {

/// The longest line that is read.
inline constexpr size_t kLongestLine = size_t(1) << 22;

struct WorkerOpen {
  WorkingSet set;
  PlanChoices first;
};

/// What a worker that is ready says of its device.
struct WorkerReady {
  TuningSetting setting;
  std::string driverRelease;
};

llvm::json::Value toJson(const WorkerOpen& open);
llvm::Expected<WorkerOpen> parseWorkerOpen(const llvm::json::Value& json);
llvm::json::Value toJson(const WorkerReady& ready);
llvm::Expected<WorkerReady> parseWorkerReady(const llvm::json::Value& json);
llvm::json::Value toJson(const VisitRequest& request);
llvm::Expected<VisitRequest> parseVisitRequest(const llvm::json::Value& json);
llvm::json::Value toJson(const Visit& visit);
llvm::Expected<Visit> parseVisit(const llvm::json::Value& json);

} // namespace lathe
