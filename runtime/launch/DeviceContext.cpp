//===- runtime/launch/DeviceContext.cpp - A GPU and the context to use it in -===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/launch/DeviceContext.h"

using namespace lathe;

llvm::Expected<CUdevice> lathe::deviceAt(const Driver& driver, int ordinal) {
  int count = 0;
  if (llvm::Error error = check(driver, driver.deviceGetCount(&count), "cuDeviceGetCount")) return error;
  if (ordinal < 0 || ordinal >= count)
    return makeError(ErrorCode::InvalidArgument, "there is no device {0}: the driver sees {1} ({2})", ordinal, count,
                     count == 0 ? "check nvidia-smi and CUDA_VISIBLE_DEVICES" : "ordinals count from 0");
  CUdevice device = 0;
  if (llvm::Error error = check(driver, driver.deviceGet(&device, ordinal), "cuDeviceGet")) return error;
  return device;
}

llvm::Expected<DeviceContext> DeviceContext::open(std::shared_ptr<const Driver> shared, std::optional<int> ordinal) {
  const Driver& driver = *shared;
  if (llvm::Error error = initialize(driver)) return error;
  CUcontext current = nullptr;
  if (llvm::Error error = check(driver, driver.ctxGetCurrent(&current), "cuCtxGetCurrent")) return error;
  if (current) {
    CUdevice device = 0;
    if (llvm::Error error = check(driver, driver.ctxGetDevice(&device), "cuCtxGetDevice")) return error;
    // A CUdevice is its ordinal.
    if (!ordinal || *ordinal == device) {
      llvm::Expected<Target> target = queryTarget(driver, device);
      if (!target) return target.takeError();
      return DeviceContext(std::move(shared), current, *target, device);
    }
  }
  llvm::Expected<CUdevice> device = deviceAt(driver, ordinal.value_or(0));
  if (!device) return device.takeError();
  llvm::Expected<Target> target = queryTarget(driver, *device);
  if (!target) return target.takeError();
  llvm::Expected<PrimaryContext> primary = PrimaryContext::retain(driver, *device);
  if (!primary) return primary.takeError();
  DeviceContext result(std::move(shared), primary->get(), *target, *device);
  result.primary_.emplace(std::move(*primary));
  return result;
}
