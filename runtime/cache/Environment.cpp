//===- runtime/cache/Environment.cpp - What Lathe reads of its surroundings -===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/cache/Environment.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"

using namespace lathe;

namespace {

std::string joined(llvm::StringRef folder, llvm::StringRef rest) {
  llvm::SmallString<128> path(folder);
  llvm::sys::path::append(path, rest);
  return std::string(path);
}

/// The folders `python*` in `lib`, in the order of their names.
std::vector<std::string> pythonFolders(llvm::StringRef lib) {
  std::vector<std::string> folders;
  std::error_code error;
  for (llvm::sys::fs::directory_iterator it(lib, error), end; !error && it != end; it.increment(error))
    if (llvm::sys::path::filename(it->path()).starts_with("python")) folders.push_back(it->path());
  llvm::sort(folders);
  return folders;
}

class Reader {
public:
  Reader(Environment::Lookup variable, llvm::StringRef home) : variable_(variable), home_(home) {}

  Environment read() {
    result_.cacheDir = cacheDir();
    if (const auto path = value("LATHE_CACHE_PATH")) readCachePath(*path);
    result_.nvrtcPath = value("LATHE_NVRTC");
    result_.driverPath = value("LATHE_LIBCUDA");
    result_.nvdisasmPath = value("LATHE_NVDISASM");
    readSearchFolders();
    readNumbers();
    readLogLevel();
    result_.noColor = value("NO_COLOR").has_value();
    return std::move(result_);
  }

private:
  /// The value of a variable; none when it is unset or empty.
  std::optional<std::string> value(llvm::StringRef name) const {
    std::optional<std::string> text = variable_(name);
    return text && !text->empty() ? text : std::nullopt;
  }

  std::optional<std::string> cacheDir() {
    if (auto own = value("LATHE_CACHE_DIR")) return own;
    if (const auto xdg = value("XDG_CACHE_HOME")) return joined(*xdg, "lathe");
    if (const auto home = value("HOME")) return joined(*home, ".cache/lathe");
    if (!home_.empty()) return joined(home_, ".cache/lathe");
    result_.warnings.push_back("there is no home folder, so compiled kernels are not kept; set LATHE_CACHE_DIR");
    return std::nullopt;
  }

  void readCachePath(llvm::StringRef path) {
    llvm::SmallVector<llvm::StringRef> folders;
    path.split(folders, ':', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
    for (const llvm::StringRef folder : folders) result_.cachePath.push_back(folder.str());
  }

  void readSearchFolders() {
    for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
      if (const auto folder = value(name)) result_.cudaSearchFolders.push_back(joined(*folder, "lib64"));
    result_.cudaSearchFolders.push_back("/usr/local/cuda/lib64");
    const auto environment = value("VIRTUAL_ENV");
    if (!environment) return;
    for (const std::string& python : pythonFolders(joined(*environment, "lib")))
      for (const char* wheel : {"site-packages/nvidia/cu13/lib", "site-packages/nvidia/cuda_nvrtc/lib"})
        result_.cudaSearchFolders.push_back(joined(python, wheel));
  }

  void readNumbers() {
    if (const auto text = value("LATHE_CACHE_MAX_SIZE")) {
      result_.cacheMaxBytes = parseSize(*text);
      if (!result_.cacheMaxBytes) ignored("LATHE_CACHE_MAX_SIZE", *text, "a number of bytes such as 500M or 2G");
    }
    if (const auto text = value("LATHE_COMPILE_THREADS")) {
      unsigned threads = 0;
      if (llvm::StringRef(*text).getAsInteger(10, threads) || threads == 0)
        ignored("LATHE_COMPILE_THREADS", *text, "a number of at least 1");
      else
        result_.compileThreads = threads;
    }
  }

  void readLogLevel() {
    const auto text = value("LATHE_LOG");
    if (!text) return;
    constexpr llvm::StringRef kLevels[] = {"trace", "debug", "info", "warn", "error", "off"};
    if (llvm::is_contained(kLevels, llvm::StringRef(*text)))
      result_.logLevel = *text;
    else
      ignored("LATHE_LOG", *text, "trace, debug, info, warn, error or off");
  }

  void ignored(llvm::StringRef name, llvm::StringRef text, llvm::StringRef allowed) {
    result_.warnings.push_back(llvm::formatv("{0} is \"{1}\" and was ignored; it must be {2}", name, text, allowed));
  }

  Environment::Lookup variable_;
  llvm::StringRef home_;
  Environment result_;
};

} // namespace

std::optional<uint64_t> lathe::parseSize(llvm::StringRef text) {
  uint64_t unit = 1;
  if (text.consume_back_insensitive("K"))
    unit = uint64_t(1) << 10;
  else if (text.consume_back_insensitive("M"))
    unit = uint64_t(1) << 20;
  else if (text.consume_back_insensitive("G"))
    unit = uint64_t(1) << 30;
  else if (text.consume_back_insensitive("T"))
    unit = uint64_t(1) << 40;
  uint64_t number = 0;
  if (text.getAsInteger(10, number) || number > UINT64_MAX / unit) return std::nullopt;
  return number * unit;
}

Environment Environment::fromVariables(Lookup variable, llvm::StringRef home) {
  return Reader(variable, home).read();
}

Environment Environment::fromProcess() {
  llvm::SmallString<128> home;
  // Reads HOME, then the password database.
  if (!llvm::sys::path::home_directory(home)) home.clear();
  return fromVariables([](llvm::StringRef name) { return llvm::sys::Process::GetEnv(name); }, home);
}
