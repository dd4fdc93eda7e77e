//===- cli/Main.cpp - The lathe command ------------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/Help.h"
#include "cli/Verbs.h"

#include <new>
#include <unistd.h>

using namespace lathe;
using namespace lathe::cli;

namespace {

constexpr const char* kFooter = "Every verb has its own help: lathe run --help. Reports are JSON with --json.\n\n"
                                "Exit codes:\n"
                                "  0  all is well\n"
                                "  1  a check failed (verify, cache verify, doctor --strict)\n"
                                "  2  the command line, or the workload that it describes, is wrong\n"
                                "  3  something else went wrong: a file, a library, the GPU\n\n"
                                "Examples:\n"
                                "  lathe doctor\n"
                                "  lathe run --random --model llama-3-8b --repeat 20\n"
                                "  lathe plan --model llama-3-8b --arch sm_90a\n"
                                "  lathe compile --model llama-3-8b --arch sm_80,sm_90a";

std::unique_ptr<CLI::App> makeApp(Action& action) {
  auto app = std::make_unique<CLI::App>("Lathe: kernels for the fused linear + SimPO loss, made to measure", "lathe");
  app->set_version_flag("--version", "lathe " LATHE_VERSION);
  app->require_subcommand(1);
  app->formatter(std::make_shared<HelpFormatter>());
  addRunVerb(*app, action);
  addVerifyVerb(*app, action);
  addPlanVerb(*app, action);
  addEmitVerb(*app, action);
  addInspectVerb(*app, action);
  addExplainVerb(*app, action);
  addCompileVerb(*app, action);
  addTuneVerb(*app, action);
  addBenchVerb(*app, action);
  addCacheVerb(*app, action);
  addDoctorVerb(*app, action);
  addCompletionVerb(*app, action);
  addManVerb(*app, action);
  // Last: a verb starts with the footer that the program has when it is added.
  app->footer(kFooter);
  return app;
}

ExitCode fail(llvm::StringRef message, ExitCode code) {
  llvm::errs() << "lathe: error: " << message << '\n';
  return code;
}

/// The name of the verbs, as far as they were understood: `lathe cache ls`.
std::string commandOf(const CLI::App& app) {
  const std::string& name = app.get_name();
  const std::vector<CLI::App*> verbs = app.get_subcommands();
  return verbs.empty() ? name : name + " " + commandOf(*verbs.front());
}

/// The verb most like `word`, for a hint.
std::string nearestVerb(const CLI::App& app, llvm::StringRef word) {
  std::string nearest;
  unsigned least = 3;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); })) {
    const unsigned distance = word.edit_distance(verb->get_name());
    if (distance >= least) continue;
    least = distance;
    nearest = verb->get_name();
  }
  return nearest;
}

/// The deepest command that was understood.
const CLI::App& deepest(const CLI::App& app) {
  const std::vector<CLI::App*> verbs = app.get_subcommands();
  return verbs.empty() ? app : deepest(*verbs.front());
}

/// What is wrong, with CLI11's words where they are clear.
std::string describe(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = deepest(app);
  if (command.get_require_subcommand_min() == 0) return error.what();
  const std::vector<std::string> words = command.remaining();
  if (words.empty()) return "no verb was given";
  const std::string nearest = nearestVerb(command, words.front());
  return llvm::formatv("there is no verb or option \"{0}\"{1}", words.front(),
                       nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?");
}

/// What CLI11 says when it stops before the action: help, the version, or what is wrong with the command line.
ExitCode explain(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
    app.exit(error);
    return ExitCode::Ok;
  }
  return fail(describe(app, error) + "; see `" + commandOf(app) + " --help`", ExitCode::Usage);
}

ExitCode perform(const Action& action, const Session& session) {
  llvm::Expected<ExitCode> code = action(session);
  if (code) return *code;
  const ErrorSummary summary = takeSummary(code.takeError());
  session.out.flush();
  return fail(summary.message, exitCodeOf(summary.code));
}

/// A full disk or a closed pipe shows only now.
ExitCode finish(ExitCode code) {
  llvm::outs().flush();
  if (!llvm::outs().has_error()) return code;
  const std::string reason = llvm::outs().error().message();
  llvm::outs().clear_error();
  return fail("cannot write to standard output: " + reason, ExitCode::Failure);
}

ExitCode run(int argc, char** argv) {
  Action action;
  const std::unique_ptr<CLI::App> app = makeApp(action);
  try {
    app->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return explain(*app, error);
  }
  const Environment environment = Environment::fromProcess();
  const bool plain = environment.noColor;
  const Session session{llvm::outs(), llvm::errs(), !plain && llvm::outs().is_displayed(), llvm::errs().is_displayed(),
                        environment};
  return finish(perform(action, session));
}

} // namespace

int main(int argc, char** argv) {
  try {
    return static_cast<int>(run(argc, argv));
  } catch (const std::bad_alloc&) {
    return static_cast<int>(fail("out of memory; make the workload smaller", ExitCode::Failure));
  }
}
