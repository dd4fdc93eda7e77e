//===- tests/unit/sass_test.cpp - Reading machine code ----------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tests/support/InspectSamples.h"

#include "llvm/ADT/STLExtras.h"

#include <chrono>
#include <set>

using namespace lathe;
using namespace lathe::test;
using Catch::Contains;

namespace {

/// The first instruction whose opcode begins with `opcode`.
const SassInstruction& find(const SassListing& listing, llvm::StringRef opcode) {
  const auto found = llvm::find_if(listing.instructions, [&](const SassInstruction& instruction) {
    return llvm::StringRef(instruction.opcode).starts_with(opcode);
  });
  REQUIRE(found != listing.instructions.end());
  return *found;
}

SassInstruction instructionOf(const std::string& text) {
  const std::string listing = "\t.section\t.text.f,\"ax\"\n /*0000*/ " + text + " ;\n";
  return require(parseSass(listing)).front().instructions.front();
}

} // namespace

TEST_CASE("Instructions are read with their addresses, opcodes and branch targets") {
  const SassListing listing = sassSample("sums_sm_80.sass");
  CHECK(listing.entry == "row_sums");
  REQUIRE(listing.instructions.size() == 56);
  CHECK(listing.instructions.front().text == "IMAD.MOV.U32 R1, RZ, RZ, c[0x0][0x28]");
  for (size_t i = 0; i < listing.instructions.size(); ++i)
    CHECK(listing.instructions[i].address == static_cast<int64_t>(16 * i));

  const SassInstruction& skip = listing.instructions[7];
  CHECK(skip.text == "@P0 BRA .L_x_1");
  CHECK(skip.opcode == "BRA");
  CHECK(skip.target == 0x1a0);
  CHECK_FALSE(listing.instructions.front().target);
}

TEST_CASE("An instruction knows its line, those that it was inlined into, and its line of PTX") {
  const SassListing listing = sassSample("sums_sm_80.sass");
  const SassInstruction& exp2 = find(listing, "MUFU.EX2");
  REQUIRE(exp2.stack >= 0);
  const std::vector<SourcePlace> stack = listing.stacks[exp2.stack];
  REQUIRE(stack.size() == 2);
  CHECK(stack[0] == SourcePlace{"/build/sums.cu", 2});
  CHECK(stack[1] == SourcePlace{"/build/sums.cu", 8});
  CHECK(exp2.ptxLine == 54);
  // What follows without a note belongs to the same line; each stack is kept once.
  const SassInstruction& barrier = find(listing, "BAR");
  CHECK(listing.stacks[barrier.stack] == std::vector<SourcePlace>{{"/build/sums.cu", 10}});
  std::set<std::vector<SourcePlace>> once(listing.stacks.begin(), listing.stacks.end());
  CHECK(once.size() == listing.stacks.size());
}

TEST_CASE("A listing without notes has no lines") {
  const std::string text = "\t.section\t.text.f,\"ax\",@progbits\nf:\n        /*0000*/                   EXIT ;\n";
  const SassListing listing = require(parseSass(text)).front();
  CHECK(listing.entry == "f");
  CHECK(listing.stacks.empty());
  CHECK(listing.instructions.front().stack == -1);
  CHECK(listing.instructions.front().ptxLine == 0);
}

TEST_CASE("Every function of a cubin is a listing of its own") {
  const std::string text = readSassSample("sums_sm_80.sass") + readSassSample("product_sm_80.sass");
  const std::vector<SassListing> listings = require(parseSass(text));
  REQUIRE(listings.size() == 2);
  CHECK(listings[0].entry == "row_sums");
  CHECK(listings[1].entry == "tiles");
  // Labels of one do not lead into the other, whose names are the same.
  CHECK(findLoops(listings[0]).size() == 2);
  CHECK(findLoops(listings[1]).size() == 2);
}

TEST_CASE("Text that is no disassembly is refused, and what is damaged in one is passed over") {
  CHECK(requireError(parseSass("")).code == ErrorCode::Corrupt);
  CHECK_THAT(requireError(parseSass("no code here\n")).message, Contains("13 bytes") && Contains("nvdisasm -c"));
  const std::string text = "\t.section\t.text.f,\"ax\"\n/*zz*/ NOP ;\n/*0000*/ NOP\n/*0010\n/*0020*/ ;\n//## File \"x\n"
                           "//## File \"x\", line 99999999999999\n//## File \"y\", line -3\n/*0030*/ BRA `(.L_9) ;\n"
                           "/*0040*/ BRA `( ;\n/*0050*/ EXIT ;";
  const SassListing listing = require(parseSass(text)).front();
  REQUIRE(listing.instructions.size() == 3);
  CHECK_FALSE(listing.instructions[0].target);
  CHECK(listing.instructions[0].stack == -1);
  CHECK(findLoops(listing).empty());
}

TEST_CASE("A listing of 60 MB is read in seconds") {
  std::string text = "\t.section\t.text.f,\"ax\"\n";
  const llvm::StringRef body = "\t//## File \"/build/steps/logits.cuh\", line 180 inlined at \"/build/f.cu\", line 3\n"
                               "\t//## File \"/build/f.cu\", line 3\n        /*0010*/                   FADD R1, R2, "
                               "R3 ;\n";
  while (text.size() < 60'000'000) text += body;
  const auto begin = std::chrono::steady_clock::now();
  const SassListing listing = require(parseSass(text)).front();
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
  CHECK(listing.instructions.size() > 300'000);
  CHECK(listing.stacks.size() == 1);
}

TEST_CASE("Opcodes belong to classes") {
  using enum InstructionClass;
  struct Row {
    const char* opcode;
    InstructionClass kind;
  };
  const Row row = GENERATE(
      Row{"HMMA.16816.F32.BF16", Tensor}, Row{"HGMMA.64x256x16.F32.BF16", Tensor}, Row{"UTCHMMA", Tensor},
      Row{"FFMA", Fma}, Row{"FMNMX", Fma}, Row{"MUFU.EX2", Mufu}, Row{"LDS.128", Shared}, Row{"LDSM.16.M88.4", Shared},
      Row{"LDG.E.64", Global}, Row{"LDGSTS.E.BYPASS.LTC128B.128", Global}, Row{"STL.64", Local}, Row{"LDL", Local},
      Row{"UTMALDG.2D", Tma}, Row{"SYNCS.PHASECHK.TRANS64.TRYWAIT", Sync}, Row{"BAR.SYNC.DEFER_BLOCKING", Sync},
      Row{"WARPGROUP.DEPBAR.LE", Sync}, Row{"IMAD.WIDE", Integer}, Row{"UIADD3", Integer}, Row{"IMAD.MOV.U32", Move},
      Row{"F2FP.BF16.F32.PACK_AB", Convert}, Row{"SHFL.BFLY", Warp}, Row{"BRA.U.ANY", Control}, Row{"NEW.OP", Other});
  CHECK(classify(row.opcode) == row.kind);
  CHECK_FALSE(toString(row.kind).empty());
}

TEST_CASE("Tensor instructions count the products of one warp") {
  CHECK(flopsOf(instructionOf("HMMA.16816.F32.BF16 R4, R8, R20, R4")) == 2 * 16 * 8 * 16);
  CHECK(flopsOf(instructionOf("HMMA.1684.F32.TF32 R4, R8, R20, R4")) == 2 * 16 * 8 * 4);
  // Four warps share a warpgroup's instruction.
  CHECK(flopsOf(instructionOf("HGMMA.64x256x16.F32.BF16 R24, gdesc[UR20], R24")) == 2 * 64 * 256 * 16 / 4);
  CHECK(flopsOf(instructionOf("FFMA R0, R0, R1, R7")) == 64);
  CHECK(flopsOf(instructionOf("IADD3 R0, R0, R1, R7")) == 0);
}

TEST_CASE("Shared memory traffic follows the width of the access") {
  CHECK(sharedBytesOf(instructionOf("LDS R0, [UR4]")) == 128);
  CHECK(sharedBytesOf(instructionOf("@P0 STS.128 [R9], R0")) == 512);
  CHECK(sharedBytesOf(instructionOf("LDS.U16 R0, [R1]")) == 64);
  CHECK(sharedBytesOf(instructionOf("LDSM.16.M88.4 R4, [R1]")) == 512);
  CHECK(sharedBytesOf(instructionOf("LDSM.16.MT88.2 R4, [R1]")) == 256);
  CHECK(sharedBytesOf(instructionOf("LDGSTS.E.BYPASS.LTC128B.128 [R1], [R2.64]")) == 512);
  CHECK(sharedBytesOf(instructionOf("LDG.E R0, [R2.64]")) == 0);
  // 64 x 16 elements of A and 256 x 16 of B, two bytes each, for four warps.
  CHECK(sharedBytesOf(instructionOf("HGMMA.64x256x16.F32.BF16 R24, gdesc[UR20], R24")) == (64 + 256) * 32 / 4);
  CHECK(sharedBytesOf(instructionOf("HGMMA.64x256x16.F32.BF16 R24, R4, gdesc[UR20], R24")) == 256 * 32 / 4);
}

TEST_CASE("The hot loop is the inner one that multiplies") {
  const SassListing listing = sassSample("product_sm_80.sass");
  const std::vector<SassLoop> loops = findLoops(listing);
  REQUIRE(loops.size() == 2);
  CHECK(loops[0].depth == 0);
  CHECK(loops[1].depth == 1);
  REQUIRE(loops[1].ranges.size() == 1);
  CHECK(loops[0].contains(loops[1].ranges[0].begin));
  CHECK_FALSE(loops[1].contains(loops[0].ranges[0].begin));
  const std::optional<size_t> hot = findHotLoop(loops);
  REQUIRE(hot == 1u);
  CHECK(loops[1].instructions() == 17);
  CHECK(loops[1].mix[InstructionClass::Tensor] == 1);
  CHECK(loops[1].mix[InstructionClass::Global] == 6);
  CHECK(loops[1].flops == 4096);
}

TEST_CASE("A wait that the compiler moved behind the code makes no loop of what lies between") {
  const std::string text = "\t.section\t.text.f,\"ax\"\n"
                           "/*0000*/ S2R R0, SR_TID.X ;\n"
                           ".L_1:\n/*0010*/ SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R0 ;\n"
                           "/*0020*/ @!P0 BRA `(.L_4) ;\n"
                           ".L_2:\n/*0030*/ HGMMA.64x64x16.F32.BF16 R24, gdesc[UR20], R24 ;\n"
                           "/*0040*/ @P1 BRA `(.L_1) ;\n"
                           "/*0050*/ STG.E [R2.64], R24 ;\n"
                           "/*0060*/ EXIT ;\n"
                           ".L_4:\n/*0070*/ SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R0 ;\n"
                           "/*0080*/ @!P0 BRA `(.L_4) ;\n"
                           "/*0090*/ BRA `(.L_2) ;\n"
                           ".L_5:\n/*00a0*/ BRA `(.L_5) ;\n";
  const std::vector<SassLoop> loops = findLoops(require(parseSass(text)).front());
  REQUIRE(loops.size() == 2);
  const std::optional<size_t> hot = findHotLoop(loops);
  REQUIRE(hot == 0u);
  CHECK(loops[0].instructions() == 7);
  CHECK(loops[0].ranges.size() == 2);
  CHECK(loops[0].mix[InstructionClass::Global] == 0);
  CHECK(loops[1].depth == 1);
}

TEST_CASE("Without products the hot loop is the one that reads and computes most") {
  const SassListing listing = sassSample("sums_sm_80.sass");
  const std::vector<SassLoop> loops = findLoops(listing);
  REQUIRE(loops.size() == 2);
  const std::optional<size_t> hot = findHotLoop(loops);
  REQUIRE(hot);
  CHECK(loops[*hot].mix[InstructionClass::Mufu] == 1);
  CHECK_FALSE(findHotLoop({}));
}

TEST_CASE("The mix counts every instruction once") {
  const SassListing listing = sassSample("product_sm_80.sass");
  const InstructionMix mix = mixOf(listing.instructions);
  CHECK(mix.total() == static_cast<int64_t>(listing.instructions.size()));
  CHECK(mix[InstructionClass::Global] == 10);
  CHECK(mix[InstructionClass::Other] == 0);
}
