//===- cli/CompletionVerb.cpp - lathe completion ---------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/Completion.h"
#include "cli/Verbs.h"

using namespace lathe;
using namespace lathe::cli;

namespace {

struct CompletionOptions {
  const CLI::App* app = nullptr;
  std::string shell;
};

llvm::Expected<ExitCode> printCompletion(const CompletionOptions& options, const Session& session) {
  const std::vector<CompletionCommand> commands = describeCommands(*options.app);
  if (options.shell == "bash")
    writeBashCompletion(commands, session.out);
  else if (options.shell == "zsh")
    writeZshCompletion(commands, session.out);
  else
    writeFishCompletion(commands, session.out);
  return ExitCode::Ok;
}

} // namespace

void lathe::cli::addCompletionVerb(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("completion", "Print a completion script for a shell");
  const auto options = std::make_shared<CompletionOptions>();
  options->app = &app;
  verb->add_option("shell", options->shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  verb->footer("Examples:\n"
               "  source <(lathe completion bash)\n"
               "  lathe completion zsh > ~/.zfunc/_lathe\n"
               "  lathe completion fish > ~/.config/fish/completions/lathe.fish");
  setAction(*verb, action, options, printCompletion);
}
