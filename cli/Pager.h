//===- cli/Pager.h - Long output, page by page ------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdio>
#include <memory>

namespace lathe::cli {

/// A pager that was started: $PAGER, else `less`. What is written to `out()` goes to it; the destructor waits for the
/// reader to leave it.
class Pager {
public:
  /// Starts the pager when standard output is a terminal and there is one; else none.
  static std::unique_ptr<Pager> start();
  ~Pager();
  Pager(const Pager&) = delete;
  Pager& operator=(const Pager&) = delete;

  llvm::raw_ostream& out() { return *out_; }

private:
  explicit Pager(FILE* pipe);

  FILE* pipe_;
  std::unique_ptr<llvm::raw_fd_ostream> out_;
};

/// Columns of the terminal that standard output is, or of $COLUMNS; none where neither says.
std::optional<int> terminalColumns();

} // namespace lathe::cli
