//===- cli/Completion.h - Completion scripts for shells --------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "llvm/Support/raw_ostream.h"

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace lathe::cli {

/// What a value may be.
enum class CompletionValue : uint8_t { None, Any, File, Folder, Choice };

/// An option, or the positional arguments of a command (then `name` is empty).
struct CompletionOption {
  /// With its dashes.
  std::string name;
  std::string description;
  CompletionValue value = CompletionValue::None;
  std::vector<std::string> choices;
};

/// A command such as `lathe cache ls`.
struct CompletionCommand {
  /// The words after `lathe`: empty, `cache`, `cache ls`.
  std::string path;
  std::string description;
  std::vector<CompletionOption> options;
  CompletionOption positional;
};

/// Every command of `app`, each after the one that it belongs to, read from the definitions that parsing works by.
std::vector<CompletionCommand> describeCommands(const CLI::App& app);

void writeBashCompletion(const std::vector<CompletionCommand>& commands, llvm::raw_ostream& out);
void writeZshCompletion(const std::vector<CompletionCommand>& commands, llvm::raw_ostream& out);
void writeFishCompletion(const std::vector<CompletionCommand>& commands, llvm::raw_ostream& out);

} // namespace lathe::cli
