//===- runtime/inspect/Html.h - Writing HTML and SVG ------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <string>
#include <vector>

namespace lathe {

/// `text` with `&`, `<`, `>` and quotes as entities; bytes that are no UTF-8 are replaced.
std::string escapeHtml(llvm::StringRef text);

/// `json` so that it may stand in a `<script>`: no `<` is left in it.
std::string escapeJsonForScript(llvm::StringRef json);

/// A table in the making. Texts are escaped; columns marked `numbers` are set to the right.
class HtmlTable {
public:
  struct Column {
    std::string title;
    bool numbers = false;
  };
  struct Cell {
    Cell(std::string text, bool bad = false) : text(std::move(text)), bad(bad) {}
    Cell(const char* text) : text(text) {}
    Cell(llvm::StringRef text) : text(text.str()) {}

    std::string text;
    bool bad = false;
    /// For the first cell of a row: the kernel that it leads to.
    std::string kernel;
  };

  HtmlTable(std::string caption, std::vector<Column> columns)
      : caption_(std::move(caption)), columns_(std::move(columns)) {}

  void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  std::string html() const;

private:
  std::string caption_;
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

} // namespace lathe
