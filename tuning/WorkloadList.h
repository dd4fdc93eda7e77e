//===- tuning/WorkloadList.h - What to tune, as a list ----------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// A list of workloads with sweeps over their sizes, as `lathe tune` and `lathe bench` read it from a file:
///
/// \code{.json}
/// [{"model": "llama-3-8b", "sequences": [2, 4, 8], "tokens": [1024, 2048]},
///  {"workload": {"hidden": 4096, "vocab": 32000, "dtype": "bf16"}, "sequences": 4, "tokens": 1024}]
/// \endcode
///
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Error.h"
#include "lathe/workload.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"

#include <string>
#include <vector>

namespace lathe {

/// A workload at one size.
struct WorkItem {
  /// The model's name, or the digest's first digits.
  std::string name;
  Workload workload;
  Shape shape;
};

using FindModel = llvm::function_ref<llvm::Expected<Workload>(llvm::StringRef)>;

/// Every item of the list, sweeps multiplied out, in the order of the text. The error names the entry and the field.
llvm::Expected<std::vector<WorkItem>> parseWorkloadList(llvm::StringRef json, FindModel findModel);

/// One item for each workload and bucket of rows, that with the most rows: tuning serves a whole bucket.
std::vector<WorkItem> onePerBucket(const std::vector<WorkItem>& items);

/// Part `index` of `count`, counted from 0.
struct Shard {
  int64_t index = 0;
  int64_t count = 1;
};
/// Reads `2/8`.
llvm::Expected<Shard> parseShard(llvm::StringRef text);
/// The items that `shard` has to do; the shards of one count together have each item once.
std::vector<WorkItem> itemsOf(const Shard& shard, const std::vector<WorkItem>& items);

} // namespace lathe
