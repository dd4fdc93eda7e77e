//===- tuning/Nvml.h - Clocks and their limits -------------------*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/driver/Driver.h"

#include <string>

namespace lathe {

/// What slows a device down at a moment.
struct ClockState {
  /// Of the multiprocessors, in MHz.
  unsigned clock = 0;
  /// Heat, or a fault of the supply: not what the device is built to run at.
  bool throttled = false;
  /// The power limit, as is usual for large products.
  bool powerCapped = false;
};

/// NVIDIA's management library, opened at run time. It only adds to what is known: without it tuning works as well.
class Nvml {
public:
  /// The error says what is missing.
  static llvm::Expected<Nvml> open(const Driver& driver, CUdevice device, llvm::StringRef path = "libnvidia-ml.so.1");

  /// None when the library does not tell.
  std::optional<ClockState> state() const;
  /// Release of the driver, such as `580.65.06`; empty when the library does not tell.
  std::string driverRelease() const;

private:
  using Handle = void*;

  int (*getClock_)(Handle, int, unsigned*) = nullptr;
  int (*getReasons_)(Handle, unsigned long long*) = nullptr;
  int (*getDriver_)(char*, unsigned) = nullptr;
  Handle device_ = nullptr;
};

} // namespace lathe
