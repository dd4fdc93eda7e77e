//===- runtime/cache/TuningFile.h - Tuning results on disk ------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/cache/TuningDocument.h"

namespace lathe {

inline constexpr llvm::StringLiteral kTuningFile = "plan.json";
inline constexpr llvm::StringLiteral kTuningJournal = "plan.jsonl";

/// The `plan.json` of one folder of the cache, and beside it the journal `plan.jsonl`: what was measured since
/// `plan.json` was last written, one line a measurement. A measurement is in the journal before the next one begins, so
/// a process that is killed loses at most the one in progress. Any number of processes may append and fold at the same
/// time: writers hold a lock on the journal.
class TuningFile {
public:
  explicit TuningFile(std::string folder) : folder_(std::move(folder)) {}

  /// Both files joined; empty when there are none. Broken lines of the journal are left out; ErrorCode::Corrupt when
  /// `plan.json` is something else.
  llvm::Expected<TuningDocument> read() const;
  /// `plan.json` alone: all that is needed to find a tuned plan.
  llvm::Expected<TuningDocument> readFolded() const;

  /// Adds a line to the journal.
  llvm::Error append(const TuningMeasurement& measurement) const;

  /// Joins the journal and `more` into `plan.json`, and empties the journal. A `plan.json` that cannot be read is set
  /// aside.
  llvm::Error fold(const TuningDocument& more) const;

private:
  std::string path(llvm::StringRef name) const;
  /// Appends the journal's lines to `document`.
  void readJournal(TuningDocument& document) const;

  std::string folder_;
};

} // namespace lathe
