//===- cli/Session.h - What every verb is given ----------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "cli/Table.h"
#include "generator/Error.h"
#include "runtime/api/RuntimeImplementation.h"

#include "llvm/Support/JSON.h"

#include <CLI/CLI.hpp>

#include <functional>

namespace lathe::cli {

/// What the process tells its caller.
enum class ExitCode : int { Ok = 0, CheckFailed = 1, Usage = 2, Failure = 3 };

/// 2 for what the command line describes wrongly, 3 for everything else.
ExitCode exitCodeOf(ErrorCode code);

/// Where a verb writes, and what Lathe's environment variables say.
struct Session {
  llvm::raw_ostream& out;
  llvm::raw_ostream& err;
  /// Colours on `out`; a line that is redrawn on `err`.
  bool colour = false;
  bool progress = false;
  Environment environment;

  void print(const Table& table) const { table.print(out, colour); }
  void print(const Properties& properties) const { properties.print(out, colour); }
  void title(llvm::StringRef text) const;
  /// Prints indented JSON and a newline.
  void print(const llvm::json::Value& json) const;
  /// A remark for people, on `err`.
  void note(llvm::StringRef text) const { err << "lathe: " << text << '\n'; }
};

/// The verb that was given, bound to its options.
using Action = std::function<llvm::Expected<ExitCode>(const Session&)>;

/// Makes `function(options, session)` the action when `verb` is on the command line.
template <class Options>
void setAction(CLI::App& verb, Action& action, std::shared_ptr<Options> options,
               llvm::Expected<ExitCode> (*function)(const Options&, const Session&)) {
  verb.callback([&action, options = std::move(options), function] {
    action = [options, function](const Session& session) { return function(*options, session); };
  });
}

/// Adds `--json`.
void addJsonFlag(CLI::App& verb, bool& json);

/// A runtime that works as `environment` says.
std::shared_ptr<Runtime::Implementation> makeRuntime(const Environment& environment);

} // namespace lathe::cli
