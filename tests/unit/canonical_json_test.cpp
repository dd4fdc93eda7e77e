#include "generator/CanonicalJson.h"
#include "tests/support/Failures.h"

#include <catch2/catch.hpp>

#include <bit>
#include <charconv>
#include <cmath>
#include <random>

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
}

TEST_CASE("Doubles print as the examples of RFC 8785, appendix B") {
  const std::pair<uint64_t, const char*> cases[] = {
      {0x0000000000000000, "0"},
      {0x8000000000000000, "0"},
      {0x0000000000000001, "5e-324"},
      {0x8000000000000001, "-5e-324"},
      {0x7fefffffffffffff, "1.7976931348623157e+308"},
      {0xffefffffffffffff, "-1.7976931348623157e+308"},
      {0x4340000000000000, "9007199254740992"},
      {0xc340000000000000, "-9007199254740992"},
      {0x4430000000000000, "295147905179352830000"},
      {0x44b52d02c7e14af5, "9.999999999999997e+22"},
      {0x44b52d02c7e14af6, "1e+23"},
      {0x44b52d02c7e14af7, "1.0000000000000001e+23"},
      {0x444b1ae4d6e2ef4e, "999999999999999700000"},
      {0x444b1ae4d6e2ef4f, "999999999999999900000"},
      {0x444b1ae4d6e2ef50, "1e+21"},
      {0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"},
      {0x3eb0c6f7a0b5ed8d, "0.000001"},
      {0x41b3de4355555553, "333333333.3333332"},
      {0x41b3de4355555554, "333333333.33333325"},
      {0x41b3de4355555555, "333333333.3333333"},
      {0x41b3de4355555556, "333333333.3333334"},
      {0x41b3de4355555557, "333333333.33333343"},
      {0xbecbf647612f3696, "-0.0000033333333333333333"},
      {0x43143ff3c1cb0959, "1424953923781206.2"},
  };
  for (const auto& [bits, want] : cases) CHECK(require(canonicalJson(std::bit_cast<double>(bits))) == want);
}

TEST_CASE("Integers beyond 2^53 print as the double that holds them, or are refused") {
  CHECK(canonical("9007199254740994") == "9007199254740994");
  CHECK(canonical("1e17") == "100000000000000000");
  CHECK(canonical("-1e18") == "-1000000000000000000");
  // Shortest digits, then zeros: 2^60, 2^63 and -2^63.
  CHECK(canonical("1152921504606846976") == "1152921504606847000");
  CHECK(canonical("9223372036854775808") == "9223372036854776000");
  CHECK(require(canonicalJson(INT64_MIN)) == "-9223372036854776000");
  for (const char* inexact : {"9007199254740993", "-9007199254740993", "9223372036854775807", "-9223372036854775807",
                              "9223372036854775809", "18446744073709551615"}) {
    const llvm::json::Value value = require(llvm::json::parse(inexact));
    CHECK_THAT(lathe::test::requireError(canonicalJson(value)).message,
               Catch::Contains(inexact) && Catch::Contains("double"));
  }
}

TEST_CASE("A printed double reads back as itself, and its text prints as itself") {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    const double number = std::bit_cast<double>(random());
    if (!std::isfinite(number)) continue;
    const std::string text = require(canonicalJson(number));
    double read = 0;
    std::from_chars(text.data(), text.data() + text.size(), read);
    INFO(text);
    CHECK(read == number);
    // Text of digits alone is an integer, which must then be exact.
    if (std::fabs(number) < 0x1p53 || std::fabs(number) > 0x1p70) CHECK(canonical(text) == text);
  }
}

TEST_CASE("Strings are escaped as little as possible") {
  CHECK(canonical(R"("\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/")") == "\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"");
  // Two-letter escapes where there are any, \u00xx for the other control characters, nothing else.
  CHECK(canonical(R"("\u0008\u0009\u000a\u000c\u000d\u0000\u001f\u0020\u007f")") == R"("\b\t\n\f\r\u0000\u001f )"
                                                                                    "\x7f\"");
  CHECK(canonical("\"\xe2\x80\xa8<&>\"") == "\"\xe2\x80\xa8<&>\"");
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
  // Wherever it stands.
  CHECK(llvm::StringRef(errorOf(llvm::json::Array{-HUGE_VAL})).contains_insensitive("-inf"));
  CHECK(llvm::StringRef(errorOf(llvm::json::Object{{"a", llvm::json::Array{HUGE_VAL}}})).contains_insensitive("inf"));
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
