//===- runtime/inspect/Sass.h - Reading machine code ------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Error.h"
#include "lathe/machine_code.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

namespace lathe {

/// Reads what `nvdisasm -c` prints, with or without `-g`, `-gi` and `-gp`: the functions in their order. Lines that are
/// neither instructions, labels, sections nor line notes are passed over. The error, ErrorCode::Corrupt, says that
/// `text` has no instruction.
llvm::Expected<std::vector<SassListing>> parseSass(llvm::StringRef text);

/// `tensor`, `fma`, ...
llvm::StringRef toString(InstructionClass kind);

/// The class of an opcode such as `IMAD.MOV.U32`.
InstructionClass classify(llvm::StringRef opcode);

/// Floating-point operations that one warp makes by one instruction: those of tensor cores and fused multiply-adds. A
/// warpgroup's instruction counts as a quarter for each of its warps.
double flopsOf(const SassInstruction& instruction);

/// Bytes that one warp moves to or from shared memory by one instruction, operands of wgmma included.
double sharedBytesOf(const SassInstruction& instruction);

/// The classes of `instructions`.
InstructionMix mixOf(llvm::ArrayRef<SassInstruction> instructions);

/// Every natural loop, by the address of its begin.
std::vector<SassLoop> findLoops(const SassListing& listing);

/// Index of the loop in which the kernel does its work: the innermost one with the most floating-point operations, or,
/// where no loop has any, with the most accesses to memory. None when there is no loop.
std::optional<size_t> findHotLoop(llvm::ArrayRef<SassLoop> loops);

} // namespace lathe
