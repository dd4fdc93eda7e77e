//===- cli/ManPage.h - Manual pages ----------------------------------------===//
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

/// A page: `lathe`, `lathe-run`, `lathe-cache-ls`, ...
struct ManPage {
  std::string name;
  const CLI::App* command = nullptr;
};

/// The page of `app` and of every verb below it, from the definitions that parsing works by.
std::vector<ManPage> manPages(const CLI::App& app);

/// Writes `page` in the language of man(7), as section 1. `pages` are all of them, for what it refers to.
void writeManPage(const ManPage& page, const std::vector<ManPage>& pages, llvm::raw_ostream& out);

} // namespace lathe::cli
