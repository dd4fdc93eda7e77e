//===- tests/golden/reference_golden_test.cpp - Golden cases on the host ----===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/io/Case.h"
#include "runtime/reference/Compare.h"
#include "runtime/reference/Reference.h"
#include "tests/support/Failures.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <algorithm>

using namespace lathe;
using lathe::test::require;

namespace {

std::vector<std::string> goldenFiles() {
  std::vector<std::string> files;
  std::error_code error;
  for (llvm::sys::fs::directory_iterator entry(LATHE_TEST_DATA, error), end; entry != end && !error;
       entry.increment(error))
    if (llvm::sys::path::extension(entry->path()) == ".safetensors") files.push_back(entry->path());
  std::sort(files.begin(), files.end());
  return files;
}

template <class Real> LossResult compute(const Case& golden) {
  return require(computeReference<Real>({golden.workload, golden.shape, golden.scalars, golden.input.data(),
                                         golden.weight.data(), golden.bias.data(), golden.target.data()}));
}

void checkResult(const LossResult& got, const LossResult& want, const Workload& workload, double scalarTolerance,
                 double gradientTolerance) {
  const std::vector<Comparison> comparisons = compare(got, want, workload);
  CHECK(comparisons.size() >= 9);
  // `compare` leaves the nll out where the workload has none; it is then 0.
  CHECK(mixedError(got.nll, want.nll) <= scalarTolerance);
  for (const Comparison& comparison : comparisons) {
    CAPTURE(comparison.name);
    const bool gradient = llvm::StringRef(comparison.name).starts_with("grad_");
    CHECK(comparison.error <= (gradient ? gradientTolerance : scalarTolerance));
  }
}

} // namespace

TEST_CASE("the reference in double agrees with every golden case") {
  const std::vector<std::string> files = goldenFiles();
  REQUIRE(files.size() >= 12);
  for (const std::string& file : files) {
    CAPTURE(file);
    const Case golden = require(loadCase(file));
    REQUIRE(golden.expected);
    CHECK_FALSE(golden.expected->gradInput.empty());
    CHECK_FALSE(golden.expected->gradWeight.empty());
    CHECK(golden.expected->gradBias.empty() != golden.workload.bias);
    checkResult(compute<double>(golden), *golden.expected, golden.workload, 1e-9, 1e-6);
  }
}

TEST_CASE("the reference in float agrees with every golden case") {
  for (const std::string& file : goldenFiles()) {
    CAPTURE(file);
    const Case golden = require(loadCase(file));
    REQUIRE(golden.expected);
    checkResult(compute<float>(golden), *golden.expected, golden.workload, 1e-5, 1e-5);
  }
}
