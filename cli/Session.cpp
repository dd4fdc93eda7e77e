//===- cli/Session.cpp - What every verb is given --------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/Session.h"

using namespace lathe;
using namespace lathe::cli;

ExitCode lathe::cli::exitCodeOf(ErrorCode code) {
  const bool usage = code == ErrorCode::InvalidArgument || code == ErrorCode::InvalidWorkload;
  return usage ? ExitCode::Usage : ExitCode::Failure;
}

void Session::title(llvm::StringRef text) const {
  out << '\n';
  write(out, text, Tone::Strong, colour);
  out << '\n';
}

void Session::print(const llvm::json::Value& json) const {
  out << llvm::formatv("{0:2}", json) << '\n';
}

void lathe::cli::addJsonFlag(CLI::App& verb, bool& json) {
  verb.add_flag("--json", json, "Print JSON in place of tables")->group("Output");
}

std::shared_ptr<Runtime::Implementation> lathe::cli::makeRuntime(const Environment& environment) {
  const CompilerOptions options{.threads = environment.compileThreads.value_or(0), .spillLimit = kToleratedSpill};
  return std::make_shared<Runtime::Implementation>(environment, options, LibraryOpeners::fromEnvironment(environment));
}
