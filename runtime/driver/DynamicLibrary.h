//===- runtime/driver/DynamicLibrary.h - Libraries opened late -*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace lathe {

/// A shared library opened at run time. A plain value: the library stays open for the life of the process, because the
/// function pointers taken from it do, too.
class DynamicLibrary {
public:
  /// Opens `path`: a file where it has a slash, else a name that the system's loader looks up. The library's symbols
  /// stay out of the global scope. The error is ErrorCode::MissingLibrary with the loader's words.
  static llvm::Expected<DynamicLibrary> open(llvm::StringRef path);

  /// The address of `name`, or null.
  void* find(llvm::StringRef name) const;

private:
  explicit DynamicLibrary(void* handle) : handle_(handle) {}

  void* handle_;
};

} // namespace lathe
