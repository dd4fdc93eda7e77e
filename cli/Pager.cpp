//===- cli/Pager.cpp - Long output, page by page ----------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/Pager.h"

#include "llvm/Support/Process.h"
#include "llvm/Support/Program.h"

#include <csignal>
#include <sys/ioctl.h>
#include <unistd.h>

using namespace lathe::cli;

std::unique_ptr<Pager> Pager::start() {
  if (!isatty(STDOUT_FILENO)) return nullptr;
  std::string command = llvm::sys::Process::GetEnv("PAGER").value_or("less");
  if (command.empty() || command == "cat") return nullptr;
  // -F: leave at once when it fits, -R: let colours through, -S: do not fold long lines.
  if (command == "less") command = "less -FRS";
  if (!llvm::sys::findProgramByName(llvm::StringRef(command).split(' ').first)) return nullptr;
  // A reader who leaves early closes the pipe.
  std::signal(SIGPIPE, SIG_IGN);
  FILE* pipe = popen(command.c_str(), "w");
  return pipe ? std::unique_ptr<Pager>(new Pager(pipe)) : nullptr;
}

Pager::Pager(FILE* pipe)
    : pipe_(pipe), out_(std::make_unique<llvm::raw_fd_ostream>(fileno(pipe), /*shouldClose=*/false)) {}

Pager::~Pager() {
  out_->flush();
  out_->clear_error();
  out_.reset();
  pclose(pipe_);
}

std::optional<int> lathe::cli::terminalColumns() {
  int columns = 0;
  if (const auto text = llvm::sys::Process::GetEnv("COLUMNS"))
    if (!llvm::StringRef(*text).getAsInteger(10, columns) && columns > 0) return columns;
  winsize size{};
  if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return std::nullopt;
}
