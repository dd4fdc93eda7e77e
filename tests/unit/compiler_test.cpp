//===- tests/unit/compiler_test.cpp - Compiling in parallel ---------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/cache/Environment.h"
#include "runtime/compile/Compiler.h"
#include "tests/support/Failures.h"
#include "tests/support/FaultyNvrtc.h"

using namespace lathe;
using namespace lathe::test;

namespace {

const Nvrtc& realNvrtc() {
  static const Nvrtc nvrtc = require(openNvrtc("", Environment::fromProcess().cudaSearchFolders));
  return nvrtc;
}

/// A kernel `entry` that adds `number`.
CompileRequest adder(const std::string& entry, int number) {
  return {entry + ".cu",
          entry,
          "extern \"C\" __global__ void " + entry + "(int* x) { x[threadIdx.x] += " + std::to_string(number) + "; }",
          "sm_80",
          {}};
}

/// A kernel with more live values than 32 registers hold.
CompileRequest spiller() {
  return {"spiller.cu",
          "spiller",
          "extern \"C\" __global__ void spiller(const float* x, float* y, int n) {\n"
          "  float v[64];\n"
          "#pragma unroll\n"
          "  for (int i = 0; i < 64; ++i) v[i] = x[i * n + threadIdx.x];\n"
          "  for (int k = 0; k < n; ++k)\n"
          "#pragma unroll\n"
          "    for (int i = 0; i < 64; ++i) v[i] = v[(i + 1) % 64] * v[i] + y[k * 64 + i];\n"
          "#pragma unroll\n"
          "  for (int i = 0; i < 64; ++i) y[i * n + threadIdx.x] = v[i];\n"
          "}\n",
          "sm_80",
          {"--maxrregcount=32"}};
}

} // namespace

TEST_CASE("many units compile at once and come back in order") {
  Compiler compiler(realNvrtc(), {.threads = 4});
  std::vector<CompileRequest> requests;
  for (int i = 0; i < 12; ++i) requests.push_back(adder("adder" + std::to_string(i), i));
  std::vector<llvm::Expected<CompiledKernel>> results = compiler.compileAll(requests);
  REQUIRE(results.size() == requests.size());
  for (size_t i = 0; i < results.size(); ++i) {
    CompiledKernel kernel = require(std::move(results[i]));
    CHECK(require(readCubinEntries(kernel.cubin)) == std::vector<std::string>{requests[i].entry});
    CHECK(kernel.info.sm == 80);
    CHECK(kernel.milliseconds > 0);
  }
}

TEST_CASE("nothing to compile gives nothing") {
  CHECK(Compiler(realNvrtc()).compileAll({}).empty());
}

TEST_CASE("one bad unit does not stop the others") {
  Compiler compiler(realNvrtc());
  CompileRequest bad = adder("bad", 0);
  bad.source = "extern \"C\" __global__ void bad() { nothing; }";
  std::vector<llvm::Expected<CompiledKernel>> results = compiler.compileAll({adder("first", 1), bad, adder("last", 2)});
  REQUIRE(results.size() == 3);
  require(std::move(results[0]));
  CHECK_THAT(requireError(std::move(results[1])).message, Catch::Contains("bad.cu, line 1:"));
  require(std::move(results[2]));
}

TEST_CASE("a kernel that spills is refused with its figures, unless spills are allowed") {
  ErrorSummary error = requireError(Compiler(realNvrtc()).compile(spiller()));
  CHECK(error.code == ErrorCode::Compile);
  CHECK_THAT(error.message,
             Catch::Contains("'spiller'") && Catch::Contains("spilled") && Catch::Contains("32 are in use"));
  CompiledKernel kernel = require(Compiler(realNvrtc(), {.threads = 0, .spillLimit = kAnySpill}).compile(spiller()));
  CHECK(kernel.info.localBytes > 0);
  CHECK(kernel.info.registers == 32);
}

TEST_CASE("an entry that the unit does not define is an error") {
  CompileRequest request = adder("present", 1);
  request.entry = "absent";
  CHECK_THAT(requireError(Compiler(realNvrtc()).compile(request)).message, Catch::Contains("'absent'"));
}

TEST_CASE("the same unit compiles to the same bytes whatever else is compiled beside it") {
  Compiler compiler(realNvrtc(), {.threads = 4});
  std::vector<CompileRequest> same(6, adder("same", 3));
  std::string alone = require(compiler.compile(same[0])).cubin;
  for (llvm::Expected<CompiledKernel>& result : compiler.compileAll(same))
    CHECK(require(std::move(result)).cubin == alone);
}

TEST_CASE("a fault in one of many parallel compilations fails that one only and leaves no program behind") {
  FaultyNvrtc faulty(realNvrtc());
  Compiler compiler(faulty.table(), {.threads = 3});
  std::vector<CompileRequest> requests;
  for (int i = 0; i < 6; ++i) requests.push_back(adder("adder" + std::to_string(i), i));
  for (const char* name : {"nvrtcCreateProgram", "nvrtcCompileProgram", "nvrtcGetProgramLogSize", "nvrtcGetProgramLog",
                           "nvrtcGetCUBINSize", "nvrtcGetCUBIN"}) {
    INFO(name);
    faulty.failNext(name, NVRTC_ERROR_OUT_OF_MEMORY, 3);
    int failures = 0;
    for (llvm::Expected<CompiledKernel>& result : compiler.compileAll(requests)) {
      if (result) continue;
      ++failures;
      CHECK_THAT(takeSummary(result.takeError()).message, Catch::Contains(name));
    }
    CHECK(failures == 1);
    CHECK(faulty.livePrograms() == 0);
  }
}
