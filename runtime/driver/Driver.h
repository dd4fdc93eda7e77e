//===- runtime/driver/Driver.h - The CUDA driver as a table ----*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// The CUDA driver, opened at run time, as a plain table of function pointers. Nothing here links against libcuda.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Error.h"
#include "generator/Target.h"

#include "llvm/ADT/StringRef.h"

#include <cudaTypedefs.h>

namespace lathe {

/// The oldest driver that Lathe runs on, as `cuDriverGetVersion` numbers it. The types below are the ABI of that
/// version; newer drivers keep it.
inline constexpr int kDriverVersion = 12000;

/// The entry points of the CUDA driver that Lathe calls: `memAlloc` is `cuMemAlloc`, and so on. Copyable; any pointer
/// may be replaced. Only `tensorMapEncodeTiled` may be null.
struct Driver {
  PFN_cuInit_v2000 init = nullptr;
  PFN_cuDriverGetVersion_v2020 driverGetVersion = nullptr;
  PFN_cuGetErrorName_v6000 getErrorName = nullptr;
  PFN_cuGetErrorString_v6000 getErrorString = nullptr;

  PFN_cuDeviceGetCount_v2000 deviceGetCount = nullptr;
  PFN_cuDeviceGet_v2000 deviceGet = nullptr;
  PFN_cuDeviceGetName_v2000 deviceGetName = nullptr;
  PFN_cuDeviceGetAttribute_v2000 deviceGetAttribute = nullptr;
  PFN_cuDeviceTotalMem_v3020 deviceTotalMem = nullptr;
  PFN_cuDeviceGetUuid_v11040 deviceGetUuid = nullptr;
  PFN_cuDevicePrimaryCtxRetain_v7000 devicePrimaryCtxRetain = nullptr;
  PFN_cuDevicePrimaryCtxRelease_v11000 devicePrimaryCtxRelease = nullptr;

  PFN_cuCtxGetCurrent_v4000 ctxGetCurrent = nullptr;
  PFN_cuCtxSetCurrent_v4000 ctxSetCurrent = nullptr;
  PFN_cuCtxPushCurrent_v4000 ctxPushCurrent = nullptr;
  PFN_cuCtxPopCurrent_v4000 ctxPopCurrent = nullptr;
  PFN_cuCtxGetDevice_v2000 ctxGetDevice = nullptr;
  PFN_cuCtxSynchronize_v2000 ctxSynchronize = nullptr;

  PFN_cuModuleLoadData_v2000 moduleLoadData = nullptr;
  PFN_cuModuleLoadDataEx_v2010 moduleLoadDataEx = nullptr;
  PFN_cuModuleUnload_v2000 moduleUnload = nullptr;
  PFN_cuModuleGetFunction_v2000 moduleGetFunction = nullptr;
  PFN_cuFuncSetAttribute_v9000 funcSetAttribute = nullptr;
  PFN_cuFuncGetAttribute_v2020 funcGetAttribute = nullptr;
  PFN_cuLaunchKernel_v4000 launchKernel = nullptr;
  PFN_cuLaunchKernelEx_v11060 launchKernelEx = nullptr;
  PFN_cuOccupancyMaxActiveClusters_v11070 occupancyMaxActiveClusters = nullptr;

  PFN_cuMemAlloc_v3020 memAlloc = nullptr;
  PFN_cuMemFree_v3020 memFree = nullptr;
  PFN_cuMemGetInfo_v3020 memGetInfo = nullptr;
  PFN_cuMemcpyHtoDAsync_v3020 memcpyHtoDAsync = nullptr;
  PFN_cuMemcpyDtoHAsync_v3020 memcpyDtoHAsync = nullptr;
  PFN_cuMemcpyDtoDAsync_v3020 memcpyDtoDAsync = nullptr;
  PFN_cuMemsetD8Async_v3020 memsetD8Async = nullptr;
  PFN_cuMemsetD32Async_v3020 memsetD32Async = nullptr;
  PFN_cuPointerGetAttribute_v4000 pointerGetAttribute = nullptr;

  PFN_cuStreamCreate_v2000 streamCreate = nullptr;
  PFN_cuStreamDestroy_v4000 streamDestroy = nullptr;
  PFN_cuStreamSynchronize_v2000 streamSynchronize = nullptr;
  PFN_cuStreamGetCtx_v9020 streamGetCtx = nullptr;
  PFN_cuStreamBeginCapture_v10010 streamBeginCapture = nullptr;
  PFN_cuStreamEndCapture_v10000 streamEndCapture = nullptr;
  PFN_cuStreamIsCapturing_v10000 streamIsCapturing = nullptr;

  PFN_cuGraphInstantiateWithFlags_v11040 graphInstantiateWithFlags = nullptr;
  PFN_cuGraphLaunch_v10000 graphLaunch = nullptr;
  PFN_cuGraphDestroy_v10000 graphDestroy = nullptr;
  PFN_cuGraphExecDestroy_v10000 graphExecDestroy = nullptr;

  PFN_cuEventCreate_v2000 eventCreate = nullptr;
  PFN_cuEventRecord_v2000 eventRecord = nullptr;
  PFN_cuEventSynchronize_v2000 eventSynchronize = nullptr;
  PFN_cuEventElapsedTime_v2000 eventElapsedTime = nullptr;
  PFN_cuEventDestroy_v4000 eventDestroy = nullptr;

  /// Null where the driver has no TMA descriptors.
  PFN_cuTensorMapEncodeTiled_v12000 tensorMapEncodeTiled = nullptr;
};

/// Calls `visit(name, pointer)` for every entry of `driver` but the optional one, `name` being that of the C function.
template <typename Visit> void forEachEntry(Driver& driver, Visit visit) {
  visit("cuInit", driver.init);
  visit("cuDriverGetVersion", driver.driverGetVersion);
  visit("cuGetErrorName", driver.getErrorName);
  visit("cuGetErrorString", driver.getErrorString);
  visit("cuDeviceGetCount", driver.deviceGetCount);
  visit("cuDeviceGet", driver.deviceGet);
  visit("cuDeviceGetName", driver.deviceGetName);
  visit("cuDeviceGetAttribute", driver.deviceGetAttribute);
  visit("cuDeviceTotalMem", driver.deviceTotalMem);
  visit("cuDeviceGetUuid", driver.deviceGetUuid);
  visit("cuDevicePrimaryCtxRetain", driver.devicePrimaryCtxRetain);
  visit("cuDevicePrimaryCtxRelease", driver.devicePrimaryCtxRelease);
  visit("cuCtxGetCurrent", driver.ctxGetCurrent);
  visit("cuCtxSetCurrent", driver.ctxSetCurrent);
  visit("cuCtxPushCurrent", driver.ctxPushCurrent);
  visit("cuCtxPopCurrent", driver.ctxPopCurrent);
  visit("cuCtxGetDevice", driver.ctxGetDevice);
  visit("cuCtxSynchronize", driver.ctxSynchronize);
  visit("cuModuleLoadData", driver.moduleLoadData);
  visit("cuModuleLoadDataEx", driver.moduleLoadDataEx);
  visit("cuModuleUnload", driver.moduleUnload);
  visit("cuModuleGetFunction", driver.moduleGetFunction);
  visit("cuFuncSetAttribute", driver.funcSetAttribute);
  visit("cuFuncGetAttribute", driver.funcGetAttribute);
  visit("cuLaunchKernel", driver.launchKernel);
  visit("cuLaunchKernelEx", driver.launchKernelEx);
  visit("cuOccupancyMaxActiveClusters", driver.occupancyMaxActiveClusters);
  visit("cuMemAlloc", driver.memAlloc);
  visit("cuMemFree", driver.memFree);
  visit("cuMemGetInfo", driver.memGetInfo);
  visit("cuMemcpyHtoDAsync", driver.memcpyHtoDAsync);
  visit("cuMemcpyDtoHAsync", driver.memcpyDtoHAsync);
  visit("cuMemcpyDtoDAsync", driver.memcpyDtoDAsync);
  visit("cuMemsetD8Async", driver.memsetD8Async);
  visit("cuMemsetD32Async", driver.memsetD32Async);
  visit("cuPointerGetAttribute", driver.pointerGetAttribute);
  visit("cuStreamCreate", driver.streamCreate);
  visit("cuStreamDestroy", driver.streamDestroy);
  visit("cuStreamSynchronize", driver.streamSynchronize);
  visit("cuStreamGetCtx", driver.streamGetCtx);
  visit("cuStreamBeginCapture", driver.streamBeginCapture);
  visit("cuStreamEndCapture", driver.streamEndCapture);
  visit("cuStreamIsCapturing", driver.streamIsCapturing);
  visit("cuGraphInstantiateWithFlags", driver.graphInstantiateWithFlags);
  visit("cuGraphLaunch", driver.graphLaunch);
  visit("cuGraphDestroy", driver.graphDestroy);
  visit("cuGraphExecDestroy", driver.graphExecDestroy);
  visit("cuEventCreate", driver.eventCreate);
  visit("cuEventRecord", driver.eventRecord);
  visit("cuEventSynchronize", driver.eventSynchronize);
  visit("cuEventElapsedTime", driver.eventElapsedTime);
  visit("cuEventDestroy", driver.eventDestroy);
}

/// Opens the driver's library and fills the table; calls nothing in it that touches a GPU. Errors are
/// ErrorCode::MissingLibrary (no library, or a driver older than `kDriverVersion`) and say what to install.
llvm::Expected<Driver> openDriver(llvm::StringRef path = "libcuda.so.1");

/// `cuInit`, then a check that the driver's version is at least `kDriverVersion`. May be called any number of times.
llvm::Error initialize(const Driver& driver);

/// Success, or ErrorCode::Driver with the driver's name and text for `result` and advice for the common ones. `what`
/// names the call and, where it helps, its subject: `cuMemAlloc of 4096 bytes`.
llvm::Error check(const Driver& driver, CUresult result, llvm::StringRef what);

/// Reads the figures of a live device.
llvm::Expected<Target> queryTarget(const Driver& driver, CUdevice device);

} // namespace lathe
