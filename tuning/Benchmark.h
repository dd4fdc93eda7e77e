//===- tuning/Benchmark.h - How fast plans are ------------------*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "tuning/DeviceMeasurer.h"
#include "tuning/Measure.h"
#include "tuning/WorkloadList.h"

namespace lathe {

/// What a call computes.
enum class BenchPass : uint8_t { Forward, Full };
llvm::StringRef toString(BenchPass pass);
llvm::Expected<BenchPass> parseBenchPass(llvm::StringRef name);

struct BenchOptions {
  std::vector<BenchPass> passes{BenchPass::Forward, BenchPass::Full};
  int rounds = 12;
  /// Runs of a visit; each round visits every contender.
  int repetitions = 3;
  double logitStd = 1;
  double maskedFraction = 0;
  uint64_t seed = 1;
  std::optional<int> device = std::nullopt;
};

/// One contender: a pass of a workload, as it is planned with or without tuning results.
struct BenchResult {
  WorkItem item;
  BenchPass pass = BenchPass::Full;
  /// `tuned`: the plan that callers get from a cache with a result; `default`: that of the cost model.
  bool tuned = false;
  bool stale = false;
  PlanChoices choices;
  Timing timing;
  /// FLOPs of the products, and bytes of the workspace.
  double flops = 0;
  int64_t workspaceBytes = 0;
  /// What its outputs were held against the reference with.
  std::vector<Comparison> checks;
  TuningSetting setting;
  std::string driverRelease;
  /// Visits while the device was slowed down by heat or its supply.
  int throttled = 0;
  std::vector<KernelPointer> kernels;
  std::string date;

  /// Largest error over its tolerance.
  double strain() const;
};

/// The workload that `pass` needs: without gradients for the loss alone.
Workload workloadFor(const Workload& workload, BenchPass pass);

/// Times `item`: per pass the plan that callers get, and that of the cost model where it is another. All contenders are
/// visited in turn, round by round. Outputs are checked before anything is timed; a wrong one is an error.
llvm::Expected<std::vector<BenchResult>> benchmark(Runtime::Implementation& runtime, const WorkItem& item,
                                                   const BenchOptions& options);

llvm::json::Value toJson(const BenchResult& result);
/// A header and a line for each result.
std::string toCsv(const std::vector<BenchResult>& results);
/// Times over rows, a line for every workload, pass and kind of plan.
std::string benchSvg(const std::vector<BenchResult>& results);

} // namespace lathe
