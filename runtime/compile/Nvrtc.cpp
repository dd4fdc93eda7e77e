//===- runtime/compile/Nvrtc.cpp - The run-time compiler ------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/compile/Nvrtc.h"

#include "runtime/driver/DynamicLibrary.h"
#include "templates/EmbeddedTemplates.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <set>

using namespace lathe;

namespace {

constexpr const char* kInstallNvrtc = "install it with `pip install nvidia-cuda-nvrtc` (CUDA 12: "
                                      "`nvidia-cuda-nvrtc-cu12`) or with the CUDA toolkit, or name "
                                      "its path";
constexpr const char* kLibraryNames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
/// Errors whose source is shown, and lines shown before and after each.
constexpr size_t kQuotedErrors = 5;
constexpr int kContextLines = 2;

llvm::Error check(const Nvrtc& nvrtc, nvrtcResult result, llvm::StringRef what) {
  if (result == NVRTC_SUCCESS) return llvm::Error::success();
  ErrorCode code = result == NVRTC_ERROR_COMPILATION ? ErrorCode::Compile : ErrorCode::Internal;
  const char* advice = result == NVRTC_ERROR_OUT_OF_MEMORY ? "; free host memory or compile on fewer threads"
                       : result == NVRTC_ERROR_BUILTIN_OPERATION_FAILURE
                           ? "; libnvrtc-builtins must lie in the same folder as libnvrtc and have its version"
                           : "";
  return makeError(code, "{0} of '{1}' failed: {2}{3}", what, nvrtc.path, nvrtc.getErrorString(result), advice);
}

/// Fills the table from `path`.
llvm::Expected<Nvrtc> load(llvm::StringRef path) {
  llvm::Expected<DynamicLibrary> library = DynamicLibrary::open(path);
  if (!library) return library.takeError();
  Nvrtc nvrtc;
  nvrtc.path = path.str();
  std::string missing;
  forEachEntry(nvrtc, [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library->find(name));
    if (!function) missing += (missing.empty() ? "" : ", ") + std::string(name);
  });
  if (!missing.empty()) return makeError(ErrorCode::MissingLibrary, "'{0}' lacks {1}", path, missing);
  return nvrtc;
}

/// Every path to try, in order.
std::vector<std::string> candidates(llvm::ArrayRef<std::string> searchFolders) {
  std::vector<std::string> paths;
  for (const std::string& folder : searchFolders) {
    for (const char* name : kLibraryNames) {
      llvm::SmallString<128> path(folder);
      llvm::sys::path::append(path, name);
      if (llvm::sys::fs::exists(path)) paths.push_back(path.str().str());
    }
  }
  paths.insert(paths.end(), std::begin(kLibraryNames), std::end(kLibraryNames));
  return paths;
}

/// The versions of all libnvrtc-builtins in `folder`.
std::vector<NvrtcVersion> builtinsIn(llvm::StringRef folder) {
  std::vector<NvrtcVersion> versions;
  std::error_code code;
  for (llvm::sys::fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
    llvm::StringRef name = llvm::sys::path::filename(it->path());
    NvrtcVersion version;
    // What follows the minor number, if anything, is the number of a patch.
    if (name.consume_front("libnvrtc-builtins.so.") && !name.consumeInteger(10, version.major) &&
        name.consume_front(".") && !name.consumeInteger(10, version.minor) && !llvm::is_contained(versions, version))
      versions.push_back(version);
  }
  return versions;
}

/// A program and its destruction.
class Program {
public:
  static llvm::Expected<Program> create(const Nvrtc& nvrtc, const CompileRequest& request) {
    llvm::SmallVector<const char*, 32> texts, names;
    // The embedded texts are string literals: their views end in a zero.
    for (const EmbeddedTemplate& file : embeddedTemplates()) {
      names.push_back(file.name.data());
      texts.push_back(file.text.data());
    }
    nvrtcProgram program = nullptr;
    nvrtcResult result = nvrtc.createProgram(&program, request.source.c_str(), request.name.c_str(),
                                             static_cast<int>(names.size()), texts.data(), names.data());
    if (llvm::Error error = check(nvrtc, result, "nvrtcCreateProgram")) return error;
    return Program(nvrtc, program);
  }
  Program(Program&& other) noexcept : nvrtc_(other.nvrtc_), program_(std::exchange(other.program_, nullptr)) {}
  Program& operator=(Program&&) = delete;
  ~Program() {
    if (program_) nvrtc_->destroyProgram(&program_);
  }

  nvrtcResult compile(llvm::ArrayRef<std::string> options) const {
    llvm::SmallVector<const char*, 16> arguments;
    for (const std::string& option : options) arguments.push_back(option.c_str());
    return nvrtc_->compileProgram(program_, static_cast<int>(arguments.size()), arguments.data());
  }

  llvm::Expected<std::string> log() const {
    size_t size = 0;
    if (llvm::Error error = check(*nvrtc_, nvrtc_->getProgramLogSize(program_, &size), "nvrtcGetProgramLogSize"))
      return error;
    std::string text(size, '\0');
    if (llvm::Error error = check(*nvrtc_, nvrtc_->getProgramLog(program_, text.data()), "nvrtcGetProgramLog"))
      return error;
    // The size counts the final zero.
    return llvm::StringRef(text).rtrim('\0').rtrim().str();
  }

  llvm::Expected<std::string> cubin() const {
    size_t size = 0;
    if (llvm::Error error = check(*nvrtc_, nvrtc_->getCubinSize(program_, &size), "nvrtcGetCUBINSize")) return error;
    std::string bytes(size, '\0');
    if (llvm::Error error = check(*nvrtc_, nvrtc_->getCubin(program_, bytes.data()), "nvrtcGetCUBIN")) return error;
    return bytes;
  }

private:
  Program(const Nvrtc& nvrtc, nvrtcProgram program) : nvrtc_(&nvrtc), program_(program) {}

  const Nvrtc* nvrtc_;
  nvrtcProgram program_;
};

/// A place that the log names.
struct SourcePlace {
  std::string file;
  int line = 0;

  friend auto operator<=>(const SourcePlace&, const SourcePlace&) = default;
};

/// The places of `file(line): ... error` in `log`, each once, in order.
std::vector<SourcePlace> errorPlaces(llvm::StringRef log) {
  std::vector<SourcePlace> places;
  std::set<SourcePlace> seen;
  for (llvm::StringRef line : llvm::split(log, '\n')) {
    auto [place, rest] = line.split("): ");
    if (!rest.starts_with("error") && !rest.starts_with("catastrophic error")) continue;
    auto [file, number] = place.rsplit('(');
    SourcePlace found{file.str(), 0};
    if (number.getAsInteger(10, found.line) || !seen.insert(found).second) continue;
    places.push_back(std::move(found));
  }
  return places;
}

/// The text of `file`: the unit's or an embedded template's; empty for any other.
llvm::StringRef textOf(llvm::StringRef file, const CompileRequest& request) {
  if (file == request.name) return request.source;
  for (const EmbeddedTemplate& embedded : embeddedTemplates())
    if (file == llvm::StringRef(embedded.name)) return embedded.text;
  return {};
}

/// The lines around `place`, numbered, the line itself marked.
void quote(llvm::raw_ostream& os, const SourcePlace& place, const CompileRequest& request) {
  llvm::StringRef text = textOf(place.file, request);
  if (text.empty()) return;
  os << "\n" << place.file << ", line " << place.line << ":\n";
  int number = 0;
  for (llvm::StringRef line : llvm::split(text.rtrim('\n'), '\n')) {
    if (++number < place.line - kContextLines) continue;
    if (number > place.line + kContextLines) break;
    os << (number == place.line ? ">" : " ") << llvm::formatv("{0,5} | {1}\n", number, line);
  }
}

llvm::Error rejected(const Nvrtc& nvrtc, const CompileRequest& request, llvm::StringRef log) {
  std::string message;
  llvm::raw_string_ostream os(message);
  os << "NVRTC ('" << nvrtc.path << "') rejected '" << request.name << "' for " << request.arch << ":\n" << log << "\n";
  std::vector<SourcePlace> places = errorPlaces(log);
  for (const SourcePlace& place : llvm::ArrayRef(places).take_front(kQuotedErrors)) quote(os, place, request);
  return llvm::make_error<LatheError>(ErrorCode::Compile, llvm::StringRef(message).rtrim().str());
}

/// Explains an option that NVRTC does not know: the architecture, or one of the request's.
llvm::Error invalidOption(const Nvrtc& nvrtc, const CompileRequest& request, llvm::StringRef log) {
  llvm::Expected<std::vector<int>> known = nvrtc.supportedArchitectures();
  if (!known) return known.takeError();
  if (!log.contains("arch"))
    return makeError(ErrorCode::InvalidArgument, "NVRTC ('{0}') refuses an option of '{1}' ({2}): {3}", nvrtc.path,
                     request.name, llvm::join(request.options, " "), log);
  std::string list;
  for (int arch : *known) list += (list.empty() ? "sm_" : ", sm_") + std::to_string(arch);
  return makeError(
      ErrorCode::Unsupported,
      "NVRTC ('{0}') cannot compile '{1}' for '{2}': it knows {3}. Choose one of these, or install a newer "
      "NVRTC",
      nvrtc.path, request.name, request.arch, list);
}

} // namespace

llvm::Expected<NvrtcVersion> Nvrtc::version() const {
  NvrtcVersion version;
  if (llvm::Error error = check(*this, getVersion(&version.major, &version.minor), "nvrtcVersion")) return error;
  return version;
}

llvm::Expected<std::vector<int>> Nvrtc::supportedArchitectures() const {
  int count = 0;
  if (llvm::Error error = check(*this, getNumSupportedArchs(&count), "nvrtcGetNumSupportedArchs")) return error;
  std::vector<int> architectures(count);
  if (llvm::Error error = check(*this, getSupportedArchs(architectures.data()), "nvrtcGetSupportedArchs")) return error;
  return architectures;
}

llvm::Expected<Nvrtc> lathe::openNvrtc(llvm::StringRef path, llvm::ArrayRef<std::string> searchFolders) {
  std::vector<std::string> paths = path.empty() ? candidates(searchFolders) : std::vector<std::string>{path.str()};
  std::string reasons;
  for (const std::string& candidate : paths) {
    llvm::Expected<Nvrtc> nvrtc = load(candidate);
    if (nvrtc) return nvrtc;
    reasons += "\n  " + takeSummary(nvrtc.takeError()).message;
  }
  std::string folders = searchFolders.empty() ? "none" : llvm::join(searchFolders, ", ");
  return makeError(ErrorCode::MissingLibrary,
                   "NVRTC, the CUDA run-time compiler, was not found: {0}. Tried (folders searched: {1}):{2}",
                   kInstallNvrtc, path.empty() ? folders : "none, as a path was given", reasons);
}

std::optional<NvrtcVersion> lathe::nvrtcVersionByName(llvm::StringRef path, llvm::ArrayRef<std::string> searchFolders) {
  const std::string library = path.empty() ? candidates(searchFolders).front() : path.str();
  const llvm::StringRef folder = llvm::sys::path::parent_path(library);
  // Without a folder the system's loader decides.
  if (folder.empty() || !llvm::sys::fs::exists(library)) return std::nullopt;
  std::vector<NvrtcVersion> versions = builtinsIn(folder);
  llvm::StringRef name = llvm::sys::path::filename(library);
  if (int major = 0; name.consume_front("libnvrtc.so.") && !name.consumeInteger(10, major))
    llvm::erase_if(versions, [&](const NvrtcVersion& version) { return version.major != major; });
  if (versions.size() != 1) return std::nullopt;
  return versions.front();
}

std::vector<std::string> lathe::defaultOptions(llvm::StringRef arch) {
  return {"--gpu-architecture=" + arch.str(),
          "--std=c++17",
          "--device-as-default-execution-space",
          "--fmad=true",
          "--prec-div=true",
          "--prec-sqrt=true",
          "--ftz=false"};
}

llvm::Expected<CompileOutput> lathe::compile(const Nvrtc& nvrtc, const CompileRequest& request) {
  // A virtual architecture (`compute_90`) would give PTX, and the driver would compile it at load time.
  if (!llvm::StringRef(request.arch).starts_with("sm_"))
    return makeError(ErrorCode::InvalidArgument,
                     "'{0}' is to be compiled for '{1}', which is no architecture; give one such as sm_80 or sm_90a",
                     request.name, request.arch);
  llvm::Expected<Program> program = Program::create(nvrtc, request);
  if (!program) return program.takeError();

  std::vector<std::string> options = defaultOptions(request.arch);
  options.insert(options.end(), request.options.begin(), request.options.end());
  nvrtcResult result = program->compile(options);
  llvm::Expected<std::string> log = program->log();
  if (!log) return log.takeError();
  if (result == NVRTC_ERROR_COMPILATION) return rejected(nvrtc, request, *log);
  if (result == NVRTC_ERROR_INVALID_OPTION) return invalidOption(nvrtc, request, *log);
  std::string what = "nvrtcCompileProgram" + (log->empty() ? "" : " (" + *log + ")");
  if (llvm::Error error = check(nvrtc, result, what)) return error;

  llvm::Expected<std::string> cubin = program->cubin();
  if (!cubin) return cubin.takeError();
  return CompileOutput{std::move(*cubin), std::move(*log)};
}
