//===- tests/unit/disassembler_test.cpp - Running nvdisasm ------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tests/support/InspectSamples.h"
#include "tests/support/ScratchFolder.h"

#include "llvm/Support/raw_ostream.h"

using namespace lathe;
using namespace lathe::test;
using Catch::Contains;

namespace {

/// Writes a shell script that can be run.
std::string writeScript(const std::string& path, llvm::StringRef body) {
  std::error_code error;
  llvm::raw_fd_ostream os(path, error);
  REQUIRE_FALSE(error);
  os << "#!/bin/sh\n" << body << '\n';
  os.close();
  REQUIRE_FALSE(llvm::sys::fs::setPermissions(path, llvm::sys::fs::all_all));
  return path;
}

} // namespace

TEST_CASE("The disassembler's output is what it prints, its input the cubin") {
  const ScratchFolder folder;
  const Disassembler disassembler(writeScript(folder.file("nvdisasm"), "for last; do :; done; cat \"$last\""));
  CHECK(require(disassembler.run("some bytes")) == "some bytes");
}

TEST_CASE("What the disassembler says against a cubin is in the error") {
  const ScratchFolder folder;
  const Disassembler disassembler(writeScript(folder.file("nvdisasm"), "echo 'bad ELF' >&2; exit 7"));
  const ErrorSummary error = requireError(disassembler.run("junk"));
  CHECK(error.code == ErrorCode::Corrupt);
  CHECK_THAT(error.message, Contains("bad ELF") && Contains("exit code 7") && Contains("4 bytes"));
}

TEST_CASE("A disassembler that does not finish is ended") {
  const ScratchFolder folder;
  const Disassembler disassembler(writeScript(folder.file("nvdisasm"), "exec sleep 100"), std::chrono::seconds(1));
  const ErrorSummary error = requireError(disassembler.run("junk"));
  CHECK_THAT(error.message, Contains("within 1 s"));
}

TEST_CASE("A disassembler that crashes or is no program is an error") {
  const ScratchFolder folder;
  const Disassembler crashing(writeScript(folder.file("crashing"), "kill -SEGV $$"));
  CHECK(requireError(crashing.run("junk")).code == ErrorCode::Corrupt);
  const Disassembler missing(folder.file("missing"));
  CHECK(requireError(missing.run("junk")).code == ErrorCode::MissingLibrary);
}

TEST_CASE("nvdisasm is found beside the library folders, or where the path says") {
  const ScratchFolder folder;
  REQUIRE_FALSE(llvm::sys::fs::create_directories(folder.file("cu13/bin")));
  const std::string program = writeScript(folder.file("cu13/bin/nvdisasm"), "exit 0");
  CHECK(require(findDisassembler("", {folder.file("none/lib"), folder.file("cu13/lib")})).program() == program);
  CHECK(require(findDisassembler(program, {})).program() == program);
  const ErrorSummary error = requireError(findDisassembler(folder.file("nothing"), {}));
  CHECK(error.code == ErrorCode::MissingLibrary);
  CHECK_THAT(error.message, Contains("pip install nvidia-cuda-nvdisasm") && Contains("LATHE_NVDISASM"));
}

TEST_CASE("The real nvdisasm reads stored cubins and refuses damaged ones") {
  const std::optional<Disassembler> disassembler = machineDisassembler();
  if (!disassembler) return;
  auto buffer = llvm::MemoryBuffer::getFile(LATHE_TEST_DATA "/cubin/shared_sm_80_cuda12.cubin");
  REQUIRE(buffer);
  const llvm::StringRef cubin = (*buffer)->getBuffer();
  const std::vector<SassListing> listings = require(parseSass(require(disassembler->run(cubin))));
  REQUIRE(listings.size() == 1);
  CHECK(listings.front().entry == "shared_user");
  CHECK(mixOf(listings.front().instructions)[InstructionClass::Other] == 0);
  CHECK(requireError(disassembler->run(cubin.take_front(cubin.size() / 2))).code == ErrorCode::Corrupt);
  CHECK(requireError(disassembler->run("")).code == ErrorCode::Corrupt);
}
