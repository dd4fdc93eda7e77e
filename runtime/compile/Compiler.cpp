//===- runtime/compile/Compiler.cpp - Compiling in parallel ---------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/compile/Compiler.h"

#include "llvm/Support/ThreadPool.h"

#include <algorithm>
#include <chrono>
#include <optional>

using namespace lathe;

namespace {
constexpr const char* kLineInfo = "-lineinfo";
} // namespace

std::vector<std::string> lathe::compileOptions(llvm::StringRef arch, const CompilerOptions& options) {
  std::vector<std::string> all = defaultOptions(arch);
  if (options.lineInfo) all.push_back(kLineInfo);
  return all;
}

llvm::Expected<CompiledKernel> Compiler::compile(const CompileRequest& request) const {
  auto begin = std::chrono::steady_clock::now();
  CompileRequest complete = request;
  if (options_.lineInfo) complete.options.push_back(kLineInfo);
  llvm::Expected<CompileOutput> output = lathe::compile(nvrtc_, complete);
  if (!output) return output.takeError();
  std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
  llvm::Expected<CubinInfo> info = readCubin(output->cubin, request.entry);
  if (!info) return info.takeError();
  if (info->localBytes > options_.spillLimit)
    return makeError(
        ErrorCode::Compile,
        "the kernel '{0}' for {1} needs {2} bytes of local memory for each thread: it has spilled registers "
        "({3} are in use). Choose a configuration with a smaller tile or more threads, or allow spills",
        request.entry, request.arch, info->localBytes, info->registers);
  return CompiledKernel{std::move(output->cubin), std::move(*info), std::move(output->log), time.count()};
}

std::vector<llvm::Expected<CompiledKernel>> Compiler::compileAll(llvm::ArrayRef<CompileRequest> requests) const {
  std::vector<std::optional<llvm::Expected<CompiledKernel>>> slots(requests.size());
  {
    llvm::ThreadPoolStrategy strategy = llvm::hardware_concurrency(options_.threads);
    llvm::DefaultThreadPool pool(strategy);
    for (size_t i = 0; i < requests.size(); ++i)
      pool.async([this, &slot = slots[i], &request = requests[i]] { slot.emplace(compile(request)); });
    pool.wait();
  }
  std::vector<llvm::Expected<CompiledKernel>> results;
  results.reserve(slots.size());
  for (auto& slot : slots) results.push_back(std::move(*slot));
  return results;
}
