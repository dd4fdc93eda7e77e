//===- cli/Help.h - How help is laid out -----------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include <CLI/CLI.hpp>

namespace lathe::cli {

/// CLI11's layout with the choices of an option as `a|b`, no list of the options that exclude it, and one empty line
/// between groups.
class HelpFormatter : public CLI::Formatter {
public:
  HelpFormatter();
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
};

} // namespace lathe::cli
