//===- runtime/driver/Handles.cpp - Owners of driver objects --------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/driver/Handles.h"

using namespace lathe;

llvm::Expected<PrimaryContext> PrimaryContext::retain(const Driver& driver, CUdevice device) {
  CUcontext context = nullptr;
  std::string what = llvm::formatv("cuDevicePrimaryCtxRetain of device {0}", device).str();
  if (llvm::Error error = check(driver, driver.devicePrimaryCtxRetain(&context, device), what)) return error;
  return PrimaryContext(driver, device, context);
}

PrimaryContext& PrimaryContext::operator=(PrimaryContext&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(device_, other.device_);
  std::swap(context_, other.context_);
  return *this;
}

llvm::Expected<ContextGuard> ContextGuard::enter(const Driver& driver, CUcontext context) {
  if (llvm::Error error = check(driver, driver.ctxPushCurrent(context), "cuCtxPushCurrent")) return error;
  return ContextGuard(driver);
}

ContextGuard::~ContextGuard() {
  CUcontext popped = nullptr;
  if (driver_) driver_->ctxPopCurrent(&popped);
}

llvm::Expected<Module> Module::load(const Driver& driver, llvm::StringRef cubin, llvm::StringRef name) {
  CUmodule module = nullptr;
  std::string what = llvm::formatv("cuModuleLoadData of '{0}' ({1} bytes)", name, cubin.size()).str();
  if (llvm::Error error = check(driver, driver.moduleLoadData(&module, cubin.data()), what)) return error;
  return Module(UniqueHandle<CUmodule, &Driver::moduleUnload>(driver, module));
}

llvm::Expected<CUfunction> Module::function(llvm::StringRef entry) const {
  CUfunction function = nullptr;
  const Driver& driver = *handle_.driver();
  CUresult result = driver.moduleGetFunction(&function, handle_.get(), entry.str().c_str());
  if (llvm::Error error = check(driver, result, llvm::formatv("cuModuleGetFunction of '{0}'", entry).str()))
    return error;
  return function;
}

llvm::Expected<Stream> Stream::create(const Driver& driver, unsigned flags) {
  CUstream stream = nullptr;
  if (llvm::Error error = check(driver, driver.streamCreate(&stream, flags), "cuStreamCreate")) return error;
  return Stream(UniqueHandle<CUstream, &Driver::streamDestroy>(driver, stream));
}

llvm::Error Stream::synchronize() const {
  const Driver& driver = *handle_.driver();
  return check(driver, driver.streamSynchronize(handle_.get()), "cuStreamSynchronize");
}

llvm::Expected<Event> Event::create(const Driver& driver, unsigned flags) {
  CUevent event = nullptr;
  if (llvm::Error error = check(driver, driver.eventCreate(&event, flags), "cuEventCreate")) return error;
  return Event(UniqueHandle<CUevent, &Driver::eventDestroy>(driver, event));
}

llvm::Error Event::record(CUstream stream) const {
  const Driver& driver = *handle_.driver();
  return check(driver, driver.eventRecord(handle_.get(), stream), "cuEventRecord");
}

llvm::Error Event::synchronize() const {
  const Driver& driver = *handle_.driver();
  return check(driver, driver.eventSynchronize(handle_.get()), "cuEventSynchronize");
}

llvm::Expected<float> Event::millisecondsSince(const Event& begin) const {
  float milliseconds = 0.0f;
  const Driver& driver = *handle_.driver();
  CUresult result = driver.eventElapsedTime(&milliseconds, begin.get(), get());
  if (llvm::Error error = check(driver, result, "cuEventElapsedTime")) return error;
  return milliseconds;
}

llvm::Expected<DeviceBuffer> DeviceBuffer::allocate(const Driver& driver, int64_t bytes) {
  if (bytes < 0)
    return makeError(ErrorCode::InvalidArgument, "a buffer of {0} bytes was asked for; the size must be 0 or more",
                     bytes);
  if (bytes == 0) return DeviceBuffer();
  CUdeviceptr address = 0;
  CUresult result = driver.memAlloc(&address, static_cast<size_t>(bytes));
  if (llvm::Error error = check(driver, result, llvm::formatv("cuMemAlloc of {0} bytes", bytes).str())) return error;
  return DeviceBuffer(UniqueHandle<CUdeviceptr, &Driver::memFree>(driver, address), bytes);
}
