//===- runtime/inspect/Inspector.h - Taking kernels apart -------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/PlanGraph.h"
#include "lathe/inspect.h"
#include "runtime/cache/Environment.h"
#include "runtime/inspect/Disassembler.h"
#include "runtime/kernels/KernelStore.h"

namespace lathe {

/// What is known of a cubin besides its bytes.
struct CubinContext {
  std::string entry;
  Target target;
  int threads = 0;
  int64_t dynamicSharedBytes = 0;
};

/// Takes kernels apart. Safe to use from several threads.
class Inspector {
public:
  using OpenNvrtc = KernelStore::OpenNvrtc;
  using Warn = KernelStore::Warn;

  /// `cache` may be null and must outlive this. NVRTC is opened, and nvdisasm looked for, when they are first needed.
  /// Kernels are compiled with line information, whatever they spill, and kept in the cache under digests of their own.
  Inspector(const Environment& environment, const Cache* cache, OpenNvrtc openNvrtc, const Warn& warn);

  /// The plan and those of its kernels that `wanted` names (none: all). The kernels are found or compiled, and read, in
  /// parallel.
  llvm::Expected<PlanInspection> plan(const PlanGraph& graph, std::optional<KernelKind> wanted = std::nullopt);

  /// One kernel.
  llvm::Expected<KernelInspection> kernel(const Specialization& unit, const Workload& workload);

  /// Resources, PTX and machine code of a cubin from anywhere. Only a cubin that cannot be read is an error; a missing
  /// or failing disassembler is noted in the result.
  llvm::Expected<KernelInspection> cubin(llvm::StringRef bytes, const CubinContext& context) const;

private:
  llvm::Expected<KernelInspection> inspectKernel(const Kernel& kernel) const;
  void addTuning(const PlanGraph& graph, PlanInspection& result) const;
  void addTools(PlanInspection& result);
  llvm::Expected<NvrtcVersion> nvrtcVersion();
  void addMachineCode(llvm::StringRef cubin, KernelInspection& result) const;

  const Environment environment_;
  const Cache* cache_;
  KernelStore store_;
};

/// `wgmma/ptx.cuh` for `/tmp/wgmma/ptx.cuh`, `lathe_logits.cu` for `/tmp/lathe_logits.cu`: NVRTC puts the current
/// folder before names that have none. Paths of other files stay.
std::string sourceName(llvm::StringRef path);

/// Gives `kernel`, if `unit` is a product, its tile in `graph`: also the iterations of the hot loop for one tile, and
/// the instructions of one warp in them, from the floating-point operations that the loop makes.
void addWork(const PlanGraph& graph, const Specialization& unit, KernelInspection& kernel);

} // namespace lathe
