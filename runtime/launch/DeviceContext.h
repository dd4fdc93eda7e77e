//===- runtime/launch/DeviceContext.h - A GPU and the context to use it in --===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/driver/Handles.h"

#include <memory>
#include <optional>

namespace lathe {

/// A GPU, its figures, and the context in which kernels are loaded. Keeps the primary context alive where it is the
/// one; a context that the caller made must outlive this.
class DeviceContext {
public:
  /// The calling thread's current context if it has one and it is on device `ordinal` (or `ordinal` is none), else the
  /// primary context of that device (of device 0).
  static llvm::Expected<DeviceContext> open(std::shared_ptr<const Driver> driver, std::optional<int> ordinal);

  const Driver& driver() const { return *driver_; }
  CUcontext context() const { return context_; }
  const Target& target() const { return target_; }
  int ordinal() const { return ordinal_; }
  bool isPrimary() const { return primary_.has_value(); }

private:
  DeviceContext(std::shared_ptr<const Driver> driver, CUcontext context, Target target, int ordinal)
      : driver_(std::move(driver)), context_(context), target_(target), ordinal_(ordinal) {}

  std::shared_ptr<const Driver> driver_;
  CUcontext context_;
  Target target_;
  int ordinal_;
  std::optional<PrimaryContext> primary_;
};

/// The device with `ordinal`; the error says how many there are.
llvm::Expected<CUdevice> deviceAt(const Driver& driver, int ordinal);

} // namespace lathe
