//===- tests/unit/nvrtc_test.cpp - The run-time compiler ------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/cache/Environment.h"
#include "runtime/compile/Cubin.h"
#include "runtime/compile/Nvrtc.h"
#include "templates/EmbeddedTemplates.h"
#include "tests/support/Failures.h"
#include "tests/support/FaultyNvrtc.h"
#include "tests/support/ScratchFolder.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"

using namespace lathe;
using namespace lathe::test;

namespace {

/// Where a program on this machine looks for NVRTC.
std::vector<std::string> searchFolders() {
  return Environment::fromProcess().cudaSearchFolders;
}

const Nvrtc& realNvrtc() {
  static const Nvrtc nvrtc = require(openNvrtc("", searchFolders()));
  return nvrtc;
}

CompileRequest request(std::string source, std::string arch = "sm_80") {
  return {"unit.cu", "kernel", std::move(source), std::move(arch), {}};
}

constexpr const char* kSmall = "extern \"C\" __global__ void kernel(float* x) { x[threadIdx.x] += 1.0f; }\n";

} // namespace

TEST_CASE("NVRTC opens, tells its version and its architectures") {
  NvrtcVersion version = require(realNvrtc().version());
  CHECK(version.major >= 12);
  CHECK(version.text() == std::to_string(version.major) + "." + std::to_string(version.minor));
  std::vector<int> known = require(realNvrtc().supportedArchitectures());
  CHECK(llvm::is_contained(known, 80));
  CHECK(llvm::is_contained(known, 90));
  CHECK(std::is_sorted(known.begin(), known.end()));
}

TEST_CASE("the version of NVRTC is known by the names of files, where they tell") {
  if (const std::optional<NvrtcVersion> version = nvrtcVersionByName("", searchFolders()))
    CHECK(*version == require(realNvrtc().version()));

  const ScratchFolder folder;
  const std::string library = folder.file("libnvrtc.so.13");
  const auto touch = [&](llvm::StringRef name) {
    std::error_code failure;
    llvm::raw_fd_ostream file(folder.file(name), failure);
    REQUIRE(!failure);
  };
  CHECK(nvrtcVersionByName(library, {}) == std::nullopt);
  touch("libnvrtc-builtins.so.13.1");
  CHECK(nvrtcVersionByName(library, {}) == std::nullopt);
  touch("libnvrtc.so.13");
  CHECK(nvrtcVersionByName(library, {}) == NvrtcVersion{13, 1});
  CHECK(nvrtcVersionByName("", {folder.path()}) == NvrtcVersion{13, 1});
  for (const char* other : {"libnvrtc-builtins.so", "libnvrtc-builtins.so.13", "libnvrtc-builtins.alt.so.13.0",
                            "libnvrtc-builtins.so.12.9", "libnvrtc-builtins.so.13.1.80", "libnvrtc-builtins.so.x.2"})
    touch(other);
  CHECK(nvrtcVersionByName(library, {}) == NvrtcVersion{13, 1});
  // A link without a number in its name may be to either.
  touch("libnvrtc.so");
  CHECK(nvrtcVersionByName(folder.file("libnvrtc.so"), {}) == std::nullopt);
  touch("libnvrtc-builtins.so.13.0");
  CHECK(nvrtcVersionByName(library, {}) == std::nullopt);
  CHECK(nvrtcVersionByName("libnvrtc.so.13", {}) == std::nullopt);
  CHECK(nvrtcVersionByName("", {}) == std::nullopt);
}

TEST_CASE("a given path is the only one tried, and its error says how to install NVRTC") {
  ErrorSummary error = requireError(openNvrtc("/nowhere/libnvrtc.so.13", searchFolders()));
  CHECK(error.code == ErrorCode::MissingLibrary);
  CHECK_THAT(error.message, Catch::Contains("/nowhere/libnvrtc.so.13") && Catch::Contains("pip install") &&
                                !Catch::Contains("libnvrtc.so.12"));
}

TEST_CASE("a library that is not NVRTC is refused and its missing functions are named") {
  ErrorSummary error = requireError(openNvrtc("libm.so.6", {}));
  CHECK(error.code == ErrorCode::MissingLibrary);
  CHECK_THAT(error.message, Catch::Contains("libm.so.6") && Catch::Contains("nvrtcCompileProgram"));
}

TEST_CASE("a damaged library in a search folder is passed over and reported when nothing else is found") {
  llvm::SmallString<128> folder;
  REQUIRE(!llvm::sys::fs::createUniqueDirectory("lathe-nvrtc", folder));
  std::string path = (folder + "/libnvrtc.so.13").str();
  {
    std::error_code failure;
    llvm::raw_fd_ostream file(path, failure);
    REQUIRE(!failure);
    file << "not a library";
  }
  llvm::Expected<Nvrtc> nvrtc = openNvrtc("", {folder.str().str()});
  if (nvrtc)
    CHECK(nvrtc->path != path);
  else
    CHECK_THAT(takeSummary(nvrtc.takeError()).message, Catch::Contains(path));
  CHECK_THAT(requireError(openNvrtc(path, {})).message, Catch::Contains(path));
  llvm::sys::fs::remove_directories(folder);
}

TEST_CASE("a unit compiles to a cubin for the asked architecture") {
  for (const char* arch : {"sm_75", "sm_80", "sm_90a"}) {
    CompileOutput output = require(compile(realNvrtc(), request(kSmall, arch)));
    CubinInfo info = require(readCubin(output.cubin, "kernel"));
    CHECK("sm_" + std::to_string(info.sm) + (info.archSpecific ? "a" : "") == arch);
    CHECK(output.log == "");
  }
}

TEST_CASE("a unit may include every embedded template, without any header of a toolkit") {
  REQUIRE(embeddedTemplates().size() > 0);
  CompileOutput output =
      require(compile(realNvrtc(), request("#include \"common/types.cuh\"\n"
                                           "extern \"C\" __global__ void kernel(lathe::device::bf16* x, float* y) {\n"
                                           "  y[0] = lathe::device::toFloat(x[0]);\n}\n")));
  CHECK(require(readCubin(output.cubin, "kernel")).parameters.size() == 2);
}

TEST_CASE("arithmetic stays accurate: no fast-math option is among the defaults") {
  for (const std::string& option : defaultOptions("sm_80")) CHECK(option.find("fast_math") == std::string::npos);
  // A correctly rounded division takes a branch to a slow path: more code than the approximation.
  auto codeBytes = [](const std::string& quotient) {
    std::string source = "extern \"C\" __global__ void kernel(float* x) { x[0] = " + quotient + "; }";
    return require(readCubin(require(compile(realNvrtc(), request(source))).cubin, "kernel")).codeBytes;
  };
  CHECK(codeBytes("x[1] / x[2]") > codeBytes("__fdividef(x[1], x[2])"));
}

TEST_CASE("a wrong unit is rejected with the log and the lines around the error") {
  ErrorSummary error = requireError(compile(realNvrtc(), request("// first\n"
                                                                 "extern \"C\" __global__ void kernel(float* x) {\n"
                                                                 "  x[0] = missing;\n"
                                                                 "}\n")));
  CHECK(error.code == ErrorCode::Compile);
  CHECK_THAT(error.message, Catch::Contains("identifier \"missing\" is undefined"));
  CHECK_THAT(error.message, Catch::Contains("unit.cu, line 3:"));
  CHECK_THAT(error.message, Catch::Contains("     1 | // first\n"));
  CHECK_THAT(error.message, Catch::Contains(">    3 |   x[0] = missing;"));
}

TEST_CASE("an error inside a template quotes the template") {
  // The redefinition makes the error appear where the template's line is.
  ErrorSummary error =
      requireError(compile(realNvrtc(), request("#define toFloat 1 +\n#include \"common/types.cuh\"\n")));
  CHECK(error.code == ErrorCode::Compile);
  CHECK_THAT(error.message, Catch::Contains("common/types.cuh, line ") && Catch::Contains("toFloat"));
}

TEST_CASE("errors of the assembler, which name no source line, are reported too") {
  ErrorSummary error = requireError(compile(
      realNvrtc(), request("extern \"C\" __global__ void kernel(int* x) { asm volatile(\"nonsense.u32;\"); }")));
  CHECK(error.code == ErrorCode::Compile);
  CHECK_THAT(error.message, Catch::Contains("nonsense"));
  ErrorSummary tooMuch = requireError(
      compile(realNvrtc(), request("extern \"C\" __global__ void kernel(float* x) { __shared__ float s[100000];\n"
                                   "s[threadIdx.x] = x[0]; __syncthreads(); x[1] = s[threadIdx.x + 1]; }")));
  CHECK(tooMuch.code == ErrorCode::Compile);
  CHECK_THAT(tooMuch.message, Catch::Contains("too much shared data"));
}

TEST_CASE("an unknown architecture is refused and the known ones are listed") {
  ErrorSummary error = requireError(compile(realNvrtc(), request(kSmall, "sm_42")));
  CHECK(error.code == ErrorCode::Unsupported);
  CHECK_THAT(error.message, Catch::Contains("'sm_42'") && Catch::Contains("sm_80, "));
  CHECK(requireError(compile(realNvrtc(), request(kSmall, "compute_80"))).code == ErrorCode::InvalidArgument);
  CHECK(requireError(compile(realNvrtc(), request(kSmall, ""))).code == ErrorCode::InvalidArgument);
}

TEST_CASE("an unknown option is refused and named") {
  CompileRequest bad = request(kSmall);
  bad.options = {"--no-such-option"};
  ErrorSummary error = requireError(compile(realNvrtc(), bad));
  CHECK(error.code == ErrorCode::InvalidArgument);
  CHECK_THAT(error.message, Catch::Contains("--no-such-option"));
}

TEST_CASE("warnings come back in the log and do not stop the compilation") {
  CompileOutput output =
      require(compile(realNvrtc(), request("extern \"C\" __global__ void kernel(float* x) { int unused; }")));
  CHECK_THAT(output.log, Catch::Contains("unused"));
  CHECK(require(readCubin(output.cubin, "kernel")).parameters.size() == 1);
}

TEST_CASE("a failure of any NVRTC call is a clean error and leaves no program behind") {
  FaultyNvrtc faulty(realNvrtc());
  Nvrtc nvrtc = faulty.table();
  for (const char* name : {"nvrtcCreateProgram", "nvrtcCompileProgram", "nvrtcGetProgramLogSize", "nvrtcGetProgramLog",
                           "nvrtcGetCUBINSize", "nvrtcGetCUBIN"}) {
    for (nvrtcResult result :
         {NVRTC_ERROR_OUT_OF_MEMORY, NVRTC_ERROR_INTERNAL_ERROR, NVRTC_ERROR_BUILTIN_OPERATION_FAILURE}) {
      INFO(name << " fails with " << result);
      size_t before = faulty.callCount(name);
      faulty.failNext(name, result);
      ErrorSummary error = requireError(compile(nvrtc, request(kSmall)));
      CHECK(faulty.callCount(name) == before + 1);
      CHECK(error.code == ErrorCode::Internal);
      CHECK_THAT(error.message, Catch::Contains(name) && Catch::Contains(nvrtc.getErrorString(result)));
      CHECK(faulty.livePrograms() == 0);
    }
  }
  // A failing destruction has nobody to tell, and the next compilation works.
  faulty.failNext("nvrtcDestroyProgram", NVRTC_ERROR_INTERNAL_ERROR);
  require(compile(nvrtc, request(kSmall)));
  require(compile(nvrtc, request(kSmall)));
  CHECK(faulty.livePrograms() == 0);
}

TEST_CASE("failures while an error is being explained are reported as well") {
  FaultyNvrtc faulty(realNvrtc());
  Nvrtc nvrtc = faulty.table();
  for (const char* name : {"nvrtcGetNumSupportedArchs", "nvrtcGetSupportedArchs"}) {
    faulty.failNext(name, NVRTC_ERROR_INTERNAL_ERROR);
    CHECK_THAT(requireError(compile(nvrtc, request(kSmall, "sm_42"))).message, Catch::Contains(name));
    CHECK(faulty.livePrograms() == 0);
  }
  faulty.failNext("nvrtcVersion", NVRTC_ERROR_INVALID_INPUT);
  CHECK_THAT(requireError(nvrtc.version()).message, Catch::Contains("nvrtcVersion"));
}
