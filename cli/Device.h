//===- cli/Device.h - Where to run, and what to compile for ----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "cli/Session.h"

namespace lathe::cli {

/// A GPU as people know it.
struct GpuInfo {
  int ordinal = 0;
  std::string name;
  Target target;
  uint64_t memoryBytes = 0;
};

/// The GPUs that the driver shows, in its order.
llvm::Expected<std::vector<GpuInfo>> listGpus(const Driver& driver);

/// Where a case runs.
struct DeviceChoice {
  /// None: the CPU.
  std::optional<GpuInfo> gpu;
  /// Why `auto` took the CPU; empty when it did not.
  std::string reason;

  /// `cuda:0`, `cpu`
  std::string name() const;
  /// The name, and what is behind it.
  std::string describe() const;
};

/// Adds `--device`.
void addDeviceOption(CLI::App& verb, std::string& device);
/// Reads `cpu`, `cuda`, `cuda:N` or `auto`: the first GPU if the driver opens and shows one, else the CPU.
llvm::Expected<DeviceChoice> chooseDevice(llvm::StringRef text, Runtime::Implementation& runtime);

/// Adds `--arch` with one architecture.
void addArchOption(CLI::App& verb, std::string& arch);
/// The named architecture; without a name that of the first GPU.
llvm::Expected<Target> chooseTarget(llvm::StringRef arch, const Environment& environment);

} // namespace lathe::cli
