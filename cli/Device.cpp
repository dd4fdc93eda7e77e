//===- cli/Device.cpp - Where to run, and what to compile for --------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/Device.h"

#include "cli/Text.h"
#include "runtime/launch/DeviceContext.h"

using namespace lathe;
using namespace lathe::cli;

namespace {

llvm::Expected<GpuInfo> describeGpu(const Driver& driver, int ordinal) {
  llvm::Expected<CUdevice> device = deviceAt(driver, ordinal);
  if (!device) return device.takeError();
  char name[256] = {};
  if (llvm::Error error = check(driver, driver.deviceGetName(name, sizeof(name) - 1, *device), "cuDeviceGetName"))
    return error;
  size_t bytes = 0;
  if (llvm::Error error = check(driver, driver.deviceTotalMem(&bytes, *device), "cuDeviceTotalMem")) return error;
  llvm::Expected<Target> target = queryTarget(driver, *device);
  if (!target) return target.takeError();
  return GpuInfo{ordinal, name, *target, bytes};
}

/// The first GPU of a driver that may be missing.
llvm::Expected<GpuInfo> firstGpu(llvm::Expected<std::shared_ptr<const Driver>> driver) {
  if (!driver) return driver.takeError();
  return describeGpu(**driver, 0);
}

} // namespace

llvm::Expected<std::vector<GpuInfo>> lathe::cli::listGpus(const Driver& driver) {
  int count = 0;
  if (llvm::Error error = check(driver, driver.deviceGetCount(&count), "cuDeviceGetCount")) return error;
  std::vector<GpuInfo> gpus;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    llvm::Expected<GpuInfo> gpu = describeGpu(driver, ordinal);
    if (!gpu) return gpu.takeError();
    gpus.push_back(std::move(*gpu));
  }
  return gpus;
}

std::string DeviceChoice::name() const {
  return gpu ? "cuda:" + std::to_string(gpu->ordinal) : "cpu";
}

std::string DeviceChoice::describe() const {
  if (gpu)
    return llvm::formatv("{0} ({1}, {2}, {3})", name(), gpu->name, gpu->target.arch(),
                         bytesText(static_cast<double>(gpu->memoryBytes)));
  return "cpu";
}

void lathe::cli::addDeviceOption(CLI::App& verb, std::string& device) {
  verb.add_option("--device", device, "cpu, cuda:N, or auto: the first GPU, else the CPU (default auto)")
      ->type_name("DEVICE");
}

llvm::Expected<DeviceChoice> lathe::cli::chooseDevice(llvm::StringRef text, Runtime::Implementation& runtime) {
  if (text == "cpu") return DeviceChoice{};
  if (text == "auto") {
    llvm::Expected<GpuInfo> gpu = firstGpu(runtime.driver());
    if (gpu) return DeviceChoice{std::move(*gpu), ""};
    // The first sentence: what follows is advice, for which there is `lathe doctor`.
    const std::string message = takeSummary(gpu.takeError()).message;
    return DeviceChoice{std::nullopt, llvm::StringRef(message).split(". ").first.str()};
  }
  int ordinal = 0;
  llvm::StringRef number = text;
  if (!number.consume_front("cuda") ||
      (!number.empty() && (!number.consume_front(":") || number.getAsInteger(10, ordinal) || ordinal < 0)))
    return makeError(ErrorCode::InvalidArgument, "--device is \"{0}\"; it must be cpu, cuda, cuda:N or auto", text);
  llvm::Expected<std::shared_ptr<const Driver>> driver = runtime.driver();
  if (!driver) return driver.takeError();
  llvm::Expected<GpuInfo> gpu = describeGpu(**driver, ordinal);
  if (!gpu) return gpu.takeError();
  return DeviceChoice{std::move(*gpu), ""};
}

void lathe::cli::addArchOption(CLI::App& verb, std::string& arch) {
  verb.add_option("--arch", arch, "GPU to generate for, such as sm_90a (default: the first GPU here)")
      ->type_name("ARCH")
      ->group("Plan");
}

llvm::Expected<Target> lathe::cli::chooseTarget(llvm::StringRef arch, const Environment& environment) {
  if (!arch.empty()) return parseTarget(arch);
  llvm::Expected<GpuInfo> gpu = firstGpu(makeRuntime(environment)->driver());
  if (gpu) return gpu->target;
  return makeError(ErrorCode::InvalidArgument, "no GPU to generate for ({0}); name one with --arch, such as sm_90a",
                   takeSummary(gpu.takeError()).message);
}
