//===- tests/unit/environment_test.cpp - Reading the environment ----------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/cache/Environment.h"
#include "tests/support/ScratchFolder.h"

#include <map>

using namespace lathe;
using Catch::Contains;
using lathe::test::ScratchFolder;

namespace {

Environment read(const std::map<std::string, std::string>& variables, llvm::StringRef home = "") {
  return Environment::fromVariables(
      [&](llvm::StringRef name) -> std::optional<std::string> {
        const auto found = variables.find(name.str());
        return found == variables.end() ? std::nullopt : std::optional(found->second);
      },
      home);
}

void requireFolder(const std::string& path) {
  REQUIRE_FALSE(llvm::sys::fs::create_directories(path));
}

} // namespace

TEST_CASE("The cache folder is the first of LATHE_CACHE_DIR, XDG_CACHE_HOME, HOME and the home of the account") {
  std::map<std::string, std::string> variables{
      {"LATHE_CACHE_DIR", "/own"}, {"XDG_CACHE_HOME", "/xdg"}, {"HOME", "/home/me"}};
  CHECK(read(variables, "/account").cacheDir == "/own");
  // An empty variable counts as unset.
  variables["LATHE_CACHE_DIR"] = "";
  CHECK(read(variables, "/account").cacheDir == "/xdg/lathe");
  variables.erase("XDG_CACHE_HOME");
  CHECK(read(variables, "/account").cacheDir == "/home/me/.cache/lathe");
  variables.erase("HOME");
  CHECK(read(variables, "/account").cacheDir == "/account/.cache/lathe");
}

TEST_CASE("Without any home there is no cache folder, and a warning that says what to set") {
  const Environment environment = read({});
  CHECK_FALSE(environment.cacheDir);
  REQUIRE(environment.warnings.size() == 1);
  CHECK_THAT(environment.warnings[0], Contains("LATHE_CACHE_DIR"));
}

TEST_CASE("LATHE_CACHE_PATH is split at colons and empty parts are dropped") {
  const Environment environment = read({{"LATHE_CACHE_PATH", ":/image//:/nfs/shared::"}}, "/h");
  CHECK(environment.cachePath == std::vector<std::string>{"/image//", "/nfs/shared"});
}

TEST_CASE("Sizes are bytes or binary multiples of them") {
  const auto size = [](const char* text) { return read({{"LATHE_CACHE_MAX_SIZE", text}}, "/h").cacheMaxBytes; };
  CHECK(size("1048576") == uint64_t(1) << 20);
  CHECK(size("3k") == 3072u);
  CHECK(size("500M") == uint64_t(500) << 20);
  CHECK(size("2G") == uint64_t(2) << 30);
  CHECK(size("1T") == uint64_t(1) << 40);
  CHECK(size("0") == 0u);
}

TEST_CASE("A variable with a wrong value is ignored with one warning that names it and its value") {
  struct Wrong {
    const char* name;
    const char* value;
  };
  const auto wrong = GENERATE(Wrong{"LATHE_CACHE_MAX_SIZE", "-1"}, Wrong{"LATHE_CACHE_MAX_SIZE", "G"},
                              Wrong{"LATHE_CACHE_MAX_SIZE", "2.5G"}, Wrong{"LATHE_CACHE_MAX_SIZE", "99999999999T"},
                              Wrong{"LATHE_COMPILE_THREADS", "0"}, Wrong{"LATHE_COMPILE_THREADS", "many"},
                              Wrong{"LATHE_COMPILE_THREADS", "4294967296"}, Wrong{"LATHE_LOG", "loud"});
  CAPTURE(wrong.name, wrong.value);
  const Environment environment = read({{wrong.name, wrong.value}}, "/h");
  CHECK_FALSE(environment.cacheMaxBytes);
  CHECK_FALSE(environment.compileThreads);
  CHECK(environment.logLevel == "warn");
  REQUIRE(environment.warnings.size() == 1);
  CHECK_THAT(environment.warnings[0], Contains(wrong.name) && Contains(wrong.value));
}

TEST_CASE("The other variables are taken over as they are") {
  const Environment environment = read({{"LATHE_NVRTC", "/opt/libnvrtc.so.13"},
                                        {"LATHE_LIBCUDA", "/opt/libcuda.so"},
                                        {"LATHE_NVDISASM", "/opt/nvdisasm"},
                                        {"LATHE_LOG", "trace"},
                                        {"LATHE_COMPILE_THREADS", "3"},
                                        {"NO_COLOR", "1"}},
                                       "/h");
  CHECK(environment.nvrtcPath == "/opt/libnvrtc.so.13");
  CHECK(environment.driverPath == "/opt/libcuda.so");
  CHECK(environment.nvdisasmPath == "/opt/nvdisasm");
  CHECK(environment.logLevel == "trace");
  CHECK(environment.compileThreads == 3u);
  CHECK(environment.noColor);
  CHECK(environment.warnings.empty());

  const Environment plain = read({}, "/h");
  CHECK_FALSE(plain.nvrtcPath);
  CHECK_FALSE(plain.driverPath);
  CHECK_FALSE(plain.noColor);
}

TEST_CASE("NVRTC is looked for in CUDA's folders and then in the wheels of every Python of the environment") {
  const ScratchFolder folder;
  requireFolder(folder.file("lib/python3.12"));
  requireFolder(folder.file("lib/python3.11"));
  requireFolder(folder.file("lib/pkgconfig"));
  const Environment environment =
      read({{"CUDA_HOME", "/cuda"}, {"CUDA_PATH", "/path"}, {"VIRTUAL_ENV", folder.path()}}, "/h");
  CHECK(environment.cudaSearchFolders ==
        std::vector<std::string>{"/cuda/lib64", "/path/lib64", "/usr/local/cuda/lib64",
                                 folder.file("lib/python3.11/site-packages/nvidia/cu13/lib"),
                                 folder.file("lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib"),
                                 folder.file("lib/python3.12/site-packages/nvidia/cu13/lib"),
                                 folder.file("lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib")});
  CHECK(read({{"VIRTUAL_ENV", "/is/not/there"}}, "/h").cudaSearchFolders ==
        std::vector<std::string>{"/usr/local/cuda/lib64"});
}

TEST_CASE("The variables of this process are read") {
  REQUIRE(::setenv("LATHE_CACHE_DIR", "/from/process", 1) == 0);
  CHECK(Environment::fromProcess().cacheDir == "/from/process");
  REQUIRE(::unsetenv("LATHE_CACHE_DIR") == 0);
}
