//===- cli/Completion.cpp - Completion scripts for shells ------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/Completion.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"

using namespace lathe::cli;

namespace {

/// Reads a value's kind from the name of its type: `FILE`, `DIR`, `TEXT:{bf16,fp16}`.
void readValue(const CLI::Option& option, CompletionOption& out) {
  if (option.get_items_expected_max() == 0) return;
  const std::string type = option.get_type_name();
  const auto [before, set] = llvm::StringRef(type).split('{');
  out.value = CompletionValue::Any;
  if (!set.empty()) {
    out.value = CompletionValue::Choice;
    llvm::SmallVector<llvm::StringRef> words;
    set.split('}').first.split(words, ',');
    for (const llvm::StringRef word : words) out.choices.push_back(word.trim().str());
  } else if (before == "FILE") {
    out.value = CompletionValue::File;
  } else if (before == "DIR") {
    out.value = CompletionValue::Folder;
  }
}

CompletionCommand describe(const CLI::App& command, const std::string& path) {
  CompletionCommand result{path, command.get_description(), {}, {}};
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional()) {
      readValue(*option, result.positional);
      continue;
    }
    for (const std::string& name : option->get_lnames()) {
      CompletionOption described{"--" + name, option->get_description(), CompletionValue::None, {}};
      readValue(*option, described);
      result.options.push_back(std::move(described));
    }
  }
  return result;
}

void describeAll(const CLI::App& command, const std::string& path, std::vector<CompletionCommand>& out) {
  out.push_back(describe(command, path));
  // Without a group a command is not for people.
  for (const CLI::App* child : command.get_subcommands([](const CLI::App* verb) { return !verb->get_group().empty(); }))
    describeAll(*child, path.empty() ? child->get_name() : path + " " + child->get_name(), out);
}

/// The path of the command that `command` belongs to, and its own last word.
std::pair<llvm::StringRef, llvm::StringRef> splitPath(const CompletionCommand& command) {
  const llvm::StringRef path = command.path;
  return path.contains(' ') ? path.rsplit(' ') : std::pair(llvm::StringRef(), path);
}

/// The commands that belong to `parent`.
std::vector<const CompletionCommand*> childrenOf(const std::vector<CompletionCommand>& commands,
                                                 const CompletionCommand& parent) {
  std::vector<const CompletionCommand*> children;
  for (const CompletionCommand& command : commands)
    if (!command.path.empty() && splitPath(command).first == parent.path) children.push_back(&command);
  return children;
}

/// `" run"`, `"cache ls"`, ...: a path and the next word, for each word that leads to another command.
std::vector<std::string> stepsBetween(const std::vector<CompletionCommand>& commands) {
  std::vector<std::string> steps;
  for (const CompletionCommand& command : commands)
    if (!command.path.empty())
      steps.push_back(("\"" + splitPath(command).first + " " + splitPath(command).second + "\"").str());
  return steps;
}

/// `text` in single quotes for bash and zsh.
std::string shellQuoted(llvm::StringRef text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

/// `text` in single quotes for fish.
std::string quotedForFish(llvm::StringRef text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c;
  }
  return result + "'";
}

//===-- bash --------------------------------------------------------------===//

std::string bashWords(const CompletionOption& option) {
  switch (option.value) {
  case CompletionValue::File:
    return "-f";
  case CompletionValue::Folder:
    return "-d";
  case CompletionValue::Choice:
    return "-W " + shellQuoted(llvm::join(option.choices, " "));
  case CompletionValue::None:
  case CompletionValue::Any:
    return "-W ''";
  }
  return "";
}

void writeBashCommand(const std::vector<CompletionCommand>& commands, const CompletionCommand& command,
                      llvm::raw_ostream& out) {
  std::vector<std::string> options, children;
  for (const CompletionOption& option : command.options) options.push_back(option.name);
  for (const CompletionCommand* child : childrenOf(commands, command))
    children.push_back(splitPath(*child).second.str());
  const std::string words =
      children.empty() ? bashWords(command.positional) : "-W " + shellQuoted(llvm::join(children, " "));
  out << "    " << shellQuoted(command.path) << ")\n"
      << "      if [[ $word == -* ]]; then COMPREPLY=($(compgen -W " << shellQuoted(llvm::join(options, " "))
      << " -- \"$word\"))\n"
      << "      else COMPREPLY=($(compgen " << words << " -- \"$word\")); fi ;;\n";
}

//===-- zsh ---------------------------------------------------------------===//

std::string zshWords(const CompletionOption& option) {
  switch (option.value) {
  case CompletionValue::File:
    return "_files";
  case CompletionValue::Folder:
    return "_files -/";
  case CompletionValue::Choice:
    return "compadd -- " + llvm::join(option.choices, " ");
  case CompletionValue::None:
  case CompletionValue::Any:
    return ":";
  }
  return "";
}

/// An entry of `_describe`: a colon parts the word from its description.
std::string zshEntry(llvm::StringRef word, llvm::StringRef description) {
  return shellQuoted((word + ":" + description).str());
}

void writeZshCommand(const std::vector<CompletionCommand>& commands, const CompletionCommand& command,
                     llvm::raw_ostream& out) {
  out << "    " << shellQuoted(command.path) << ")\n      entries=(";
  for (const CompletionOption& option : command.options)
    out << "\n        " << zshEntry(option.name, option.description);
  out << ")\n      if [[ ${words[CURRENT]} == -* ]]; then _describe -o option entries; return; fi\n";
  const std::vector<const CompletionCommand*> children = childrenOf(commands, command);
  if (children.empty()) {
    out << "      " << zshWords(command.positional) << " ;;\n";
    return;
  }
  out << "      entries=(";
  for (const CompletionCommand* child : children)
    out << "\n        " << zshEntry(splitPath(*child).second, child->description);
  out << ")\n      _describe command entries ;;\n";
}

/// The part that bash and zsh share: a case for each option that has a value.
void writeValueCases(const std::vector<CompletionCommand>& commands, llvm::raw_ostream& out,
                     llvm::function_ref<std::string(const CompletionOption&)> action) {
  for (const CompletionCommand& command : commands)
    for (const CompletionOption& option : command.options)
      if (option.value != CompletionValue::None)
        out << "    " << shellQuoted(command.path + "/" + option.name) << ") " << action(option) << "; return ;;\n";
}

//===-- fish --------------------------------------------------------------===//

std::string fishValue(const CompletionOption& option) {
  switch (option.value) {
  case CompletionValue::None:
    return "";
  case CompletionValue::Any:
    return " -x";
  case CompletionValue::File:
    return " -r -F";
  case CompletionValue::Folder:
    return " -x -a '(__fish_complete_directories)'";
  case CompletionValue::Choice:
    return " -x -a " + quotedForFish(llvm::join(option.choices, " "));
  }
  return "";
}

void writeFishCommand(const std::vector<CompletionCommand>& commands, const CompletionCommand& command,
                      llvm::raw_ostream& out) {
  const std::string start = "complete -c lathe -n 'test (__lathe_path) = \"" + command.path + "\"'";
  for (const CompletionCommand* child : childrenOf(commands, command))
    out << start << " -a " << splitPath(*child).second << " -d " << quotedForFish(child->description) << '\n';
  for (const CompletionOption& option : command.options)
    out << start << " -l " << llvm::StringRef(option.name).drop_front(2) << fishValue(option) << " -d "
        << quotedForFish(option.description) << '\n';
  if (command.positional.value == CompletionValue::File) out << start << " -F\n";
  if (command.positional.value == CompletionValue::Folder) out << start << " -a '(__fish_complete_directories)'\n";
  if (command.positional.value == CompletionValue::Choice)
    out << start << " -a " << quotedForFish(llvm::join(command.positional.choices, " ")) << '\n';
}

} // namespace

std::vector<CompletionCommand> lathe::cli::describeCommands(const CLI::App& app) {
  std::vector<CompletionCommand> commands;
  describeAll(app, "", commands);
  return commands;
}

void lathe::cli::writeBashCompletion(const std::vector<CompletionCommand>& commands, llvm::raw_ostream& out) {
  out << "# bash completion for lathe; load it with: source <(lathe completion bash)\n"
         "_lathe() {\n"
         "  local word=\"${COMP_WORDS[COMP_CWORD]}\" previous=\"${COMP_WORDS[COMP_CWORD - 1]}\" path=\"\" i\n"
         "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
         "    case \"$path ${COMP_WORDS[i]}\" in\n"
         "    "
      << llvm::join(stepsBetween(commands), " | ")
      << ") path=\"${path:+$path }${COMP_WORDS[i]}\" ;;\n"
         "    esac\n"
         "  done\n"
         "  case \"$path/$previous\" in\n";
  writeValueCases(commands, out, [](const CompletionOption& option) {
    return "COMPREPLY=($(compgen " + bashWords(option) + " -- \"$word\"))";
  });
  out << "  esac\n  case \"$path\" in\n";
  for (const CompletionCommand& command : commands) writeBashCommand(commands, command, out);
  out << "  esac\n}\ncomplete -o filenames -F _lathe lathe\n";
}

void lathe::cli::writeZshCompletion(const std::vector<CompletionCommand>& commands, llvm::raw_ostream& out) {
  out << "#compdef lathe\n"
         "_lathe() {\n"
         "  local verbs=\"\" i\n"
         "  local -a entries\n"
         "  for ((i = 2; i < CURRENT; i++)); do\n"
         "    case \"$verbs ${words[i]}\" in\n"
         "    "
      << llvm::join(stepsBetween(commands), " | ")
      << ") verbs=\"${verbs:+$verbs }${words[i]}\" ;;\n"
         "    esac\n"
         "  done\n"
         "  case \"$verbs/${words[CURRENT - 1]}\" in\n";
  writeValueCases(commands, out, zshWords);
  out << "  esac\n  case \"$verbs\" in\n";
  for (const CompletionCommand& command : commands) writeZshCommand(commands, command, out);
  out << "  esac\n}\n"
         "if [ \"${funcstack[1]}\" = _lathe ]; then _lathe \"$@\"; else compdef _lathe lathe; fi\n";
}

void lathe::cli::writeFishCompletion(const std::vector<CompletionCommand>& commands, llvm::raw_ostream& out) {
  out << "function __lathe_path\n"
         "  set -l path ''\n"
         "  set -l words (commandline -opc)\n"
         "  set -e words[1]\n"
         "  for word in $words\n"
         "    switch \"$path $word\"\n"
         "      case "
      << llvm::join(stepsBetween(commands), " ")
      << "\n"
         "        set path (string trim \"$path $word\")\n"
         "    end\n"
         "  end\n"
         "  echo $path\n"
         "end\n"
         "complete -c lathe -f\n";
  for (const CompletionCommand& command : commands) writeFishCommand(commands, command, out);
}
