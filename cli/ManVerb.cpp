//===- cli/ManVerb.cpp - lathe man -----------------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/ManPage.h"
#include "cli/Verbs.h"
#include "runtime/cache/Cache.h"

using namespace lathe;
using namespace lathe::cli;

namespace {

struct ManOptions {
  const CLI::App* app = nullptr;
  std::string page = "lathe";
  std::string output;
};

std::string textOf(const ManPage& page, const std::vector<ManPage>& pages) {
  std::string text;
  llvm::raw_string_ostream os(text);
  writeManPage(page, pages, os);
  return text;
}

llvm::Expected<ExitCode> printManual(const ManOptions& options, const Session& session) {
  const std::vector<ManPage> pages = manPages(*options.app);
  if (!options.output.empty()) {
    for (const ManPage& page : pages)
      if (llvm::Error error = writeAtomically(options.output + "/" + page.name + ".1", textOf(page, pages)))
        return error;
    session.out << "wrote " << pages.size() << " pages to " << options.output << '\n';
    return ExitCode::Ok;
  }
  for (const ManPage& page : pages) {
    if (page.name != options.page) continue;
    session.out << textOf(page, pages);
    return ExitCode::Ok;
  }
  return makeError(ErrorCode::InvalidArgument, "there is no page \"{0}\"; pages are named like lathe-cache-ls",
                   options.page);
}

} // namespace

void lathe::cli::addManVerb(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("man", "Print a manual page, or write all of them");
  const auto options = std::make_shared<ManOptions>();
  options->app = &app;
  verb->add_option("page", options->page, "lathe, lathe-run, lathe-cache-ls, ... (default lathe)")->type_name("PAGE");
  verb->add_option("--output", options->output, "Write all pages into a folder in place of printing one")
      ->type_name("DIR")
      ->group("Output");
  verb->footer("Examples:\n"
               "  lathe man lathe-inspect | man -l -\n"
               "  lathe man --output ~/.local/share/man/man1");
  setAction(*verb, action, options, printManual);
}
