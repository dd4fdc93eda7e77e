//===- tests/support/ScratchFolder.h - A folder for one test ---*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/FileSystem.h"

#include <catch2/catch.hpp>

#include <string>

namespace lathe::test {

/// A new empty folder, removed with its content at the end.
class ScratchFolder {
public:
  ScratchFolder() {
    if (std::error_code error = llvm::sys::fs::createUniqueDirectory("lathe-test", path_)) FAIL(error.message());
  }
  ~ScratchFolder() { llvm::sys::fs::remove_directories(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::string path() const { return path_.str().str(); }
  std::string file(llvm::StringRef name) const { return (path_ + "/" + name).str(); }

private:
  llvm::SmallString<128> path_;
};

} // namespace lathe::test
