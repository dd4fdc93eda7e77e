#include "generator/Digest.h"
#include "tests/support/Failures.h"

#include <catch2/catch.hpp>

#include <set>

using namespace lathe;
using lathe::test::require;
using lathe::test::requireError;

namespace {
constexpr const char* kOfAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
}

TEST_CASE("Digests are those of the SHA-256 standard") {
  const std::pair<std::string, const char*> cases[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", kOfAbc},
      // Two blocks: the padding of 56 bytes does not fit the first.
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {std::string(1000000, 'a'), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
  };
  for (const auto& [bytes, hex] : cases) CHECK(Digest::of(bytes).hex() == hex);
}

TEST_CASE("Every byte counts, zero bytes too") {
  CHECK(Digest::of(llvm::StringRef("\0", 1)).hex() ==
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d");
  CHECK(Digest::of(llvm::StringRef("a\0b", 3)) != Digest::of("a"));
}

TEST_CASE("A digest prints, and is read with or without its prefix") {
  const Digest digest = Digest::of("abc");
  CHECK(digest.text() == std::string("sha256:") + kOfAbc);
  CHECK(digest.bytes()[0] == 0xba);
  CHECK(digest.bytes()[31] == 0xad);
  CHECK(require(Digest::parse(digest.text())) == digest);
  CHECK(require(Digest::parse(digest.hex())) == digest);
  CHECK(Digest().hex() == std::string(64, '0'));
}

TEST_CASE("Digests are ordered as their text is") {
  std::set<Digest> digests;
  std::set<std::string> texts;
  for (const char* bytes : {"a", "b", "c", "d", "e", "a"}) {
    digests.insert(Digest::of(bytes));
    texts.insert(Digest::of(bytes).text());
  }
  REQUIRE(digests.size() == 5);
  auto text = texts.begin();
  for (const Digest& digest : digests) CHECK(digest.text() == *text++);
}

TEST_CASE("Text that is not a digest is shown and refused") {
  const std::string good = kOfAbc;
  const std::string cases[] = {"",
                               "sha256:",
                               "sha256:zz",
                               "SHA256:" + good,
                               "sha256:sha256:" + good,
                               "sha512:" + good,
                               llvm::StringRef(good).upper(),
                               good.substr(1),
                               good + "0",
                               good + "\n",
                               " " + good,
                               good.substr(0, 63) + "g"};
  for (const std::string& wrong : cases) {
    const ErrorSummary error = requireError(Digest::parse(wrong));
    CHECK(error.code == ErrorCode::InvalidArgument);
    CHECK_THAT(error.message, Catch::Contains("\"" + wrong + "\"") && Catch::Contains("64 lower-case"));
  }
}
