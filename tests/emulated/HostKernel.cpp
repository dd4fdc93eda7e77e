//===- tests/emulated/HostKernel.cpp - A generated kernel on the CPU ------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tests/emulated/HostKernel.h"

#include "generator/Error.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

using namespace lathe;
using namespace lathe::test;

namespace {

/// Reads one asm statement: `asm [volatile] ("text" : "=r"(out), ... : "r"(in), ... : "memory");`
class AsmStatement {
public:
  /// `rest` begins behind `asm`.
  explicit AsmStatement(llvm::StringRef rest) : rest_(rest) {}

  /// The call; none when the statement is not understood. `rest()` then begins behind the statement.
  std::optional<std::string> call() {
    take("volatile");
    if (!take("(")) return std::nullopt;
    const std::string text = strings();
    std::string operands;
    // Outputs and inputs; what follows the third colon are clobbers.
    for (int colons = 0; colons < 3;) {
      if (take("::"))
        colons += 2;
      else if (take(":"))
        ++colons;
      else if (take(")"))
        return name(text) + "(" + operands + ")";
      else if (colons == 3)
        break;
      else if (!operand(operands))
        return std::nullopt;
      take(",");
    }
    strings();
    if (!take(")")) return std::nullopt;
    return name(text) + "(" + operands + ")";
  }
  llvm::StringRef rest() const { return rest_; }

private:
  bool take(llvm::StringRef token) {
    rest_ = rest_.ltrim();
    return rest_.consume_front(token);
  }

  /// Neighbouring string literals, joined. None has an escaped quote.
  std::string strings() {
    std::string text;
    while (take("\"")) {
      const size_t end = rest_.find('"');
      text += rest_.take_front(end);
      rest_ = rest_.drop_front(std::min(end + 1, rest_.size()));
    }
    return text;
  }

  /// `"constraint"(expression)`.
  bool operand(std::string& operands) {
    if (strings().empty() || !take("(")) return false;
    int depth = 1;
    size_t end = 0;
    for (; end < rest_.size() && depth > 0; ++end) depth += rest_[end] == '(' ? 1 : rest_[end] == ')' ? -1 : 0;
    if (depth != 0) return false;
    operands += (operands.empty() ? "" : ", ") + rest_.take_front(end - 1).str();
    rest_ = rest_.drop_front(end);
    return true;
  }

  static std::string name(llvm::StringRef text) {
    std::string result = "::emulator::ptx_";
    for (const char c : text.take_until([](char c) { return c == ' ' || c == ';'; }))
      result += llvm::isAlnum(c) ? c : '_';
    return result;
  }

  llvm::StringRef rest_;
};

/// The whole translation unit for the host.
llvm::Expected<std::string> hostSource(const Specialization& specialization) {
  auto body = callInstructions(specialization.flattened());
  if (!body) return body.takeError();
  return llvm::formatv("#include \"tests/emulated/CudaOnHost.h\"\n{0}\n"
                       "extern \"C\" __attribute__((visibility(\"default\"))) void lathe_run(const void* parameter, "
                       "const unsigned (&grid)[3], unsigned threads, "
                       "unsigned sharedBytes, unsigned seed) {{\n"
                       "  emulator::launch({1}, parameter, grid, threads, sharedBytes, seed);\n}\n",
                       *body, specialization.entry)
      .str();
}

llvm::Error write(llvm::StringRef path, llvm::StringRef text) {
  std::error_code code;
  llvm::raw_fd_ostream file(path, code);
  if (code) return makeError(ErrorCode::Io, "{0}: {1}", path, code.message());
  file << text;
  return llvm::Error::success();
}

} // namespace

llvm::Expected<std::string> lathe::test::callInstructions(llvm::StringRef source) {
  std::string result;
  while (true) {
    const size_t at = source.find("asm");
    if (at == llvm::StringRef::npos) break;
    result += source.take_front(at);
    const bool word = (at == 0 || !llvm::isAlnum(source[at - 1])) &&
                      (source.substr(at + 3).starts_with("(") || source.substr(at + 3).starts_with(" volatile"));
    if (!word) {
      result += "asm";
      source = source.drop_front(at + 3);
      continue;
    }
    AsmStatement statement(source.drop_front(at + 3));
    const auto call = statement.call();
    if (!call)
      return makeError(ErrorCode::Corrupt, "an asm statement is not understood: {0}",
                       source.drop_front(at).take_until([](char c) { return c == '\n'; }));
    result += *call;
    source = statement.rest();
  }
  result += source;
  // Dynamic shared memory is defined in CudaOnHost.h.
  for (size_t at; (at = result.find("extern __shared__ __align__(1024)")) != std::string::npos;)
    result.replace(at, 33, "extern");
  return result;
}

llvm::Expected<HostKernel> HostKernel::compile(const Specialization& specialization, llvm::StringRef folder) {
  auto source = hostSource(specialization);
  if (!source) return source.takeError();
  const std::string base = (folder + "/" + specialization.entry + "-" + specialization.sourceDigest.hex()).str();
  const std::string file = base + ".cpp", library = base + ".so", log = base + ".log";
  if (llvm::Error error = write(file, *source)) return error;

  const llvm::StringRef arguments[] = {LATHE_CXX_COMPILER, "-std=c++20", "-O1", "-w", "-fPIC", "-shared",
                                       // Units share names: `Config` is another struct in each.
                                       "-fvisibility=hidden", "-I" LATHE_SOURCE, file, "-o", library};
  const std::optional<llvm::StringRef> redirects[] = {std::nullopt, llvm::StringRef(log), llvm::StringRef(log)};
  if (llvm::sys::ExecuteAndWait(LATHE_CXX_COMPILER, arguments, std::nullopt, redirects) != 0) {
    const auto text = llvm::MemoryBuffer::getFile(log);
    return makeError(ErrorCode::Compile, "{0}: {1}", file, text ? (*text)->getBuffer() : "the compiler failed");
  }
  std::string reason;
  llvm::sys::DynamicLibrary loaded = llvm::sys::DynamicLibrary::getLibrary(library.c_str(), &reason);
  auto* run = reinterpret_cast<Run>(loaded.isValid() ? loaded.getAddressOfSymbol("lathe_run") : nullptr);
  if (!run) return makeError(ErrorCode::Io, "{0}: {1}", library, reason);
  return HostKernel(run, static_cast<unsigned>(specialization.threads),
                    static_cast<unsigned>(specialization.sharedBytes));
}
