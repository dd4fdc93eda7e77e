//===- cli/Help.cpp - How help is laid out ---------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/Help.h"

#include "llvm/ADT/StringRef.h"

#include <algorithm>

using namespace lathe::cli;

HelpFormatter::HelpFormatter() {
  column_width(34);
  label("OPTIONS", "options");
  label("SUBCOMMAND", "verb");
  label("Subcommands", "Verbs");
}

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  if (option->get_items_expected_max() == 0) return "";
  const std::string type = option->get_type_name();
  const llvm::StringRef set = llvm::StringRef(type).split('{').second;
  std::string text = set.empty() ? type : set.split('}').first.str();
  std::replace(text.begin(), text.end(), ',', '|');
  return " " + text + (option->get_expected_max() > option->get_expected_min() ? "..." : "");
}

std::string HelpFormatter::make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const {
  std::string help = CLI::Formatter::make_help(app, std::move(name), mode);
  for (size_t at = help.find("\n\n\n"); at != std::string::npos; at = help.find("\n\n\n", at)) help.erase(at, 1);
  return help;
}
