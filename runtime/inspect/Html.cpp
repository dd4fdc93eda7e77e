//===- runtime/inspect/Html.cpp - Writing HTML and SVG ----------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/inspect/Html.h"

#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

using namespace lathe;

std::string lathe::escapeHtml(llvm::StringRef text) {
  const std::string valid = llvm::json::isUTF8(text) ? text.str() : llvm::json::fixUTF8(text);
  std::string result;
  result.reserve(valid.size());
  for (const char c : valid) {
    switch (c) {
    case '&':
      result += "&amp;";
      break;
    case '<':
      result += "&lt;";
      break;
    case '>':
      result += "&gt;";
      break;
    case '"':
      result += "&quot;";
      break;
    case '\'':
      result += "&#39;";
      break;
    default:
      result += c;
    }
  }
  return result;
}

std::string lathe::escapeJsonForScript(llvm::StringRef json) {
  std::string result;
  result.reserve(json.size());
  // In JSON `<` stands in strings alone.
  for (const char c : json) c == '<' ? result += "\\u003c" : result += c;
  return result;
}

std::string HtmlTable::html() const {
  std::string text;
  llvm::raw_string_ostream os(text);
  const auto classOf = [&](size_t column, bool bad) {
    const std::string names = std::string(columns_[column].numbers ? "n" : "") + (bad ? " bad" : "");
    return names.empty() ? "" : " class=\"" + names + "\"";
  };
  os << "<div class=\"scroll\"><table>\n<caption class=\"note\">" << escapeHtml(caption_) << "</caption>\n<thead><tr>";
  for (size_t i = 0; i < columns_.size(); ++i)
    os << "<th scope=\"col\"" << classOf(i, false) << ">" << escapeHtml(columns_[i].title) << "</th>";
  os << "</tr></thead>\n<tbody>\n";
  for (const std::vector<Cell>& row : rows_) {
    os << "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      os << "<td" << classOf(i, row[i].bad) << ">";
      if (row[i].kernel.empty())
        os << escapeHtml(row[i].text);
      else
        os << "<a href=\"#code\" data-kernel=\"" << escapeHtml(row[i].kernel) << "\">" << escapeHtml(row[i].text)
           << "</a>";
      os << "</td>";
    }
    os << "</tr>\n";
  }
  os << "</tbody></table></div>\n";
  return text;
}
