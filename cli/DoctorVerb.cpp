//===- cli/DoctorVerb.cpp - lathe doctor -----------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/Device.h"
#include "cli/Text.h"
#include "cli/Verbs.h"
#include "runtime/cache/CacheTools.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace lathe;
using namespace lathe::cli;

namespace {

struct DoctorOptions {
  bool strict = false;
  bool json = false;
};

/// One thing that was looked at.
struct Finding {
  std::string name;
  std::string state;
  bool ok = true;
  /// Whether `lathe run` on a GPU cannot work without it.
  bool needed = false;
};

class Examination {
public:
  explicit Examination(const Environment& environment) : environment_(environment) {}

  std::vector<Finding> run() {
    examineDriver();
    examineNvrtc();
    examineCache();
    for (const std::string& layer : environment_.cachePath) examineLayer(layer);
    for (const std::string& warning : environment_.warnings) problem("environment", warning, false);
    return std::move(findings_);
  }

private:
  void good(std::string name, std::string state) {
    findings_.push_back({std::move(name), std::move(state), true, false});
  }
  void problem(std::string name, std::string state, bool needed) {
    findings_.push_back({std::move(name), std::move(state), false, needed});
  }
  void problem(std::string name, llvm::Error error, bool needed) {
    problem(std::move(name), takeSummary(std::move(error)).message, needed);
  }

  void examineDriver() {
    llvm::Expected<Driver> driver = openDriver(environment_.driverPath.value_or("libcuda.so.1"));
    if (!driver) return problem("driver", driver.takeError(), true);
    if (llvm::Error error = initialize(*driver)) return problem("driver", std::move(error), true);
    int version = 0;
    if (llvm::Error error = check(*driver, driver->driverGetVersion(&version), "cuDriverGetVersion"))
      return problem("driver", std::move(error), true);
    good("driver", llvm::formatv("CUDA {0}.{1}", version / 1000, version % 1000 / 10).str());
    llvm::Expected<std::vector<GpuInfo>> gpus = listGpus(*driver);
    if (!gpus) return problem("GPU", gpus.takeError(), true);
    if (gpus->empty())
      return problem("GPU", "the driver shows none; check CUDA_VISIBLE_DEVICES and the container's GPU access", true);
    for (const GpuInfo& gpu : *gpus) examineGpu(gpu);
  }

  void examineGpu(const GpuInfo& gpu) {
    const std::string name = "cuda:" + std::to_string(gpu.ordinal);
    const std::string state =
        llvm::formatv("{0}, {1}, {2}, {3} multiprocessors", gpu.name, gpu.target.arch(),
                      bytesText(static_cast<double>(gpu.memoryBytes)), gpu.target.multiprocessors);
    archs_.push_back(gpu.target);
    good(name, state);
  }

  void examineNvrtc() {
    llvm::Expected<Nvrtc> nvrtc = openNvrtc(environment_.nvrtcPath.value_or(""), environment_.cudaSearchFolders);
    if (!nvrtc) return problem("NVRTC", nvrtc.takeError(), true);
    llvm::Expected<NvrtcVersion> version = nvrtc->version();
    if (!version) return problem("NVRTC", version.takeError(), true);
    llvm::Expected<std::vector<int>> known = nvrtc->supportedArchitectures();
    if (!known) return problem("NVRTC", known.takeError(), true);
    std::vector<std::string> names;
    for (const int sm : *known) names.push_back("sm_" + std::to_string(sm));
    good("NVRTC", version->text() + ", " + nvrtc->path);
    good("", "compiles for " + llvm::join(names, " "));
    for (const Target& target : archs_)
      if (!llvm::is_contained(*known, target.sm))
        problem(
            "NVRTC",
            llvm::formatv("version {0} does not compile for {1}, the GPU here; install another version, or name one "
                          "with LATHE_NVRTC",
                          version->text(), target.arch())
                .str(),
            true);
  }

  void examineCache() {
    if (!environment_.cacheDir)
      return problem("cache", "there is no folder for it, so nothing is kept; set LATHE_CACHE_DIR", false);
    const std::string& root = *environment_.cacheDir;
    uint64_t bytes = 0;
    const std::vector<CacheEntry> entries = listCache(root);
    for (const CacheEntry& entry : entries) bytes += entry.bytes;
    good("cache", llvm::formatv("{0}, {1} kernels, {2}", root, entries.size(), bytesText(static_cast<double>(bytes))));
    examineFolder(root);
  }

  /// Whether files can be made in `root`, or in the nearest folder above it that there is.
  void examineFolder(llvm::StringRef root) {
    llvm::SmallString<128> folder(root);
    llvm::sys::fs::make_absolute(folder);
    while (!llvm::sys::fs::exists(folder) && llvm::sys::path::has_parent_path(folder))
      llvm::sys::path::remove_filename(folder);
    if (!llvm::sys::fs::is_directory(folder))
      return problem("", llvm::formatv("{0} is not a folder; remove it, or set LATHE_CACHE_DIR", folder).str(), false);
    if (llvm::sys::fs::access(folder, llvm::sys::fs::AccessMode::Write))
      return problem(
          "", llvm::formatv("{0} cannot be written to; change its owner, or set LATHE_CACHE_DIR", folder).str(), false);
    if (const auto space = llvm::sys::fs::disk_space(folder))
      good("", "writable, " + bytesText(static_cast<double>(space->available)) + " free");
  }

  void examineLayer(const std::string& layer) {
    if (llvm::sys::fs::is_directory(layer)) return good("read-only cache", layer);
    problem("read-only cache", layer + " is not a folder; correct LATHE_CACHE_PATH", false);
  }

  const Environment& environment_;
  std::vector<Target> archs_;
  std::vector<Finding> findings_;
};

void report(llvm::ArrayRef<Finding> findings, const Session& session) {
  Table table({{""}, {""}, {""}});
  for (const Finding& finding : findings)
    table.add({finding.ok ? Cell("ok", Tone::Good) : Cell(finding.needed ? "missing" : "warning", Tone::Bad),
               finding.name, finding.state});
  session.print(table);
  if (llvm::any_of(findings, [](const Finding& finding) { return finding.needed; }))
    session.out << "\nNot everything that a GPU run needs is here; the CPU reference works without it.\n";
}

llvm::json::Value jsonOf(llvm::ArrayRef<Finding> findings) {
  llvm::json::Array array;
  for (const Finding& finding : findings)
    array.push_back(llvm::json::Object{
        {"name", finding.name}, {"state", finding.state}, {"ok", finding.ok}, {"needed", finding.needed}});
  return llvm::json::Object{{"version", LATHE_VERSION}, {"findings", std::move(array)}};
}

llvm::Expected<ExitCode> examine(const DoctorOptions& options, const Session& session) {
  const std::vector<Finding> findings = Examination(session.environment).run();
  if (options.json)
    session.print(jsonOf(findings));
  else
    report(findings, session);
  const bool missing = llvm::any_of(findings, [](const Finding& finding) { return finding.needed; });
  return options.strict && missing ? ExitCode::CheckFailed : ExitCode::Ok;
}

} // namespace

void lathe::cli::addDoctorVerb(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("doctor", "Look for what Lathe needs, and say what to do where it is missing");
  const auto options = std::make_shared<DoctorOptions>();
  verb->add_flag("--strict", options->strict, "The exit code is 1 when something that a GPU run needs is missing");
  addJsonFlag(*verb, options->json);
  setAction(*verb, action, options, examine);
}
