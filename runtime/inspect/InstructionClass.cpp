//===- runtime/inspect/InstructionClass.cpp - What instructions do ----------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/inspect/Sass.h"

#include "llvm/ADT/StringSwitch.h"

using namespace lathe;

namespace {

constexpr int kLanes = 32;
constexpr int kWarpsOfGroup = 4;

/// The opcode without its modifiers.
llvm::StringRef baseOf(llvm::StringRef opcode) {
  return opcode.take_until([](char c) { return c == '.'; });
}

/// The class of opcodes that their base decides.
InstructionClass classOfBase(llvm::StringRef base) {
  using enum InstructionClass;
  return llvm::StringSwitch<InstructionClass>(base)
      .Cases("FFMA", "FADD", "FMUL", "FMNMX", "FSEL", "FSETP", "FSET", "FCHK", "FSWZADD", Fma)
      .Cases("FFMA2", "FADD2", "FMUL2", "FMNMX3", "HFMA2", "HADD2", "HMUL2", "HMNMX2", "HSETP2", Fma)
      .Cases("HSET2", "DFMA", "DADD", "DMUL", "DSETP", "FFMA32I", "FADD32I", "FMUL32I", Fma)
      .Case("MUFU", Mufu)
      .Cases("LDS", "STS", "LDSM", "STSM", "ATOMS", "STAS", Shared)
      .Cases("LDG", "STG", "LDGSTS", "LD", "ST", "ATOM", "ATOMG", "RED", "REDG", Global)
      .Cases("LDL", "STL", Local)
      .Cases("UTMALDG", "UTMASTG", "UTMAREDG", "UTMAPF", "UTMACCTL", "UTMACMDFLUSH", Tma)
      .Cases("UBLKCP", "UBLKRED", "UBLKPF", Tma)
      .Cases("BAR", "SYNCS", "MEMBAR", "DEPBAR", "LDGDEPBAR", "LDSDEPBAR", "ERRBAR", "CGAERRBAR", "FENCE", Sync)
      .Cases("UCGABAR_ARV", "UCGABAR_WAIT", "WARPSYNC", "WARPGROUP", "WARPGROUPSET", "NANOSLEEP", Sync)
      .Cases("USETMAXREG", "ARRIVES", "CCTL", "CCTLL", "UTCBAR", "B2R", Sync)
      .Cases("F2F", "F2I", "I2F", "F2FP", "I2FP", "FRND", "F2IP", "I2I", "I2IP", Convert)
      .Cases("MOV", "UMOV", "R2UR", "UR2R", "S2R", "S2UR", "CS2R", "LDC", "ULDC", Move)
      .Cases("LDCU", "MOV32I", "P2R", "R2P", "UP2UR", "CS2UR", Move)
      .Cases("SHFL", "VOTE", "VOTEU", "MATCH", "REDUX", "MOVM", "ELECT", Warp)
      .Cases("BRA", "BRX", "JMP", "JMX", "CALL", "RET", "EXIT", "BSSY", "BSYNC", Control)
      .Cases("BREAK", "BMOV", "NOP", "YIELD", "KILL", "BPT", "RPCMOV", "PREEXIT", "ACQBULK", Control)
      .Cases("IADD", "IADD3", "IMAD", "LEA", "LOP3", "LOP", "SHF", "SHL", "SHR", Integer)
      .Cases("ISETP", "IABS", "IMNMX", "PLOP3", "PRMT", "SEL", "SGXT", "BMSK", "POPC", Integer)
      .Cases("FLO", "BREV", "IDP", "IDP4A", "ISCADD", "VIADD", "VIMNMX", "VIMNMX3", "VIADDMNMX", Integer)
      .Cases("UIADD3", "UIMAD", "ULEA", "ULOP3", "USHF", "UISETP", "USEL", "UPLOP3", "UPRMT", Integer)
      .Cases("UFLO", "UPOPC", "UBMSK", "USGXT", "VABSDIFF", "LOP32I", "IADD32I", "UIABS", "UIMNMX", Integer)
      .Default(Other);
}

/// M, N and K of the product that one tensor instruction computes; M is 0 where the opcode does not say.
struct ProductShape {
  int m = 0;
  int n = 0;
  int k = 0;

  double flops() const { return 2.0 * m * n * k; }
};

/// `64x256x16`
ProductShape shapeOfGroup(llvm::StringRef text) {
  ProductShape shape;
  if (text.consumeInteger(10, shape.m) || !text.consume_front("x")) return {};
  if (text.consumeInteger(10, shape.n) || !text.consume_front("x")) return {};
  if (text.consumeInteger(10, shape.k)) return {};
  return shape;
}

/// `16816`, `1688`, ...: three numbers written as one.
ProductShape shapeOfWarp(llvm::StringRef text) {
  return llvm::StringSwitch<ProductShape>(text)
      .Case("884", {8, 8, 4})
      .Case("1684", {16, 8, 4})
      .Case("1688", {16, 8, 8})
      .Case("16816", {16, 8, 16})
      .Case("16832", {16, 8, 32})
      .Case("16864", {16, 8, 64})
      .Default({});
}

bool isGroupProduct(llvm::StringRef opcode) {
  return baseOf(opcode).ends_with("GMMA");
}

ProductShape productShape(llvm::StringRef opcode) {
  const llvm::StringRef second = opcode.split('.').second.split('.').first;
  return isGroupProduct(opcode) ? shapeOfGroup(second) : shapeOfWarp(second);
}

/// Bytes that one lane moves: 4 unless a modifier says otherwise.
int laneBytes(llvm::StringRef opcode) {
  for (llvm::StringRef rest = opcode.split('.').second; !rest.empty();) {
    const auto [modifier, tail] = rest.split('.');
    if (modifier == "128") return 16;
    if (modifier == "64") return 8;
    if (modifier == "U16" || modifier == "S16") return 2;
    if (modifier == "U8" || modifier == "S8") return 1;
    rest = tail;
  }
  return 4;
}

/// Bytes of the 8 x 8 matrices of 16-bit elements that LDSM and STSM move: one, two or four of them.
double matrixBytes(llvm::StringRef opcode) {
  const int matrices = opcode.ends_with(".4") ? 4 : opcode.ends_with(".2") ? 2 : 1;
  return 128.0 * matrices;
}

/// What a warp's share of a warpgroup product reads: B, and A unless it is in registers.
double groupOperandBytes(const SassInstruction& instruction) {
  const ProductShape shape = productShape(instruction.opcode);
  // `R24, gdesc[UR20], R24` has both in shared memory, `R24, R4, gdesc[UR20], R24` only B.
  const auto operands = llvm::StringRef(instruction.text).split(instruction.opcode).second.split(',');
  const bool both = operands.second.ltrim().starts_with("gdesc");
  // K is as many elements as fill 32 bytes.
  return 32.0 * (shape.n + (both ? shape.m : 0)) / kWarpsOfGroup;
}

} // namespace

llvm::StringRef lathe::toString(InstructionClass kind) {
  constexpr llvm::StringLiteral kNames[] = {"tensor", "fma",     "mufu",    "shared", "global", "local",   "tma",
                                            "sync",   "integer", "convert", "move",   "warp",   "control", "other"};
  static_assert(std::size(kNames) == kInstructionClassCount);
  return kNames[static_cast<size_t>(kind)];
}

InstructionClass lathe::classify(llvm::StringRef opcode) {
  if (opcode.starts_with("IMAD.MOV")) return InstructionClass::Move;
  const llvm::StringRef base = baseOf(opcode);
  if (base.ends_with("MMA")) return InstructionClass::Tensor;
  return classOfBase(base);
}

double lathe::flopsOf(const SassInstruction& instruction) {
  const llvm::StringRef opcode = instruction.opcode;
  if (instruction.kind == InstructionClass::Tensor)
    return productShape(opcode).flops() / (isGroupProduct(opcode) ? kWarpsOfGroup : 1);
  const llvm::StringRef base = baseOf(opcode);
  if (base == "FFMA" || base == "DFMA") return 2.0 * kLanes;
  // HFMA2 is not counted: Lathe's kernels add up in fp32, so it only loads constants.
  if (base == "FFMA2") return 4.0 * kLanes;
  return 0;
}

double lathe::sharedBytesOf(const SassInstruction& instruction) {
  const llvm::StringRef opcode = instruction.opcode;
  const llvm::StringRef base = baseOf(opcode);
  if (base == "LDSM" || base == "STSM") return matrixBytes(opcode);
  if (base == "LDS" || base == "STS" || base == "LDGSTS" || base == "ATOMS") return double(kLanes) * laneBytes(opcode);
  if (isGroupProduct(opcode)) return groupOperandBytes(instruction);
  return 0;
}

InstructionMix lathe::mixOf(llvm::ArrayRef<SassInstruction> instructions) {
  InstructionMix mix;
  for (const SassInstruction& instruction : instructions) ++mix[instruction.kind];
  return mix;
}
