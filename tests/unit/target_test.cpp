#include "generator/Target.h"
#include "tests/support/Failures.h"

#include <catch2/catch.hpp>

#include <set>

using namespace lathe;
using lathe::test::require;
using lathe::test::requireError;

TEST_CASE("Every known target is found by its name, with and without sm_") {
  std::set<std::string> names;
  for (const Target& target : knownTargets()) {
    INFO(target.arch());
    CHECK(require(parseTarget(target.arch())) == target);
    CHECK(require(parseTarget(target.arch().substr(3))) == target);
    CHECK(names.insert(target.arch()).second);
  }
  // Turing to Blackwell; the features of sm_90a and later are a target of their own.
  for (const char* arch :
       {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_103a", "sm_120", "sm_120a"})
    CHECK(names.count(arch) == 1);
}

TEST_CASE("The figures of a target fit each other") {
  for (const Target& target : knownTargets()) {
    INFO(target.arch());
    CHECK(target.multiprocessors > 0);
    CHECK(target.sharedPerBlock >= 48 * 1024);
    CHECK(target.sharedPerBlock <= target.sharedPerMultiprocessor);
    CHECK(target.registersPerMultiprocessor == 65536);
    CHECK(target.maxThreadsPerMultiprocessor >= 1024);
    CHECK(target.maxThreadsPerMultiprocessor % 512 == 0);
    CHECK(target.l2Bytes >= int64_t(1) << 20);
  }
  // Limits of the compute capabilities.
  const struct {
    const char* arch;
    int sharedPerBlock;
    int threads;
  } cases[] = {{"sm_75", 65536, 1024},
               {"sm_80", 166912, 2048},
               {"sm_86", 101376, 1536},
               {"sm_90a", 232448, 2048},
               {"sm_120", 101376, 1536}};
  for (const auto& each : cases) {
    const Target target = require(parseTarget(each.arch));
    CHECK(target.sharedPerBlock == each.sharedPerBlock);
    CHECK(target.maxThreadsPerMultiprocessor == each.threads);
  }
}

TEST_CASE("A target with an architecture's own features differs in nothing else") {
  for (const Target& target : knownTargets()) {
    if (!target.archSpecific) continue;
    INFO(target.arch());
    CHECK(llvm::StringRef(target.arch()).ends_with("a"));
    Target plain = target;
    plain.archSpecific = false;
    CHECK(require(parseTarget(plain.arch())) == plain);
  }
}

TEST_CASE("An unknown architecture is shown, with a list of the known ones") {
  for (const char* wrong : {"", "sm_52", "sm_", "90b", "sm_90aa", "SM_90", " sm_90", "9.0", "compute_90"}) {
    const ErrorSummary error = requireError(parseTarget(wrong));
    CHECK(error.code == ErrorCode::InvalidArgument);
    CHECK_THAT(error.message, Catch::Contains("\"" + std::string(wrong) + "\""));
    for (const Target& target : knownTargets()) CHECK_THAT(error.message, Catch::Contains(target.arch()));
  }
}

TEST_CASE("A target's JSON has every figure") {
  const Target target = require(parseTarget("sm_80"));
  CHECK(toJson(target) == llvm::json::Value(llvm::json::Object{{"arch", "sm_80"},
                                                               {"multiprocessors", 108},
                                                               {"shared_per_block", 166912},
                                                               {"shared_per_multiprocessor", 167936},
                                                               {"registers_per_multiprocessor", 65536},
                                                               {"max_threads_per_multiprocessor", 2048},
                                                               {"l2_bytes", 41943040}}));
}
