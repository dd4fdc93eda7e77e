//===- examples/inspect_cpp/main.cpp - A kernel's figures in a C++ program --===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
//
// Compares the registers and the predicted times of the kernels for two GPUs, which need not be here. Needs NVRTC.
//
//===----------------------------------------------------------------------===//
#include <lathe/inspect.h>

#include <cstdio>

namespace {

constexpr lathe::Shape kShape{.sequences = 4, .tokens = 256};

lathe::Workload workload() {
  lathe::Workload workload;
  workload.hidden = 1024;
  workload.vocab = 32000;
  return workload;
}

void print(const lathe::PlanInspection& plan) {
  std::printf("%s\n", plan.arch.c_str());
  for (const lathe::KernelInspection& kernel : plan.kernels)
    std::printf("  %-16s %3d registers, %2d of %2d warps\n", kernel.step.c_str(), kernel.resources.registers,
                kernel.resources.occupancy.warps, kernel.resources.occupancy.maxWarps);
  double floor = 0;
  for (const lathe::StepInspection& step : plan.steps) floor += step.floorMilliseconds;
  std::printf("  no run takes less than %.3f ms\n", floor);
}

} // namespace

int main() {
  try {
    for (const char* arch : {"sm_80", "sm_90a"}) {
      lathe::InspectOptions options;
      options.arch = arch;
      const lathe::PlanInspection plan = lathe::inspectPlan(workload(), kShape, options);
      print(plan);
    }
  } catch (const lathe::Exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
