//===- tuning/WorkloadList.cpp - What to tune, as a list --------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tuning/WorkloadList.h"

#include "generator/CanonicalJson.h"
#include "generator/Workload.h"
#include "runtime/cache/TuningDocument.h"

#include "llvm/ADT/STLExtras.h"

using namespace lathe;

namespace {

/// More would be a slip of the pen.
constexpr size_t kMostItems = 100000;

llvm::Error bad(size_t entry, const llvm::Twine& what) {
  return makeError(ErrorCode::InvalidWorkload, "workload list, entry {0}: {1}", entry, what.str());
}

/// A number or an array of numbers.
llvm::Expected<std::vector<int64_t>> sizesOf(const llvm::json::Object& object, llvm::StringRef name, size_t entry) {
  const llvm::json::Value* json = object.get(name);
  if (!json) return bad(entry, name + " is missing; give a number or a list of numbers");
  std::vector<int64_t> sizes;
  if (const auto one = json->getAsInteger()) sizes.push_back(*one);
  if (const llvm::json::Array* array = json->getAsArray())
    for (const llvm::json::Value& element : *array) {
      const auto size = element.getAsInteger();
      if (!size) return bad(entry, name + " has an element that is no integer");
      sizes.push_back(*size);
    }
  if (sizes.empty()) return bad(entry, name + " must be a number or a list of numbers");
  return sizes;
}

llvm::Error checkFields(const llvm::json::Object& object, size_t entry) {
  for (const auto& [key, value] : object)
    if (!llvm::is_contained({"model", "workload", "sequences", "tokens"}, llvm::StringRef(key)))
      return bad(entry, "unknown field \"" + llvm::StringRef(key) + "\"; known are model, workload, sequences, tokens");
  if (object.get("model") && object.get("workload")) return bad(entry, "it has a model and a workload; leave one out");
  return llvm::Error::success();
}

llvm::Expected<WorkItem> workloadOf(const llvm::json::Object& object, size_t entry, FindModel findModel) {
  if (llvm::Error error = checkFields(object, entry)) return error;
  WorkItem item;
  if (const auto name = object.getString("model")) {
    llvm::Expected<Workload> workload = findModel(*name);
    if (!workload) return bad(entry, takeSummary(workload.takeError()).message);
    item.name = name->str();
    item.workload = *workload;
    return item;
  }
  const llvm::json::Value* json = object.get("workload");
  if (!json) return bad(entry, "it has neither a model (a name) nor a workload (an object)");
  llvm::Expected<Workload> workload = workloadFromJson(*json);
  if (!workload) return bad(entry, takeSummary(workload.takeError()).message);
  item.workload = *workload;
  item.name = workloadDigest(*workload).hex().substr(0, 12);
  return item;
}

} // namespace

llvm::Expected<std::vector<WorkItem>> lathe::parseWorkloadList(llvm::StringRef json, FindModel findModel) {
  llvm::Expected<llvm::json::Value> value = parseJson(json);
  if (!value) return value.takeError();
  const llvm::json::Array* list = value->getAsArray();
  if (!list || list->empty())
    return makeError(ErrorCode::InvalidWorkload, "a workload list must be a JSON array with at least one entry");
  std::vector<WorkItem> items;
  for (size_t entry = 0; entry < list->size(); ++entry) {
    const llvm::json::Object* object = (*list)[entry].getAsObject();
    if (!object) return bad(entry, "it is no object");
    llvm::Expected<WorkItem> item = workloadOf(*object, entry, findModel);
    if (!item) return item.takeError();
    llvm::Expected<std::vector<int64_t>> sequences = sizesOf(*object, "sequences", entry);
    if (!sequences) return sequences.takeError();
    llvm::Expected<std::vector<int64_t>> tokens = sizesOf(*object, "tokens", entry);
    if (!tokens) return tokens.takeError();
    for (const int64_t sequenceCount : *sequences)
      for (const int64_t tokenCount : *tokens) {
        item->shape = {sequenceCount, tokenCount};
        if (llvm::Error error = validate(item->workload, item->shape))
          return bad(entry, takeSummary(std::move(error)).message);
        if (items.size() >= kMostItems) return bad(entry, "the list has too many sizes");
        items.push_back(*item);
      }
  }
  return items;
}

std::vector<WorkItem> lathe::onePerBucket(const std::vector<WorkItem>& items) {
  std::vector<WorkItem> kept;
  for (const WorkItem& item : items) {
    const auto same = llvm::find_if(kept, [&](const WorkItem& other) {
      return other.workload == item.workload && rowBucket(other.shape.rows()) == rowBucket(item.shape.rows());
    });
    if (same == kept.end())
      kept.push_back(item);
    else if (same->shape.rows() < item.shape.rows())
      *same = item;
  }
  return kept;
}

llvm::Expected<Shard> lathe::parseShard(llvm::StringRef text) {
  Shard shard;
  const auto [index, count] = text.split('/');
  if (index.getAsInteger(10, shard.index) || count.getAsInteger(10, shard.count) || shard.count < 1 ||
      shard.index < 0 || shard.index >= shard.count)
    return makeError(ErrorCode::InvalidArgument,
                     "the shard is \"{0}\"; it must be INDEX/COUNT with an index from 0 to COUNT - 1, such as 2/8",
                     text);
  return shard;
}

std::vector<WorkItem> lathe::itemsOf(const Shard& shard, const std::vector<WorkItem>& items) {
  std::vector<WorkItem> own;
  for (size_t i = 0; i < items.size(); ++i)
    if (static_cast<int64_t>(i) % shard.count == shard.index) own.push_back(items[i]);
  return own;
}
