//===- tests/support/InspectSamples.h - Machine code for tests --------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/cache/Environment.h"
#include "runtime/inspect/Disassembler.h"
#include "runtime/inspect/Sass.h"
#include "tests/support/Failures.h"

#include "llvm/Support/MemoryBuffer.h"

namespace lathe::test {

/// The contents of tests/data/sass/`name`.
inline std::string readSassSample(const std::string& name) {
  auto buffer = llvm::MemoryBuffer::getFile(LATHE_TEST_DATA "/sass/" + name);
  if (!buffer) FAIL(name << ": " << buffer.getError().message());
  return (*buffer)->getBuffer().str();
}

/// Its one function.
inline SassListing sassSample(const std::string& name) {
  std::vector<SassListing> listings = require(parseSass(readSassSample(name)));
  REQUIRE(listings.size() == 1);
  return std::move(listings.front());
}

/// The nvdisasm of this machine; none, with a warning in the test's output, where there is none.
inline std::optional<Disassembler> machineDisassembler() {
  const Environment environment = Environment::fromProcess();
  llvm::Expected<Disassembler> found =
      findDisassembler(environment.nvdisasmPath.value_or(""), environment.cudaSearchFolders);
  if (found) return std::move(*found);
  WARN("skipped: " << takeSummary(found.takeError()).message);
  return std::nullopt;
}

} // namespace lathe::test
