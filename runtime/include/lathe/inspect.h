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

#include "lathe/machine_code.h"
#include "lathe/runtime.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lathe {

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

/// A plan that tuning found best, by the `plan.json` of a cache.
struct TuningRecord {
  std::string run;
  /// `NVIDIA H200`
  std::string device;
  std::string driver;
  std::string nvrtc;
  int64_t sequences = 0;
  int64_t tokens = 0;
  double medianMilliseconds = 0;
  double untunedMedianMilliseconds = 0;
  /// UTC, ISO 8601.
  std::string date;
  std::string latheVersion;
  /// The configs of the products in words, by the product's step.
  std::vector<std::pair<std::string, std::string>> configs;
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
  /// Tuning of this workload and architecture, newest last.
  std::vector<TuningRecord> tuning;
  std::string latheVersion;
  std::string nvrtcVersion;
  std::string disassembler;
};

/// A line of a comparison: in both, only in the first, only in the second.
enum class LineOrigin : uint8_t { Both, First, Second };
struct ComparedLine {
  LineOrigin origin = LineOrigin::Both;
  std::string text;
};

/// A figure of two kernels.
struct ComparedFigure {
  /// `config`, `resources`, `instructions`, `time`
  std::string group;
  std::string name;
  std::string first;
  std::string second;

  bool differs() const { return first != second; }
};

/// Two kernels, compared.
struct KernelComparison {
  std::vector<ComparedFigure> figures;
  /// The generated units; of machine code and templates only figures are compared.
  std::vector<ComparedLine> source;
  /// Whether the machine code is the same, instruction by instruction; none where one of them was not read.
  std::optional<bool> sameCode = std::nullopt;
};

/// A kernel of a cubin that nothing else is known of.
struct CubinEntry {
  std::string name;
  KernelResources resources;
};

/// Where a cubin comes from.
struct KernelExplanation {
  /// The file, and the root of the cache that it lies in; empty for a file that is in none.
  std::string file;
  std::string cacheRoot;
  int64_t cubinBytes = 0;
  std::string cubinDigest;
  std::string arch;
  std::vector<CubinEntry> entries;

  /// The rest is known only of a cubin that is in a cache, or has its record beside it.
  bool known = false;
  std::string kernelDigest;
  std::string sourceDigest;
  std::string step;
  std::string configJson;
  std::string configText;
  std::vector<std::string> compileOptions;
  std::string nvrtcVersion;
  double compileMilliseconds = 0;
  /// UTC, ISO 8601.
  std::string created;
  std::string latheVersion;
  /// Canonical JSON; empty where the cache lacks it.
  std::string workload;
  std::string workloadDigest;
  /// The source in one file.
  std::string source;
  /// Tuned plans of this workload and architecture that have this kernel's config.
  std::vector<TuningRecord> tuning;
};

/// What to inspect, and how.
struct InspectOptions {
  /// `sm_90a`, ...: the GPU to compile for, which need not be there.
  std::string arch = {};
  /// One step of the plan, such as `logits`; empty: all.
  std::string step = {};
  /// As in `PlanOptions`.
  std::optional<int64_t> workspaceLimit = std::nullopt;
  std::optional<int64_t> chunkPairs = std::nullopt;
  /// For a product named by `step`: its config as JSON; empty: the one that a plan would take.
  std::string configJson = {};
  /// Where kernels are kept and NVRTC is found.
  RuntimeOptions runtime = {};
  /// The disassembler; none: `LATHE_NVDISASM`, else where toolkits and wheels have it.
  std::optional<std::string> nvdisasmPath = std::nullopt;
};

/// Plans, compiles (or finds in the cache) and takes apart. Needs NVRTC where the cache lacks a kernel, and no GPU.
/// Without nvdisasm all but the machine code is there. This and the functions below throw `lathe::Exception`.
LATHE_API PlanInspection inspectPlan(const Workload& workload, const Shape& shape, const InspectOptions& options);

/// Every figure of two kernels, and the differences of their sources.
LATHE_API KernelComparison compareKernels(const KernelInspection& first, const KernelInspection& second);

/// Explains a cubin's file, or the kernel whose digest begins with `what`, from the caches that `options` name.
LATHE_API KernelExplanation explainCubin(const std::string& what, const RuntimeOptions& options = {});

/// As `lathe inspect --json` prints it; with `withCode` the sources, PTX and machine code as well.
LATHE_API std::string inspectionJson(const PlanInspection& plan, bool withCode);

/// One HTML page that needs nothing else, for a browser.
LATHE_API std::string inspectionHtml(const PlanInspection& plan);

} // namespace lathe
