//===- runtime/driver/Handles.h - Owners of driver objects -----*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Move-only owners of the driver's objects. Making one can fail; destroying one is silent, as there is nobody to tell.
/// Each keeps a pointer to the `Driver` that made it, which must outlive it, and its context must still exist when it
/// is destroyed.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/driver/Driver.h"

#include <utility>

namespace lathe {

/// Owns one `T` and passes it to the driver function `Destroy` at the end of its life. Default-constructed or moved
/// from, it owns nothing.
template <typename T, auto Destroy> class UniqueHandle {
public:
  UniqueHandle() = default;
  /// Takes ownership of `value`, which `driver` made.
  UniqueHandle(const Driver& driver, T value) : driver_(&driver), value_(value) {}
  UniqueHandle(UniqueHandle&& other) noexcept
      : driver_(std::exchange(other.driver_, nullptr)), value_(std::exchange(other.value_, T{})) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(value_, other.value_);
    return *this;
  }
  ~UniqueHandle() {
    if (driver_) (driver_->*Destroy)(value_);
  }

  T get() const { return value_; }
  /// The driver that made the object; null when there is none.
  const Driver* driver() const { return driver_; }
  explicit operator bool() const { return driver_ != nullptr; }

private:
  const Driver* driver_ = nullptr;
  T value_{};
};

/// One reference to the primary context of a device, the context that PyTorch and the CUDA runtime use as well.
class PrimaryContext {
public:
  static llvm::Expected<PrimaryContext> retain(const Driver& driver, CUdevice device);
  PrimaryContext(PrimaryContext&& other) noexcept
      : driver_(std::exchange(other.driver_, nullptr)), device_(other.device_), context_(other.context_) {}
  PrimaryContext& operator=(PrimaryContext&& other) noexcept;
  ~PrimaryContext() {
    if (driver_) driver_->devicePrimaryCtxRelease(device_);
  }

  CUcontext get() const { return context_; }
  CUdevice device() const { return device_; }

private:
  PrimaryContext(const Driver& driver, CUdevice device, CUcontext context)
      : driver_(&driver), device_(device), context_(context) {}

  const Driver* driver_;
  CUdevice device_;
  CUcontext context_;
};

/// Makes a context current on this thread until the end of the scope; then the one before is current again.
class ContextGuard {
public:
  static llvm::Expected<ContextGuard> enter(const Driver& driver, CUcontext context);
  ContextGuard(ContextGuard&& other) noexcept : driver_(std::exchange(other.driver_, nullptr)) {}
  ContextGuard& operator=(ContextGuard&&) = delete;
  ~ContextGuard();

private:
  explicit ContextGuard(const Driver& driver) : driver_(&driver) {}

  const Driver* driver_;
};

/// A cubin loaded into the current context.
class Module {
public:
  /// Loads `cubin`, whose bytes are needed only during the call. They must form a whole, checked cubin: the driver is
  /// not told their number. `name` is for messages.
  static llvm::Expected<Module> load(const Driver& driver, llvm::StringRef cubin, llvm::StringRef name);

  /// The kernel named `entry`; it lives as long as the module.
  llvm::Expected<CUfunction> function(llvm::StringRef entry) const;
  CUmodule get() const { return handle_.get(); }

private:
  explicit Module(UniqueHandle<CUmodule, &Driver::moduleUnload> handle) : handle_(std::move(handle)) {}

  UniqueHandle<CUmodule, &Driver::moduleUnload> handle_;
};

/// A stream of the current context.
class Stream {
public:
  static llvm::Expected<Stream> create(const Driver& driver, unsigned flags = CU_STREAM_NON_BLOCKING);
  llvm::Error synchronize() const;
  CUstream get() const { return handle_.get(); }

private:
  explicit Stream(UniqueHandle<CUstream, &Driver::streamDestroy> handle) : handle_(std::move(handle)) {}

  UniqueHandle<CUstream, &Driver::streamDestroy> handle_;
};

/// An event of the current context, with a time stamp unless `flags` forbids it.
class Event {
public:
  static llvm::Expected<Event> create(const Driver& driver, unsigned flags = CU_EVENT_DEFAULT);
  llvm::Error record(CUstream stream) const;
  /// Waits until the work before the last `record` has ended.
  llvm::Error synchronize() const;
  /// Milliseconds from `begin` to this event; both must have been reached.
  llvm::Expected<float> millisecondsSince(const Event& begin) const;
  CUevent get() const { return handle_.get(); }

private:
  explicit Event(UniqueHandle<CUevent, &Driver::eventDestroy> handle) : handle_(std::move(handle)) {}

  UniqueHandle<CUevent, &Driver::eventDestroy> handle_;
};

/// Device memory of the current context. A buffer of 0 bytes holds no memory and its address is 0.
class DeviceBuffer {
public:
  DeviceBuffer() = default;
  /// Allocates `bytes`, at least 0; the contents are undefined.
  static llvm::Expected<DeviceBuffer> allocate(const Driver& driver, int64_t bytes);
  CUdeviceptr get() const { return handle_.get(); }
  int64_t bytes() const { return bytes_; }

private:
  DeviceBuffer(UniqueHandle<CUdeviceptr, &Driver::memFree> handle, int64_t bytes)
      : handle_(std::move(handle)), bytes_(bytes) {}

  UniqueHandle<CUdeviceptr, &Driver::memFree> handle_;
  int64_t bytes_ = 0;
};

/// A captured graph, and one ready to launch.
using Graph = UniqueHandle<CUgraph, &Driver::graphDestroy>;
using GraphExec = UniqueHandle<CUgraphExec, &Driver::graphExecDestroy>;

} // namespace lathe
