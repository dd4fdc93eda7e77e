//===- cli/PlanFlags.h - How a plan is made, from the command line ---------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/CostModel.h"

#include <CLI/CLI.hpp>

namespace lathe::cli {

/// The options that steer a plan.
class PlanFlags {
public:
  /// Adds the options to `verb`, which keeps pointers into this object.
  void addTo(CLI::App& verb);
  /// `target` and `rows` matter where a family was asked for.
  llvm::Expected<PlanRequest> resolve(const Workload& workload, const Target& target, int64_t rows) const;
  /// The first option that was given; empty when none was.
  std::string firstGiven() const;

private:
  std::vector<CLI::Option*> options_;
  std::optional<std::string> workspaceLimit_, strategy_, family_;
  std::optional<int64_t> chunkPairs_;
};

} // namespace lathe::cli
