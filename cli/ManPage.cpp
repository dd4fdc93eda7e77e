//===- cli/ManPage.cpp - Manual pages --------------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/ManPage.h"

#include "cli/Help.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"

using namespace lathe::cli;

namespace {

/// `text` as man(7) shows it: no character of it is a request or an escape.
std::string roff(llvm::StringRef text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\')
      result += "\\e";
    else if (c == '-')
      result += "\\-";
    else
      result += c;
  }
  if (result.starts_with(".") || result.starts_with("'")) result.insert(0, "\\&");
  return result;
}

void addPages(const CLI::App& command, const std::string& name, std::vector<ManPage>& pages) {
  pages.push_back({name, &command});
  for (const CLI::App* child : command.get_subcommands([](const CLI::App*) { return true; }))
    addPages(*child, name + "-" + child->get_name(), pages);
}

/// The words of the command: `lathe cache ls`.
std::string wordsOf(const ManPage& page) {
  std::string words = page.name;
  std::replace(words.begin(), words.end(), '-', ' ');
  return words;
}

std::string valueOf(const CLI::Option& option) {
  return HelpFormatter().make_option_opts(&option);
}

void writeSynopsis(const ManPage& page, llvm::raw_ostream& out) {
  out << ".SH SYNOPSIS\n.B " << roff(wordsOf(page)) << '\n';
  if (page.command->get_require_subcommand_min() > 0) out << ".I verb\n";
  for (const CLI::Option* option : page.command->get_options())
    if (option->get_positional())
      out << (option->get_required() ? ".I " : ".RI [ ") << roff(option->get_single_name())
          << (option->get_expected_max() > option->get_expected_min() ? " ..." : "")
          << (option->get_required() ? "\n" : " ]\n");
  out << ".RI [ options ]\n";
}

void writeOption(const CLI::Option& option, llvm::raw_ostream& out) {
  const std::string name = option.get_positional() ? option.get_single_name() : option.get_name(false, true);
  out << ".TP\n"
      << (option.get_positional() ? ".I " : ".B ") << roff(name) << roff(valueOf(option)) << '\n'
      << roff(option.get_description()) << '\n';
}

/// The options, those of a group together, groups in the order of their first option.
void writeOptions(const CLI::App& command, llvm::raw_ostream& out) {
  std::vector<std::string> groups;
  for (const CLI::Option* option : command.get_options())
    if (!llvm::is_contained(groups, option->get_group())) groups.push_back(option->get_group());
  if (groups.empty()) return;
  out << ".SH OPTIONS\n";
  for (const std::string& group : groups) {
    if (group != "OPTIONS" && group != "Options") out << ".SS " << roff(group) << '\n';
    for (const CLI::Option* option : command.get_options())
      if (option->get_group() == group) writeOption(*option, out);
  }
}

void writeVerbs(const ManPage& page, llvm::raw_ostream& out) {
  const std::vector<const CLI::App*> verbs = page.command->get_subcommands([](const CLI::App*) { return true; });
  if (verbs.empty()) return;
  out << ".SH VERBS\n";
  for (const CLI::App* verb : verbs)
    out << ".TP\n.BR " << roff(page.name + "-" + verb->get_name()) << " (1)\n" << roff(verb->get_description()) << '\n';
}

/// The footer of the help, line by line as it stands there.
void writeFooter(const CLI::App& command, llvm::raw_ostream& out) {
  const std::string footer = command.get_footer();
  if (footer.empty()) return;
  out << ".SH NOTES\n.nf\n";
  for (const llvm::StringRef line : llvm::split(llvm::StringRef(footer).trim('\n'), '\n'))
    out << (line.empty() ? ".sp" : roff(line)) << '\n';
  out << ".fi\n";
}

/// The page above, and those beside it.
void writeSeeAlso(const ManPage& page, const std::vector<ManPage>& pages, llvm::raw_ostream& out) {
  const llvm::StringRef name = page.name;
  const llvm::StringRef above = name.rsplit('-').first;
  std::vector<std::string> others;
  for (const ManPage& other : pages) {
    const bool beside = other.name != page.name && llvm::StringRef(other.name).rsplit('-').first == above;
    if (name.contains('-') && (other.name == above || beside)) others.push_back(other.name);
  }
  if (others.empty()) return;
  out << ".SH SEE ALSO\n";
  for (size_t i = 0; i < others.size(); ++i)
    out << ".BR " << roff(others[i]) << " (1)" << (i + 1 < others.size() ? "," : "") << '\n';
}

} // namespace

std::vector<ManPage> lathe::cli::manPages(const CLI::App& app) {
  std::vector<ManPage> pages;
  addPages(app, app.get_name(), pages);
  return pages;
}

void lathe::cli::writeManPage(const ManPage& page, const std::vector<ManPage>& pages, llvm::raw_ostream& out) {
  out << ".TH " << llvm::StringRef(page.name).upper() << " 1 \"\" \"lathe " LATHE_VERSION "\" \"Lathe\"\n"
      << ".SH NAME\n"
      << roff(page.name) << " \\- " << roff(page.command->get_description()) << '\n';
  writeSynopsis(page, out);
  writeVerbs(page, out);
  writeOptions(*page.command, out);
  writeFooter(*page.command, out);
  writeSeeAlso(page, pages, out);
}
