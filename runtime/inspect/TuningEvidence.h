//===- runtime/inspect/TuningEvidence.h - What tuning left in a cache -------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "lathe/inspect.h"

#include "llvm/ADT/StringRef.h"

#include <map>

namespace lathe {

/// Tuned plans, and the best median of every config that was measured for a product, by step and config in words.
struct TuningEvidence {
  std::vector<TuningRecord> plans;
  std::map<std::pair<std::string, std::string>, double> measured;
};

/// Reads the text of a `plan.json` (docs/cache.md). Text from anywhere is safe to read; records that are not as they
/// must be are left out.
TuningEvidence readTuningEvidence(llvm::StringRef json);

} // namespace lathe
