#include "generator/CanonicalJson.h"
#include "generator/Digest.h"
#include "tests/support/Failures.h"

#include <catch2/catch.hpp>

#include <cmath>

using namespace lathe;
using lathe::test::require;

namespace {
std::string canonical(llvm::StringRef json) {
  return require(canonicalJson(require(llvm::json::parse(json))));
}
} // namespace

TEST_CASE("Numbers print as ECMAScript prints them") {
  const std::pair<const char*, const char*> cases[] = {
      {"0", "0"},
      {"-0.0", "0"},
      {"1e21", "1e+21"},
      {"1e20", "100000000000000000000"},
      {"123456.75", "123456.75"},
      {"0.000001", "0.000001"},
      {"0.0000001", "1e-7"},
      {"4.5e-300", "4.5e-300"},
      {"333333333.33333329", "333333333.3333333"},
      {"1.7976931348623157e308", "1.7976931348623157e+308"},
      {"5e-324", "5e-324"},
      {"-1.5", "-1.5"},
      {"9007199254740992", "9007199254740992"},
  };
  for (const auto& [json, want] : cases) {
    INFO(json);
    CHECK(canonical(json) == want);
  }
  CHECK_FALSE(llvm::toString(canonicalJson(llvm::json::Value(int64_t(9007199254740993))).takeError()).empty());
}

TEST_CASE("Strings are escaped as little as possible") {
  CHECK(canonical(R"("\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/")") == "\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"");
}

TEST_CASE("Keys are sorted by UTF-16 code units") {
  // The smiley is a surrogate pair, which sorts before U+FB33.
  CHECK(canonical("{\"\\u20ac\":1,\"\\r\":2,\"\\ufb33\":3,\"1\":4,\"\\ud83d\\ude00\":5,\"\\u0080\":6,\"\\u00f6\":7}") ==
        "{\"\\r\":2,\"1\":4,\"\xc2\x80\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\xef\xac\xb3\":3}");
  CHECK(canonical(R"({"b":[true,null,{"z":1,"a":[]}],"a":""})") == R"({"a":"","b":[true,null,{"a":[],"z":1}]})");
}

TEST_CASE("What JSON cannot hold is an error") {
  const auto errorOf = [](const llvm::json::Value& value) {
    return lathe::test::requireError(canonicalJson(value)).message;
  };
  CHECK(llvm::StringRef(errorOf(HUGE_VAL)).contains_insensitive("inf"));
  CHECK(llvm::StringRef(errorOf(std::nan(""))).contains("nan"));
  CHECK(llvm::StringRef(errorOf(llvm::json::Array{INT64_MIN})).contains("-9223372036854775808"));
  CHECK(canonical("[-9007199254740992]") == "[-9007199254740992]");
}

TEST_CASE("JSON is read up to a depth, brackets in strings not counted") {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  CHECK(canonical(nested(kDeepestJson)) == nested(kDeepestJson));
  require(parseJson(nested(kDeepestJson)));
  CHECK(llvm::StringRef(lathe::test::requireError(parseJson(nested(kDeepestJson + 1))).message).contains("byte 64"));
  const std::string text = "[\"" + std::string(100, '[') + "\\\"" + std::string(100, '{') + "\",{}]";
  CHECK(require(parseJson(text)).getAsArray()->size() == 2);
  // Siblings do not add up.
  std::string wide = "[[]";
  for (int i = 0; i < 1000; ++i) wide += ",[{}]";
  CHECK(require(parseJson(wide + "]")).getAsArray()->size() == 1001);
}

TEST_CASE("Digests print, parse and compare") {
  const Digest empty = Digest::of("");
  CHECK(empty.text() == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(require(Digest::parse(empty.text())) == empty);
  CHECK(require(Digest::parse(empty.hex())) == empty);
  for (const char* wrong :
       {"", "sha256:", "sha256:zz", "SHA256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855"}) {
    llvm::Expected<Digest> digest = Digest::parse(wrong);
    REQUIRE_FALSE(static_cast<bool>(digest));
    CHECK(llvm::StringRef(llvm::toString(digest.takeError())).contains("64 lower-case"));
  }
}
