//===- runtime/inspect/Disassembler.h - Running nvdisasm --------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Error.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <chrono>
#include <string>

namespace lathe {

/// NVIDIA's disassembler, as a program to run. Immutable; safe to use from several threads.
class Disassembler {
public:
  /// `program` is its path. A run that takes longer than `limit` is ended.
  explicit Disassembler(std::string program, std::chrono::seconds limit = std::chrono::seconds(120))
      : program_(std::move(program)), limit_(limit) {}

  /// The machine code in `cubin` as text, with notes of the source's and the PTX's lines where the cubin has them. The
  /// error has what nvdisasm said.
  llvm::Expected<std::string> run(llvm::StringRef cubin) const;

  const std::string& program() const { return program_; }

private:
  std::string program_;
  std::chrono::seconds limit_;
};

/// Finds nvdisasm. With `path`, that file and no other. Else the first of: `bin/nvdisasm` beside each of
/// `searchFolders` (the library folders of CUDA toolkits and wheels), then those in PATH. The error,
/// ErrorCode::MissingLibrary, says where it was looked for and how to get it.
llvm::Expected<Disassembler> findDisassembler(llvm::StringRef path, llvm::ArrayRef<std::string> searchFolders);

} // namespace lathe
