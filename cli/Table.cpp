//===- cli/Table.cpp - Aligned tables --------------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/Table.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Unicode.h"

#include <algorithm>

using namespace lathe::cli;

namespace {

/// Columns that `text` takes on a terminal.
size_t widthOf(llvm::StringRef text) {
  const int width = llvm::sys::unicode::columnWidthUTF8(text);
  return width < 0 ? text.size() : static_cast<size_t>(width);
}

const char* escapeOf(Tone tone) {
  switch (tone) {
  case Tone::Plain:
    return "";
  case Tone::Strong:
    return "\x1b[1m";
  case Tone::Faint:
    return "\x1b[2m";
  case Tone::Good:
    return "\x1b[32m";
  case Tone::Bad:
    return "\x1b[1;31m";
  }
  return "";
}

} // namespace

void lathe::cli::write(llvm::raw_ostream& out, llvm::StringRef text, Tone tone, bool colour) {
  if (!colour || tone == Tone::Plain)
    out << text;
  else
    out << escapeOf(tone) << text << "\x1b[0m";
}

void Table::add(std::vector<Cell> row) {
  row.resize(columns_.size(), Cell(""));
  rows_.push_back(std::move(row));
}

std::vector<size_t> Table::widths() const {
  std::vector<size_t> widths;
  for (const Column& column : columns_) widths.push_back(widthOf(column.title));
  for (const std::vector<Cell>& row : rows_)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], widthOf(row[i].text));
  return widths;
}

void Table::printRow(llvm::raw_ostream& out, const std::vector<Cell>& row, const std::vector<size_t>& widths,
                     bool colour) const {
  size_t pending = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    const size_t gap = widths[i] - widthOf(row[i].text);
    const bool right = columns_[i].align == Align::Right;
    if (right) pending += gap;
    // Spaces are held back until text follows them.
    if (!row[i].text.empty()) {
      out.indent(static_cast<unsigned>(pending));
      write(out, row[i].text, row[i].tone, colour);
      pending = 0;
    }
    pending += (right ? 0 : gap) + 2;
  }
  out << '\n';
}

void Table::print(llvm::raw_ostream& out, bool colour) const {
  const std::vector<size_t> widths = this->widths();
  if (llvm::any_of(columns_, [](const Column& column) { return !column.title.empty(); })) {
    std::vector<Cell> titles;
    for (const Column& column : columns_) titles.emplace_back(column.title, Tone::Strong);
    printRow(out, titles, widths, colour);
  }
  for (const std::vector<Cell>& row : rows_) printRow(out, row, widths, colour);
}
