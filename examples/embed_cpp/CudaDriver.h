//===- examples/embed_cpp/CudaDriver.h - The driver calls needed -*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// The few functions of the CUDA driver that the example calls itself, opened at run time so that it builds and starts
/// on machines without a driver. An application that links against libcuda or libcudart needs none of this.
///
//===----------------------------------------------------------------------===//
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <stdexcept>
#include <string>
#include <vector>

/// Why there is no GPU to run on.
struct NoGpu : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws when a call of the driver failed.
inline void check(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS)
    throw std::runtime_error(std::string(call) + " failed with CUDA error " + std::to_string(result));
}

/// A symbol of libcuda.so.1. The types come from cuda.h, which gives each function its versioned name as well.
template <class Function> Function driverFunction(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) throw NoGpu("libcuda.so.1 cannot be opened; install the NVIDIA driver");
  void* const symbol = dlsym(library, name);
  if (!symbol) throw NoGpu(std::string("the NVIDIA driver has no ") + name + "; install a newer one");
  return reinterpret_cast<Function>(symbol);
}

/// The driver's functions by their plain names.
struct CudaDriver {
  template <class Function> using Pointer = Function*;

  Pointer<decltype(cuInit)> init = driverFunction<decltype(init)>("cuInit");
  Pointer<decltype(cuDeviceGetCount)> deviceGetCount = driverFunction<decltype(deviceGetCount)>("cuDeviceGetCount");
  Pointer<decltype(cuDeviceGet)> deviceGet = driverFunction<decltype(deviceGet)>("cuDeviceGet");
  Pointer<decltype(cuDevicePrimaryCtxRetain)> contextRetain =
      driverFunction<decltype(contextRetain)>("cuDevicePrimaryCtxRetain");
  Pointer<decltype(cuDevicePrimaryCtxRelease)> contextRelease =
      driverFunction<decltype(contextRelease)>("cuDevicePrimaryCtxRelease_v2");
  Pointer<decltype(cuCtxSetCurrent)> contextSetCurrent = driverFunction<decltype(contextSetCurrent)>("cuCtxSetCurrent");
  Pointer<decltype(cuMemAlloc)> memAlloc = driverFunction<decltype(memAlloc)>("cuMemAlloc_v2");
  Pointer<decltype(cuMemFree)> memFree = driverFunction<decltype(memFree)>("cuMemFree_v2");
  Pointer<decltype(cuMemcpyHtoD)> copyToDevice = driverFunction<decltype(copyToDevice)>("cuMemcpyHtoD_v2");
  Pointer<decltype(cuMemcpyDtoH)> copyToHost = driverFunction<decltype(copyToHost)>("cuMemcpyDtoH_v2");
  Pointer<decltype(cuStreamCreate)> streamCreate = driverFunction<decltype(streamCreate)>("cuStreamCreate");
  Pointer<decltype(cuStreamDestroy)> streamDestroy = driverFunction<decltype(streamDestroy)>("cuStreamDestroy_v2");
  Pointer<decltype(cuStreamSynchronize)> streamSynchronize =
      driverFunction<decltype(streamSynchronize)>("cuStreamSynchronize");
  Pointer<decltype(cuStreamBeginCapture)> beginCapture =
      driverFunction<decltype(beginCapture)>("cuStreamBeginCapture_v2");
  Pointer<decltype(cuStreamEndCapture)> endCapture = driverFunction<decltype(endCapture)>("cuStreamEndCapture");
  Pointer<decltype(cuGraphInstantiateWithFlags)> graphInstantiate =
      driverFunction<decltype(graphInstantiate)>("cuGraphInstantiateWithFlags");
  Pointer<decltype(cuGraphLaunch)> graphLaunch = driverFunction<decltype(graphLaunch)>("cuGraphLaunch");
  Pointer<decltype(cuGraphDestroy)> graphDestroy = driverFunction<decltype(graphDestroy)>("cuGraphDestroy");
  Pointer<decltype(cuGraphExecDestroy)> graphExecDestroy =
      driverFunction<decltype(graphExecDestroy)>("cuGraphExecDestroy");
};

/// The first GPU with its primary context, current on this thread, and a stream.
class Gpu {
public:
  Gpu() {
    int count = 0;
    if (driver.init(0) != CUDA_SUCCESS || driver.deviceGetCount(&count) != CUDA_SUCCESS || count == 0)
      throw NoGpu("the NVIDIA driver shows none");
    check(driver.deviceGet(&device_, 0), "cuDeviceGet");
    CUcontext context = nullptr;
    check(driver.contextRetain(&context, device_), "cuDevicePrimaryCtxRetain");
    check(driver.contextSetCurrent(context), "cuCtxSetCurrent");
    // Ordered with the copies of DeviceMemory, which use the legacy default stream.
    check(driver.streamCreate(&stream_, CU_STREAM_DEFAULT), "cuStreamCreate");
  }
  ~Gpu() {
    driver.streamDestroy(stream_);
    driver.contextRelease(device_);
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  CUstream stream() const { return stream_; }
  void synchronize() const { check(driver.streamSynchronize(stream_), "cuStreamSynchronize"); }

  const CudaDriver driver;

private:
  CUdevice device_ = 0;
  CUstream stream_ = nullptr;
};

/// Device memory, freed with the object.
class DeviceMemory {
public:
  DeviceMemory(const Gpu& gpu, size_t bytes) : gpu_(gpu) { check(gpu.driver.memAlloc(&address_, bytes), "cuMemAlloc"); }
  template <class T>
  DeviceMemory(const Gpu& gpu, const std::vector<T>& values) : DeviceMemory(gpu, values.size() * sizeof(T)) {
    check(gpu.driver.copyToDevice(address_, values.data(), values.size() * sizeof(T)), "cuMemcpyHtoD");
  }
  ~DeviceMemory() { gpu_.driver.memFree(address_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void* get() const { return reinterpret_cast<void*>(address_); }
  template <class T> T* as() const { return static_cast<T*>(get()); }

  /// The first `sizeof(T)` bytes; the work that writes them must have finished.
  template <class T> T read() const {
    T value;
    check(gpu_.driver.copyToHost(&value, address_, sizeof(T)), "cuMemcpyDtoH");
    return value;
  }

private:
  const Gpu& gpu_;
  CUdeviceptr address_ = 0;
};
