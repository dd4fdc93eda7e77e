//===- tests/unit/kernel_record_test.cpp - Records of kernels -------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tests/support/CacheSamples.h"

#include "llvm/ADT/StringExtras.h"

#include <limits>

using namespace lathe;
using namespace lathe::test;
using Catch::Contains;

namespace {

std::string textOf(const llvm::json::Value& value) {
  return llvm::formatv("{0:2}\n", value).str();
}

/// The JSON of a sample record, as an object that can be changed.
llvm::json::Object sampleObject() {
  const llvm::json::Value json = sampleKernel("k").record.toJson();
  return *json.getAsObject();
}

} // namespace

TEST_CASE("A record that was written is read back the same") {
  KernelRecord record = sampleKernel("k").record;
  record.dynamicSharedBytes = 232448;
  record.staticSharedBytes = 1024;
  record.localBytes = std::numeric_limits<int64_t>::max();
  record.compileMilliseconds = 0.1 + 0.2;
  CHECK(require(KernelRecord::parse(textOf(record.toJson()))) == record);

  record.config = std::nullopt;
  record.compileOptions.clear();
  record.kind = "";
  record.entry = "quote \" backslash \\ newline \n \xc3\xa9";
  CHECK(require(KernelRecord::parse(textOf(record.toJson()))) == record);
}

TEST_CASE("Every field but the config is required, and the error names the one that is missing") {
  for (const auto& field : sampleObject()) {
    const std::string name = llvm::StringRef(field.first).str();
    if (name == "config") continue;
    INFO(name);
    llvm::json::Object object = sampleObject();
    object.erase(name);
    const ErrorSummary summary = requireError(KernelRecord::parse(textOf(std::move(object))));
    CHECK(summary.code == ErrorCode::Corrupt);
    CHECK_THAT(summary.message, Contains(name));
  }
}

TEST_CASE("A field of a wrong type or range is refused by name") {
  struct Wrong {
    const char* name;
    llvm::json::Value value;
  };
  const Wrong wrongs[] = {
      {"kind", 1},
      {"entry", nullptr},
      {"arch", llvm::json::Array()},
      {"threads", "256"},
      {"threads", -1},
      {"registers", 1.5},
      {"cubin_bytes", 0},
      {"cubin_bytes", -1},
      {"kernel_digest", "sha256:12"},
      {"source_digest", std::string(64, 'g')},
      {"cubin_digest", 5},
      {"text_digest", ""},
      {"compile_options", "--std=c++20"},
      {"compile_options", llvm::json::Array{"--std=c++20", 1}},
  };
  for (const Wrong& wrong : wrongs) {
    INFO(wrong.name << " = " << textOf(wrong.value));
    llvm::json::Object object = sampleObject();
    object[wrong.name] = wrong.value;
    const ErrorSummary summary = requireError(KernelRecord::parse(textOf(std::move(object))));
    CHECK(summary.code == ErrorCode::Corrupt);
    CHECK_THAT(summary.message, Contains(wrong.name));
  }
}

TEST_CASE("Text that is no record is refused, however deep or long it is") {
  const std::string texts[] = {
      "",
      " ",
      "null",
      "[]",
      "{}",
      "{",
      "\"text\"",
      std::string("\0", 1),
      "\xff\xfe",
      std::string(1 << 20, '['),
      "{\"a\":" + std::string(1 << 20, '{'),
  };
  for (const std::string& text : texts) {
    INFO(text.substr(0, 20));
    CHECK(requireError(KernelRecord::parse(text)).code == ErrorCode::Corrupt);
  }
}

TEST_CASE("A record that is cut short anywhere is refused") {
  const std::string text = llvm::StringRef(textOf(sampleKernel("k").record.toJson())).rtrim().str();
  for (size_t length = 0; length < text.size(); ++length)
    CHECK(requireError(KernelRecord::parse(llvm::StringRef(text).take_front(length))).code == ErrorCode::Corrupt);
}

TEST_CASE("A record with any one bit changed is refused, or says the same") {
  const KernelRecord record = sampleKernel("k").record;
  const std::string text = textOf(record.toJson());
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string changed = text;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    llvm::Expected<KernelRecord> read = KernelRecord::parse(changed);
    if (read && *read == record) continue;
    INFO("bit " << bit << " of: " << changed.substr(bit / 8 < 20 ? 0 : bit / 8 - 20, 40));
    CHECK(requireError(std::move(read)).code == ErrorCode::Corrupt);
  }
}

TEST_CASE("The time of creation is UTC in ISO 8601") {
  const std::string now = utcNow();
  REQUIRE(now.size() == 20);
  for (size_t i = 0; i < now.size(); ++i) {
    INFO(now << " at " << i);
    const char expected = "0000-00-00T00:00:00Z"[i];
    CHECK((expected == '0' ? llvm::isDigit(now[i]) : now[i] == expected));
  }
}
