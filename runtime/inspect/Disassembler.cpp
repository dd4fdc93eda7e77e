//===- runtime/inspect/Disassembler.cpp - Running nvdisasm ------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/inspect/Disassembler.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

#include <csignal>
#include <thread>

using namespace lathe;

namespace {

constexpr const char* kProgram = "nvdisasm";
constexpr const char* kInstall = "install it with `pip install nvidia-cuda-nvdisasm` in the active virtual "
                                 "environment or with the CUDA toolkit, or name its path in LATHE_NVDISASM";

/// A folder for the files of one run, removed with everything in it.
class ScratchFolder {
public:
  static llvm::Expected<ScratchFolder> make() {
    llvm::SmallString<128> path;
    if (const std::error_code error = llvm::sys::fs::createUniqueDirectory("lathe-nvdisasm", path))
      return makeError(ErrorCode::Io, "cannot make a folder for temporary files: {0}", error.message());
    return ScratchFolder(std::string(path));
  }
  ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ~ScratchFolder() {
    if (!path_.empty()) llvm::sys::fs::remove_directories(path_);
  }

  std::string file(llvm::StringRef name) const { return path_ + "/" + name.str(); }

private:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

llvm::Error writeFile(const std::string& path, llvm::StringRef bytes) {
  std::error_code error;
  llvm::raw_fd_ostream os(path, error);
  if (!error) {
    os << bytes;
    os.close();
    error = os.error();
    os.clear_error();
  }
  if (!error) return llvm::Error::success();
  return makeError(ErrorCode::Io, "cannot write {0}: {1}", path, error.message());
}

llvm::Expected<std::string> readFile(const std::string& path) {
  llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> buffer = llvm::MemoryBuffer::getFile(path);
  if (!buffer) return makeError(ErrorCode::Io, "cannot read {0}: {1}", path, buffer.getError().message());
  return (*buffer)->getBuffer().str();
}

/// Waits for `process` until `deadline`; none when it was still running then and was ended. Polls: a wait with a limit
/// would take this process's SIGALRM.
std::optional<int> waitUntil(const llvm::sys::ProcessInfo& process, std::chrono::steady_clock::time_point deadline) {
  std::chrono::milliseconds pause(1);
  while (true) {
    const llvm::sys::ProcessInfo state = llvm::sys::Wait(process, 0u, nullptr, nullptr, /*Polling=*/true);
    if (state.Pid == process.Pid) return state.ReturnCode;
    if (std::chrono::steady_clock::now() >= deadline) break;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(20));
  }
  ::kill(process.Pid, SIGKILL);
  llvm::sys::Wait(process, std::nullopt);
  return std::nullopt;
}

llvm::Expected<Disassembler> namedDisassembler(llvm::StringRef path) {
  if (llvm::sys::fs::can_execute(path)) return Disassembler(path.str());
  return makeError(ErrorCode::MissingLibrary, "{0} is no program that can be run; {1}", path, kInstall);
}

} // namespace

llvm::Expected<std::string> Disassembler::run(llvm::StringRef cubin) const {
  llvm::Expected<ScratchFolder> folder = ScratchFolder::make();
  if (!folder) return folder.takeError();
  const std::string input = folder->file("kernel.cubin");
  const std::string output = folder->file("kernel.sass");
  const std::string log = folder->file("log");
  if (llvm::Error error = writeFile(input, cubin)) return error;

  // -gi has the stacks of inlined calls, -gp the lines of the PTX; the analysis that -ndf leaves out adds nothing.
  const llvm::StringRef arguments[] = {program_, "-c", "-ndf", "-gi", "-gp", input};
  const std::optional<llvm::StringRef> redirects[] = {llvm::StringRef(), output, log};
  std::string failure;
  const auto deadline = std::chrono::steady_clock::now() + limit_;
  const llvm::sys::ProcessInfo process =
      llvm::sys::ExecuteNoWait(program_, arguments, std::nullopt, redirects, 0, &failure);
  if (process.Pid == llvm::sys::ProcessInfo::InvalidPid)
    return makeError(ErrorCode::MissingLibrary, "cannot run {0}: {1}; {2}", program_, failure, kInstall);
  const std::optional<int> code = waitUntil(process, deadline);
  if (!code)
    return makeError(ErrorCode::Corrupt, "{0} did not finish a cubin of {1} bytes within {2} s and was ended", program_,
                     cubin.size(), limit_.count());
  if (*code == 0) return readFile(output);
  llvm::Expected<std::string> said = readFile(log);
  if (!said) return said.takeError();
  return makeError(ErrorCode::Corrupt, "{0} cannot read the cubin of {1} bytes (exit code {2}): {3}", program_,
                   cubin.size(), *code, llvm::StringRef(*said).trim().take_front(2000));
}

llvm::Expected<Disassembler> lathe::findDisassembler(llvm::StringRef path, llvm::ArrayRef<std::string> searchFolders) {
  if (!path.empty()) return namedDisassembler(path);
  for (const std::string& folder : searchFolders) {
    llvm::SmallString<128> candidate(llvm::sys::path::parent_path(folder));
    llvm::sys::path::append(candidate, "bin", kProgram);
    if (llvm::sys::fs::can_execute(candidate)) return Disassembler(std::string(candidate));
  }
  if (const llvm::ErrorOr<std::string> found = llvm::sys::findProgramByName(kProgram)) return Disassembler(*found);
  return makeError(ErrorCode::MissingLibrary,
                   "nvdisasm, which turns cubins into text, was not found: {0}. Looked beside {1}, and in PATH",
                   kInstall, searchFolders.empty() ? "no folder" : llvm::join(searchFolders, ", "));
}
