//===- runtime/cache/Tar.h - Archives of small files ------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Error.h"

#include "llvm/ADT/StringRef.h"

#include <string>
#include <vector>

namespace lathe {

/// A file in an archive. The contents belong to the archive's bytes.
struct TarFile {
  std::string path;
  llvm::StringRef contents;
};

/// A POSIX ustar archive of `files`, the same bytes for the same files: every `tar` unpacks it. The error names a path
/// that is too long for the format.
llvm::Expected<std::string> writeTar(const std::vector<TarFile>& files);

/// The files of the archive `bytes`, which may come from anywhere: nothing is written, and paths are as they are found.
/// ErrorCode::Corrupt for what is no archive or is cut off, and for entries that are no plain files: links, folders,
/// devices.
llvm::Expected<std::vector<TarFile>> readTar(llvm::StringRef bytes);

} // namespace lathe
