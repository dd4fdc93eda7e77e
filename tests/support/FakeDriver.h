//===- tests/support/FakeDriver.h - A CUDA driver in memory ----*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// A driver table that keeps the driver's rules without a GPU: device memory is host memory, modules are cubins that
/// are parsed but not run, launches are checked and recorded, streams can be captured. Any call can be made to fail.
///
/// \code
/// FakeDriver fake;
/// Driver driver = fake.table();
/// fake.failNext("cuModuleLoadData", CUDA_ERROR_OUT_OF_MEMORY);
/// ...
/// CHECK(fake.leaks() == "");
/// \endcode
///
/// What it is strict about: a current context, live handles, bounds of every copy and fill, launch geometry against the
/// kernel's and the device's limits, opt-in to large shared memory, the architecture of a cubin, and capture rules.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Target.h"
#include "runtime/driver/Driver.h"

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lathe::test {

/// One launch that reached the fake device.
struct FakeLaunch {
  std::string kernel;
  std::array<unsigned, 3> grid{};
  std::array<unsigned, 3> block{};
  std::array<unsigned, 3> cluster{1, 1, 1};
  /// Dynamic shared memory of a block.
  unsigned sharedBytes = 0;
  CUstream stream = nullptr;
  /// Whether it came out of a graph.
  bool fromGraph = false;
  /// The bytes of each parameter.
  std::vector<std::string> parameters;

  /// Parameter `index` as a `T` of the same size; the test ends when there is no such parameter.
  template <typename T> T parameter(size_t index) const {
    T value;
    copyParameter(index, &value, sizeof(T));
    return value;
  }

private:
  void copyParameter(size_t index, void* target, size_t size) const;
};

/// The fake. C function pointers carry no state, so only one may exist in a process at a time; any number of threads
/// may use it.
class FakeDriver {
public:
  /// One H200-like device, with 1 GiB of memory that is really allocated.
  FakeDriver();
  ~FakeDriver();
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  /// The complete table; it works while this fake exists.
  Driver table() const;

  /// \name The machine. Set it up before the code under test runs.
  /// @{
  void setDeviceCount(int count);
  void setDriverVersion(int version);
  /// All devices get the figures of `target`.
  void setTarget(const Target& target);
  void setAttribute(CUdevice_attribute attribute, int value);
  void setMemoryBytes(size_t bytes);
  /// @}

  /// \name Faults. Failing calls that release something still release it, as an asynchronous error of a real driver
  /// does.
  /// @{
  /// Lets `afterCalls` calls of the C function `name` pass, then fails the next with `result`.
  void failNext(llvm::StringRef name, CUresult result, int afterCalls = 0);
  /// Fails the call that will be number `index` of all, counted from 0.
  void failCall(size_t index, CUresult result);
  /// @}

  /// \name What happened.
  /// @{
  /// Names of all calls so far, in order.
  std::vector<std::string> calls() const;
  /// Calls of `name` so far.
  size_t callCount(llvm::StringRef name) const;
  void forgetCalls();
  std::vector<FakeLaunch> launches() const;
  /// Everything that is alive: `1 module, 2 allocations (512 bytes)`; empty when nothing is.
  std::string leaks() const;
  size_t allocatedBytes() const;
  /// @}

  /// \name What kernels do. The callbacks run inside the driver's lock and must not call the driver.
  /// @{
  /// Called for each launch, for example to write results into device memory.
  void onLaunch(std::function<void(const FakeLaunch&)> effect);
  /// Milliseconds that each launch takes on the clock of events; 0.001 unless set.
  void setLaunchTime(std::function<double(const FakeLaunch&)> milliseconds);
  /// @}

  struct State;

private:
  std::unique_ptr<State> state_;
};

} // namespace lathe::test
