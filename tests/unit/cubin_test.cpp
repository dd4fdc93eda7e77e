//===- tests/unit/cubin_test.cpp - Reading compiled kernels ---------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/cache/Environment.h"
#include "runtime/compile/Cubin.h"
#include "runtime/compile/Nvrtc.h"
#include "tests/support/Failures.h"

#include "llvm/BinaryFormat/ELF.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/MemoryBuffer.h"

#include <random>
#include <regex>

using namespace lathe;
using namespace lathe::test;

namespace {

constexpr const char* kSource = R"(
extern "C" __global__ void __launch_bounds__(256, 2) plain(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * 2.0f;
}
extern "C" __global__ void shared(const float* x, float* y) {
  __shared__ float s[1024];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[1023 - threadIdx.x];
  asm volatile("bar.sync 5, 128;");
}
extern __shared__ float dynamic[];
extern "C" __global__ void __launch_bounds__(128) dynamicShared(const float* x, float* y) {
  dynamic[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = dynamic[127 - threadIdx.x];
}
extern "C" __global__ void array(float* y, int n) {
  float a[100];
  for (int i = 0; i < 100; ++i) a[i] = y[i];
  a[n % 100] = 1.0f;
  float sum = 0.0f;
  for (int i = 0; i < 100; ++i) sum += a[(i * n) % 100];
  y[0] = sum;
}
extern "C" __global__ void wide(const float* x, float* y, int n) {
  float v[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) v[i] = x[i * n + threadIdx.x];
  for (int k = 0; k < n; ++k)
#pragma unroll
    for (int i = 0; i < 64; ++i) v[i] = v[(i + 1) % 64] * v[i] + y[k * 64 + i];
#pragma unroll
  for (int i = 0; i < 64; ++i) y[i * n + threadIdx.x] = v[i];
}
struct Big { float value[512]; };
extern "C" __global__ void bigParameter(const Big big, char c, float* y) { y[threadIdx.x] = big.value[threadIdx.x] + c; }
)";

/// The cubin `name` of tests/data/cubin.
std::string readData(const std::string& name) {
  auto buffer = llvm::MemoryBuffer::getFile(std::string(LATHE_TEST_DATA) + "/cubin/" + name);
  REQUIRE(buffer);
  return (*buffer)->getBuffer().str();
}

/// What the assembler's own report says of one kernel.
struct AssemblerReport {
  int registers = 0;
  int barriers = 0;
  int64_t stackBytes = 0;
  int64_t sharedBytes = 0;

  friend bool operator==(const AssemblerReport&, const AssemblerReport&) = default;
};

std::ostream& operator<<(std::ostream& os, const AssemblerReport& report) {
  return os << report.registers << " registers, " << report.barriers << " barriers, " << report.stackBytes
            << " bytes of stack, " << report.sharedBytes << " bytes shared";
}

int64_t numberIn(const std::string& text, const std::string& pattern) {
  std::smatch match;
  return std::regex_search(text, match, std::regex(pattern)) ? std::stoll(match[1]) : 0;
}

/// The report on `kernel` in the log of `--ptxas-options=-v`.
AssemblerReport reportOn(const std::string& log, const std::string& kernel) {
  size_t begin = log.find("entry function '" + kernel + "'");
  REQUIRE(begin != std::string::npos);
  std::string part = log.substr(begin, log.find("Compiling entry", begin) - begin);
  return {static_cast<int>(numberIn(part, "Used (\\d+) registers")),
          static_cast<int>(numberIn(part, "used (\\d+) barriers")), numberIn(part, "(\\d+) bytes stack frame"),
          numberIn(part, "(\\d+) bytes smem")};
}

CompileOutput compileSource(const std::string& arch, std::vector<std::string> options) {
  static const Nvrtc nvrtc = require(openNvrtc("", Environment::fromProcess().cudaSearchFolders));
  return require(compile(nvrtc, {"cubin_test.cu", "plain", kSource, arch, std::move(options)}));
}

} // namespace

TEST_CASE("the reader agrees with the assembler's report on every architecture and kernel") {
  for (const std::string arch : {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100a", "sm_120"}) {
    for (const std::string limit : {"255", "32"}) {
      CompileOutput output = compileSource(arch, {"--ptxas-options=-v", "--maxrregcount=" + limit});
      for (const std::string kernel : {"plain", "shared", "dynamicShared", "array", "wide", "bigParameter"}) {
        CubinInfo info = require(readCubin(output.cubin, kernel));
        INFO(arch << ", at most " << limit << " registers, kernel " << kernel << "\n" << output.log);
        AssemblerReport read{info.registers, info.barriers, info.localBytes, info.sharedBytes};
        CHECK(read == reportOn(output.log, kernel));
        CHECK(info.sm == std::stoi(arch.substr(3)));
        CHECK(info.archSpecific == (arch.back() == 'a'));
        CHECK(info.codeBytes > 0);
        CHECK(info.codeBytes % 16 == 0);
      }
    }
  }
}

TEST_CASE("launch bounds, parameters and spills are read back") {
  CompileOutput limited = compileSource("sm_90a", {"--maxrregcount=32"});
  CubinInfo plain = require(readCubin(limited.cubin, "plain"));
  CHECK(plain.maxThreads == 256);
  CHECK(plain.parameters == std::vector<CubinParameter>{{0, 8}, {8, 8}, {16, 4}});
  CHECK(plain.parameterBytes == 20);
  CHECK(plain.constantBytes >= plain.parameterBytes);
  CHECK(plain.localBytes == 0);
  CHECK(require(readCubin(limited.cubin, "shared")).maxThreads == 0);
  CHECK(require(readCubin(limited.cubin, "bigParameter")).parameters ==
        std::vector<CubinParameter>{{0, 2048}, {2048, 1}, {2056, 8}});
  CHECK(require(readCubin(limited.cubin, "wide")).localBytes > 0);

  CompileOutput unlimited = compileSource("sm_90a", {});
  CHECK(require(readCubin(unlimited.cubin, "wide")).localBytes == 0);
  CHECK(require(readCubin(unlimited.cubin, "array")).localBytes == 400);
}

TEST_CASE("both layouts, that of CUDA 12 and that of CUDA 13, are read") {
  struct Expected {
    const char* file;
    int sm;
    bool archSpecific;
    int registers;
  };
  // The figures are those that ptxas printed when these were made.
  for (const Expected& expected :
       {Expected{"shared_sm_75_cuda13.cubin", 75, false, 12}, Expected{"shared_sm_80_cuda12.cubin", 80, false, 12},
        Expected{"shared_sm_90a_cuda12.cubin", 90, true, 14}, Expected{"shared_sm_90a_cuda13.cubin", 90, true, 14}}) {
    INFO(expected.file);
    CubinInfo info = require(readCubin(readData(expected.file), "shared_user"));
    CHECK(info.sm == expected.sm);
    CHECK(info.archSpecific == expected.archSpecific);
    CHECK(info.registers == expected.registers);
    CHECK(info.barriers == 6);
    CHECK(info.sharedBytes == 4096);
    CHECK(info.localBytes == 0);
    CHECK(info.parameters == std::vector<CubinParameter>{{0, 8}, {8, 8}, {16, 4}});
  }
}

TEST_CASE("the kernels of a cubin are listed") {
  CompileOutput output = compileSource("sm_80", {});
  std::vector<std::string> entries = require(readCubinEntries(output.cubin));
  std::sort(entries.begin(), entries.end());
  CHECK(entries == std::vector<std::string>{"array", "bigParameter", "dynamicShared", "plain", "shared", "wide"});
}

TEST_CASE("an unknown kernel is refused and the known ones are named") {
  ErrorSummary error = requireError(readCubin(readData("shared_sm_80_cuda12.cubin"), "absent"));
  CHECK(error.code == ErrorCode::Corrupt);
  CHECK_THAT(error.message, Catch::Contains("'absent'") && Catch::Contains("shared_user"));
}

TEST_CASE("bytes that are no cubin are refused with a reason") {
  std::string good = readData("shared_sm_80_cuda12.cubin");
  std::string otherMachine = good;
  llvm::support::endian::write16le(&otherMachine[18], llvm::ELF::EM_X86_64);
  std::string thirtyTwoBit = good;
  thirtyTwoBit[llvm::ELF::EI_CLASS] = llvm::ELF::ELFCLASS32;
  std::string noMagic = good;
  noMagic[0] = 'x';
  for (const std::string& bytes : {std::string(), std::string("abc"), std::string(4096, '\0'), std::string(200, 'x'),
                                   otherMachine, thirtyTwoBit, noMagic}) {
    ErrorSummary error = requireError(readCubin(bytes, "shared_user"));
    CHECK(error.code == ErrorCode::Corrupt);
    CHECK_THAT(error.message, Catch::Contains("not a valid cubin"));
  }
  std::string future = good;
  future[llvm::ELF::EI_OSABI] = 0x77;
  ErrorSummary error = requireError(readCubin(future, "shared_user"));
  CHECK(error.code == ErrorCode::Unsupported);
  CHECK_THAT(error.message, Catch::Contains("0x77"));
}

TEST_CASE("a cubin cut short anywhere is refused or read, and never crashes the reader") {
  std::string good = readData("shared_sm_90a_cuda13.cubin");
  size_t refused = 0;
  for (size_t size = 0; size < good.size(); ++size) {
    // A copy of exactly that size, so that a sanitizer sees any read beyond it.
    std::vector<char> cut(good.begin(), good.begin() + size);
    llvm::Expected<CubinInfo> info = readCubin(llvm::StringRef(cut.data(), cut.size()), "shared_user");
    if (info) continue;
    ++refused;
    llvm::consumeError(info.takeError());
  }
  // Only the program headers, which the reader does not need, lie behind the section headers.
  CHECK(refused > good.size() * 9 / 10);
}

TEST_CASE("a cubin with altered bytes never crashes the reader") {
  std::mt19937 random(7);
  for (const char* name : {"shared_sm_80_cuda12.cubin", "shared_sm_90a_cuda13.cubin"}) {
    std::string good = readData(name);
    for (int round = 0; round < 20000; ++round) {
      std::string bad = good;
      for (int change = 0; change < 1 + round % 4; ++change) {
        bad[random() % bad.size()] = static_cast<char>(random() % 4 ? random() : 0xff);
      }
      llvm::Expected<CubinInfo> info = readCubin(bad, "shared_user");
      if (!info) llvm::consumeError(info.takeError());
    }
  }
}
