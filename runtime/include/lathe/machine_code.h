//===- lathe/machine_code.h - Machine code as values ------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lathe {

/// A line of a source: of the generated unit (`lathe_logits.cu`) or of a template (`common/math.cuh`). Lines count
/// from 1.
struct SourcePlace {
  std::string file;
  int line = 0;

  friend auto operator<=>(const SourcePlace&, const SourcePlace&) = default;
};

/// What an instruction keeps busy.
enum class InstructionClass : uint8_t {
  /// Tensor cores.
  Tensor,
  /// Floating-point multiply, add, compare.
  Fma,
  /// The unit for exp2, logarithm, reciprocal.
  Mufu,
  /// Shared memory: LDS, STS, LDSM and their like.
  Shared,
  /// Global memory: LDG, STG, LDGSTS and their like.
  Global,
  /// Local memory: spilled registers and local arrays.
  Local,
  /// Bulk copies by the TMA unit.
  Tma,
  /// Barriers, fences and waits.
  Sync,
  Integer,
  /// Conversions between types.
  Convert,
  /// Moves, constants, special registers.
  Move,
  /// Shuffles and votes between the lanes of a warp.
  Warp,
  /// Branches and convergence.
  Control,
  Other,
};
inline constexpr size_t kInstructionClassCount = 14;

/// How many instructions of each class there are.
class InstructionMix {
public:
  int64_t& operator[](InstructionClass kind) { return counts_[static_cast<size_t>(kind)]; }
  int64_t operator[](InstructionClass kind) const { return counts_[static_cast<size_t>(kind)]; }
  int64_t total() const {
    int64_t sum = 0;
    for (const int64_t count : counts_) sum += count;
    return sum;
  }

  friend bool operator==(const InstructionMix&, const InstructionMix&) = default;

private:
  std::array<int64_t, kInstructionClassCount> counts_{};
};

/// One machine instruction.
struct SassInstruction {
  /// Bytes from the begin of the function.
  int64_t address = 0;
  /// Predicate, opcode and operands: `@!P0 BRA .L_x_3`.
  std::string text;
  /// `HMMA.16816.F32.BF16`
  std::string opcode;
  InstructionClass kind = InstructionClass::Other;
  /// For branches within the function, and for instructions that name where lanes meet again: that address.
  std::optional<int64_t> target = std::nullopt;
  /// Index into `SassListing::stacks`; -1 where the line is not known.
  int stack = -1;
  /// Line of the PTX; 0 where it is not known.
  int ptxLine = 0;
};

/// The machine code of one function.
struct SassListing {
  std::string entry;
  std::vector<SassInstruction> instructions;
  /// The lines that instructions come from, each innermost first: where it is written, where that was inlined, ...
  std::vector<std::vector<SourcePlace>> stacks;
};

/// Instructions that lie together: the index of the first, and of the one after the last.
struct InstructionRange {
  size_t begin = 0;
  size_t end = 0;
};

/// A loop of the machine code: all instructions from which a branch back to its begin is reached.
struct SassLoop {
  /// By address; more than one where the compiler moved a part, such as a wait, out of the way.
  std::vector<InstructionRange> ranges;
  /// Loops around it.
  int depth = 0;
  InstructionMix mix;
  /// Floating-point operations of one warp in one iteration.
  double flops = 0;
  /// Bytes that one warp moves between registers (or tensor cores) and shared memory in one iteration.
  double sharedBytes = 0;

  size_t instructions() const {
    size_t count = 0;
    for (const InstructionRange& range : ranges) count += range.end - range.begin;
    return count;
  }
  bool contains(size_t instruction) const {
    for (const InstructionRange& range : ranges)
      if (range.begin <= instruction && instruction < range.end) return true;
    return false;
  }
};

} // namespace lathe
