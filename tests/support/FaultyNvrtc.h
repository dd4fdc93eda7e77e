//===- tests/support/FaultyNvrtc.h - NVRTC that fails on order -*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/compile/Nvrtc.h"

#include <functional>
#include <memory>

namespace lathe::test {

/// Wraps a real NVRTC: passes every call on, counts it, and fails those it was told to. Only one may exist in a process
/// at a time; any number of threads may use it.
class FaultyNvrtc {
public:
  explicit FaultyNvrtc(Nvrtc real);
  ~FaultyNvrtc();
  FaultyNvrtc(const FaultyNvrtc&) = delete;
  FaultyNvrtc& operator=(const FaultyNvrtc&) = delete;

  /// The table that fails; it works while this object exists.
  Nvrtc table() const;

  /// Lets `afterCalls` calls of the C function `name` pass, then fails the next with `result` without making it.
  /// `nvrtcDestroyProgram` destroys the program all the same.
  void failNext(llvm::StringRef name, nvrtcResult result, int afterCalls = 0);

  /// Calls `hook` at the begin of every compilation, on its thread. To be set while nothing compiles.
  void beforeCompilations(std::function<void()> hook);

  /// Calls of `name` so far.
  size_t callCount(llvm::StringRef name) const;
  /// Programs that were created and not destroyed.
  size_t livePrograms() const;

  struct State;

private:
  std::unique_ptr<State> state_;
};

} // namespace lathe::test
