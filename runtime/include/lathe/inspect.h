//===- lathe/inspect.h - What is inside a generated kernel ------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Kernels as values: sources, PTX, machine code, resources, and what the target's limits make of them. Nothing here
/// needs a GPU. Bytes count in bytes, times in milliseconds.
///
//===----------------------------------------------------------------------===//
#pragma once

#include <array>
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

/// What keeps more blocks from a multiprocessor.
enum class OccupancyLimiter : uint8_t { Registers, SharedMemory, Threads, Blocks, Nothing };

/// How much of a multiprocessor a kernel fills.
struct Occupancy {
  /// Blocks that a multiprocessor holds at once; 0 when not even one fits.
  int blocks = 0;
  int warps = 0;
  int maxWarps = 0;
  OccupancyLimiter limiter = OccupancyLimiter::Nothing;
  /// Blocks that each resource alone would allow.
  int blocksByRegisters = 0;
  int blocksByShared = 0;
  int blocksByThreads = 0;
  int blocksByLimit = 0;

  double fraction() const { return maxWarps > 0 ? double(warps) / maxWarps : 0; }
};

/// What a kernel takes of the machine, as its cubin states it.
struct KernelResources {
  int threads = 0;
  int registers = 0;
  int64_t staticSharedBytes = 0;
  int64_t dynamicSharedBytes = 0;
  /// Stack of a thread. Lathe's kernels have no local arrays: it holds spilled registers.
  int64_t stackBytes = 0;
  /// Instructions that store or load spilled registers; none where the machine code was not read.
  std::optional<int64_t> spillInstructions = std::nullopt;
  int barriers = 0;
  int64_t parameterBytes = 0;
  int64_t codeBytes = 0;
  Occupancy occupancy;
};

/// A text that machine code points into: the unit, or a template.
struct SourceFile {
  std::string name;
  std::string text;
};

/// The tile of a matrix product and what its hot loop does for it.
struct TileWork {
  /// Tiles of one launch that covers all pairs of a step.
  int64_t tiles = 0;
  double flops = 0;
  /// Bytes that a tile draws from L2.
  double bytes = 0;
  /// Iterations of the hot loop, and instructions that one warp executes in them; 0 where the loop was not found.
  double iterations = 0;
  double instructions = 0;
};

/// One kernel, taken apart.
struct KernelInspection {
  /// `logits`, `row_map`, ...
  std::string step;
  std::string entry;
  std::string arch;
  /// Of matrix products: the config as JSON, and in words.
  std::string configJson;
  std::string configText;
  /// Of the kernel as plans use it, and of its source; `sha256:...`.
  std::string kernelDigest;
  std::string sourceDigest;
  /// `cache` or `compiled`
  std::string origin;
  double compileMilliseconds = 0;
  KernelResources resources;
  /// The generated unit first, then the templates, in the order of their names.
  std::vector<SourceFile> sources;
  /// Empty where the cubin does not have it.
  std::string ptx;
  /// None where there is no disassembler; `sassProblem` says why.
  std::optional<SassListing> sass = std::nullopt;
  std::string sassProblem;
  InstructionMix mix;
  std::vector<SassLoop> loops;
  /// Index into `loops`.
  std::optional<size_t> hotLoop = std::nullopt;
  std::optional<TileWork> tile = std::nullopt;
};

/// A part of the machine that may set a kernel's time.
enum class Bound : uint8_t { Compute, Memory, L2, SharedMemory, Mufu, Latency };

/// The least time that one part of the machine needs for a step.
struct FloorTime {
  Bound bound = Bound::Compute;
  /// FLOPs, bytes or operations, and how many of them a second.
  double amount = 0;
  double rate = 0;

  double milliseconds() const { return rate > 0 ? amount / rate * 1e3 : 0; }
};

/// One launch of a plan.
struct StepInspection {
  std::string step;
  /// `forward` or `backward`
  std::string pass;
  int64_t pairBegin = 0;
  int64_t pairEnd = 0;
  std::array<int64_t, 3> grid{1, 1, 1};
  double flops = 0;
  double bytes = 0;
  /// The largest one is the floor of the step.
  std::vector<FloorTime> floors;
  double floorMilliseconds = 0;
  Bound bound = Bound::Latency;
  /// What the cost model expects of a product; none for other steps.
  std::optional<double> predictedMilliseconds = std::nullopt;
  std::optional<double> measuredMilliseconds = std::nullopt;
};

/// What the target can do at best.
struct HardwareRates {
  double clockHz = 0;
  /// FLOPs a second by tensor cores in 16 bits, and by the FMA units.
  double tensorFlops = 0;
  double fmaFlops = 0;
  double memoryBytes = 0;
  double l2Bytes = 0;
  double sharedBytes = 0;
  double mufuOperations = 0;
};

/// One config of a product's search space.
struct LandscapePoint {
  std::string config;
  double predictedMilliseconds = 0;
  std::optional<double> measuredMilliseconds = std::nullopt;
  bool chosen = false;
};

/// The search space of one product.
struct Landscape {
  std::string step;
  std::vector<LandscapePoint> points;
};

/// A plan, taken apart.
struct PlanInspection {
  /// The workload as canonical JSON, and its digest.
  std::string workload;
  std::string workloadDigest;
  int64_t sequences = 0;
  int64_t tokens = 0;
  std::string arch;
  int multiprocessors = 0;
  HardwareRates rates;
  std::string strategy;
  int64_t workspaceBytes = 0;
  /// The loss and, where the workload has any, the gradients as one call.
  std::vector<StepInspection> steps;
  /// Each kernel that was asked for, once.
  std::vector<KernelInspection> kernels;
  std::vector<Landscape> landscapes;
  std::string latheVersion;
  std::string nvrtcVersion;
  std::string disassembler;
};

} // namespace lathe
