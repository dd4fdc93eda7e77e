//===- cli/WorkloadOptions.h - A workload from the command line ------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Error.h"
#include "lathe/workload.h"

#include <CLI/CLI.hpp>

#include <optional>
#include <string>
#include <vector>

namespace lathe::cli {

/// What to compute, at which size, with which scalars.
struct WorkloadInput {
  Workload workload;
  Shape shape;
  Scalars scalars;
};

/// The options that describe a workload: a file, a model or a case to begin with, and flags that change single fields.
class WorkloadOptions {
public:
  /// Adds the options to `verb`, which keeps pointers into this object.
  void addTo(CLI::App& verb);
  /// What the options describe, checked as a whole.
  llvm::Expected<WorkloadInput> resolve() const;
  /// The first option of the workload or the scalars that was given, such as `--hidden`; empty when none was.
  std::string firstGiven() const;

private:
  void addSources(CLI::App& verb);
  void addFields(CLI::App& verb);
  void addScalars(CLI::App& verb);

  /// The workload that the file, model or case describes; without one an empty bf16 workload.
  llvm::Expected<WorkloadInput> base() const;
  llvm::Error applyFields(Workload& workload) const;
  llvm::Error applyTypes(Workload& workload) const;
  llvm::Error applyGradients(Workload& workload) const;
  void applyScalars(const Workload& workload, Scalars& scalars) const;
  bool hasBase() const { return workloadFile_ || model_ || caseFile_; }

  std::vector<CLI::Option*> options_;
  std::optional<std::string> workloadFile_, model_, caseFile_;
  std::optional<int64_t> sequences_, tokens_, hidden_, vocab_;
  std::optional<std::string> dtype_, precision_, gradWeightDType_;
  std::optional<std::string> gradients_;
  bool bias_ = false, softcap_ = false, logitScale_ = false, noNll_ = false, noLogitMeans_ = false;
  std::optional<double> beta_, gamma_, alpha_, labelSmoothing_, softcapValue_, logitScaleValue_;
  std::optional<int64_t> ignoreIndex_;
};

} // namespace lathe::cli
