//===- tests/support/RunCommand.h - A program and what it says --------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "tests/support/ScratchFolder.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

namespace lathe::test {

/// What a program left behind.
struct CommandResult {
  int exitCode = 0;
  std::string out;
  std::string err;
};

/// Runs `program` with `arguments`, an empty standard input, and `environment` (`NAME=value`) in place of this
/// process's, and waits for it. The test ends when it cannot be started, is killed by a signal, or takes over a minute.
inline CommandResult runCommand(const std::string& program, const std::vector<std::string>& arguments,
                                const std::vector<std::string>& environment) {
  const ScratchFolder scratch;
  const std::string outPath = scratch.file("out");
  const std::string errPath = scratch.file("err");
  llvm::SmallVector<llvm::StringRef> words = {program};
  words.append(arguments.begin(), arguments.end());
  const llvm::SmallVector<llvm::StringRef> variables(environment.begin(), environment.end());
  const std::optional<llvm::StringRef> redirects[] = {llvm::StringRef(), llvm::StringRef(outPath),
                                                      llvm::StringRef(errPath)};
  std::string failure;
  CommandResult result;
  result.exitCode = llvm::sys::ExecuteAndWait(program, words, llvm::ArrayRef<llvm::StringRef>(variables), redirects,
                                              /*SecondsToWait=*/60, /*MemoryLimit=*/0, &failure);
  const auto read = [](const std::string& path) {
    const auto buffer = llvm::MemoryBuffer::getFile(path);
    return buffer ? (*buffer)->getBuffer().str() : std::string();
  };
  result.out = read(outPath);
  result.err = read(errPath);
  if (result.exitCode < 0) FAIL(program << ": " << failure << "\n" << result.err);
  return result;
}

} // namespace lathe::test
