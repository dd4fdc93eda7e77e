//===- cli/Table.h - Aligned tables ----------------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "llvm/Support/raw_ostream.h"

#include <string>
#include <vector>

namespace lathe::cli {

/// How a piece of text stands out where colours are shown.
enum class Tone : uint8_t { Plain, Strong, Faint, Good, Bad };

/// Writes `text` in `tone` if `colour`, else as it is.
void write(llvm::raw_ostream& out, llvm::StringRef text, Tone tone, bool colour);

/// One field of a table.
struct Cell {
  Cell(std::string text, Tone tone = Tone::Plain) : text(std::move(text)), tone(tone) {}
  Cell(const char* text, Tone tone = Tone::Plain) : text(text), tone(tone) {}
  Cell(llvm::StringRef text, Tone tone = Tone::Plain) : text(text.str()), tone(tone) {}

  std::string text;
  Tone tone;
};

/// A table of text whose columns line up. Columns are as wide as their widest field and two spaces apart; there are no
/// spaces at the ends of lines.
class Table {
public:
  enum class Align : uint8_t { Left, Right };
  struct Column {
    std::string title;
    Align align = Align::Left;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// A row with one cell for every column; missing ones are empty.
  void add(std::vector<Cell> row);
  bool empty() const { return rows_.empty(); }
  /// Prints the titles (unless all are empty) and the rows.
  void print(llvm::raw_ostream& out, bool colour) const;

private:
  std::vector<size_t> widths() const;
  void printRow(llvm::raw_ostream& out, const std::vector<Cell>& row, const std::vector<size_t>& widths,
                bool colour) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

/// A table without titles: names and values.
class Properties {
public:
  void add(std::string name, Cell value) { table_.add({Cell(std::move(name), Tone::Faint), std::move(value)}); }
  void print(llvm::raw_ostream& out, bool colour) const { table_.print(out, colour); }

private:
  Table table_{{{"", Table::Align::Left}, {"", Table::Align::Left}}};
};

} // namespace lathe::cli
