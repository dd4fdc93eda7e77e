//===- tests/unit/workload_list_test.cpp - What to tune, as a list --------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tests/support/Failures.h"
#include "tuning/WorkloadList.h"

#include <set>

using namespace lathe;
using namespace lathe::test;
using Catch::Contains;

namespace {

llvm::Expected<Workload> findModel(llvm::StringRef name) {
  if (name == "small") return Workload{.hidden = 64, .vocab = 300};
  return makeError(ErrorCode::InvalidArgument, "\"{0}\" is not a model", name);
}

std::vector<WorkItem> parse(llvm::StringRef json) {
  return require(parseWorkloadList(json, findModel));
}

std::string messageOf(llvm::StringRef json) {
  return requireError(parseWorkloadList(json, findModel)).message;
}

} // namespace

TEST_CASE("sweeps are multiplied out in the order of the list") {
  const std::vector<WorkItem> items = parse(R"([
    {"model": "small", "sequences": [2, 4], "tokens": [8, 16]},
    {"workload": {"hidden": 32, "vocab": 100, "dtype": "fp32"}, "sequences": 2, "tokens": 4}])");
  REQUIRE(items.size() == 5);
  CHECK(items[0].name == "small");
  CHECK(items[0].shape == Shape{2, 8});
  CHECK(items[1].shape == Shape{2, 16});
  CHECK(items[2].shape == Shape{4, 8});
  CHECK(items[4].workload.hidden == 32);
  CHECK(items[4].name.size() == 12);
}

TEST_CASE("what is wrong with a list is named with its entry") {
  CHECK_THAT(messageOf("{}"), Contains("array"));
  CHECK_THAT(messageOf("[]"), Contains("at least one"));
  CHECK_THAT(messageOf("[1]"), Contains("entry 0") && Contains("no object"));
  CHECK_THAT(messageOf(R"([{"model": "large", "sequences": 2, "tokens": 2}])"), Contains("large"));
  CHECK_THAT(messageOf(R"([{"model": "small", "sequences": 3, "tokens": 2}])"),
             Contains("entry 0") && Contains("even"));
  CHECK_THAT(messageOf(R"([{"model": "small", "sequences": [2, "4"], "tokens": 2}])"), Contains("no integer"));
  CHECK_THAT(messageOf(R"([{"model": "small", "sequences": 2}])"), Contains("tokens is missing"));
  CHECK_THAT(messageOf(R"([{"model": "small", "sequences": [], "tokens": 2}])"), Contains("sequences"));
  CHECK_THAT(messageOf(R"([{"model": "small", "sequence": 2, "tokens": 2}])"), Contains("sequence\""));
  CHECK_THAT(messageOf(R"([{"sequences": 2, "tokens": 2}])"), Contains("neither"));
  CHECK_THAT(messageOf(std::string(500, '[')), Contains("deep"));
}

TEST_CASE("one size of each bucket is tuned, the largest") {
  const std::vector<WorkItem> items =
      onePerBucket(parse(R"([{"model": "small", "sequences": [2, 4, 6, 8], "tokens": 100}])"));
  REQUIRE(items.size() == 3);
  CHECK(items[0].shape.sequences == 2);
  CHECK(items[1].shape.sequences == 4);
  CHECK(items[2].shape.sequences == 8);
}

TEST_CASE("the shards of one count have every item once") {
  const std::vector<WorkItem> items =
      parse(R"([{"model": "small", "sequences": [2, 4, 6, 8, 10, 12, 14], "tokens": [1, 3]}])");
  for (int64_t count = 1; count <= 20; ++count) {
    std::multiset<std::pair<int64_t, int64_t>> seen;
    size_t least = items.size(), most = 0;
    for (int64_t index = 0; index < count; ++index) {
      const std::vector<WorkItem> own = itemsOf({index, count}, items);
      least = std::min(least, own.size());
      most = std::max(most, own.size());
      for (const WorkItem& item : own) seen.emplace(item.shape.sequences, item.shape.tokens);
    }
    CHECK(seen.size() == items.size());
    CHECK(std::set(seen.begin(), seen.end()).size() == items.size());
    CHECK(most - least <= 1);
  }
  CHECK(require(parseShard("2/8")).index == 2);
  for (const char* text : {"", "1", "8/8", "-1/8", "1/0", "a/b", "1/2/3", "/", "1/"})
    CHECK_THAT(requireError(parseShard(text)).message, Contains("INDEX/COUNT"));
}
