//===- tests/support/FaultyNvrtc.cpp - NVRTC that fails on order ----------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tests/support/FaultyNvrtc.h"

#include <atomic>
#include <map>
#include <mutex>

using namespace lathe;
using namespace lathe::test;

namespace {

struct Fault {
  int callsBefore;
  nvrtcResult result;
};

std::atomic<FaultyNvrtc::State*> currentState{nullptr};

} // namespace

struct FaultyNvrtc::State {
  Nvrtc real;
  mutable std::mutex mutex;
  std::map<std::string, Fault, std::less<>> faults;
  std::map<std::string, size_t, std::less<>> calls;
  size_t livePrograms = 0;
  std::function<void()> beforeCompilations = [] {};

  /// Counts the call `name` and returns the fault that it must fail with.
  nvrtcResult takeFault(const char* name) {
    std::lock_guard lock(mutex);
    ++calls[name];
    auto fault = faults.find(name);
    if (fault == faults.end() || fault->second.callsBefore-- > 0) return NVRTC_SUCCESS;
    nvrtcResult result = fault->second.result;
    faults.erase(fault);
    return result;
  }

  void addProgram(int count) {
    std::lock_guard lock(mutex);
    livePrograms += count;
  }
};

namespace {

/// Makes the real call unless it must fail. The lock is not held meanwhile, so compilations run side by side.
template <typename Function, typename... Args>
nvrtcResult forward(const char* name, Function Nvrtc::* function, Args... args) {
  FaultyNvrtc::State* state = currentState.load();
  if (nvrtcResult fault = state->takeFault(name)) return fault;
  return (state->real.*function)(args...);
}

nvrtcResult getVersion(int* major, int* minor) {
  return forward("nvrtcVersion", &Nvrtc::getVersion, major, minor);
}

const char* getErrorString(nvrtcResult result) {
  return currentState.load()->real.getErrorString(result);
}

nvrtcResult getNumSupportedArchs(int* count) {
  return forward("nvrtcGetNumSupportedArchs", &Nvrtc::getNumSupportedArchs, count);
}

nvrtcResult getSupportedArchs(int* archs) {
  return forward("nvrtcGetSupportedArchs", &Nvrtc::getSupportedArchs, archs);
}

nvrtcResult createProgram(nvrtcProgram* program, const char* source, const char* name, int headers,
                          const char* const* texts, const char* const* names) {
  nvrtcResult result =
      forward("nvrtcCreateProgram", &Nvrtc::createProgram, program, source, name, headers, texts, names);
  if (result == NVRTC_SUCCESS) currentState.load()->addProgram(1);
  return result;
}

nvrtcResult compileProgram(nvrtcProgram program, int count, const char* const* options) {
  currentState.load()->beforeCompilations();
  return forward("nvrtcCompileProgram", &Nvrtc::compileProgram, program, count, options);
}

nvrtcResult getCubinSize(nvrtcProgram program, size_t* size) {
  return forward("nvrtcGetCUBINSize", &Nvrtc::getCubinSize, program, size);
}

nvrtcResult getCubin(nvrtcProgram program, char* bytes) {
  return forward("nvrtcGetCUBIN", &Nvrtc::getCubin, program, bytes);
}

nvrtcResult getProgramLogSize(nvrtcProgram program, size_t* size) {
  return forward("nvrtcGetProgramLogSize", &Nvrtc::getProgramLogSize, program, size);
}

nvrtcResult getProgramLog(nvrtcProgram program, char* log) {
  return forward("nvrtcGetProgramLog", &Nvrtc::getProgramLog, program, log);
}

nvrtcResult destroyProgram(nvrtcProgram* program) {
  FaultyNvrtc::State* state = currentState.load();
  nvrtcResult fault = state->takeFault("nvrtcDestroyProgram");
  nvrtcResult result = state->real.destroyProgram(program);
  if (result == NVRTC_SUCCESS) state->addProgram(-1);
  return fault ? fault : result;
}

} // namespace

FaultyNvrtc::FaultyNvrtc(Nvrtc real) : state_(std::make_unique<State>()) {
  state_->real = std::move(real);
  State* none = nullptr;
  if (!currentState.compare_exchange_strong(none, state_.get()))
    llvm::report_fatal_error("only one FaultyNvrtc may exist at a time");
}

FaultyNvrtc::~FaultyNvrtc() {
  currentState = nullptr;
}

Nvrtc FaultyNvrtc::table() const {
  Nvrtc nvrtc;
  nvrtc.getVersion = getVersion;
  nvrtc.getErrorString = getErrorString;
  nvrtc.getNumSupportedArchs = getNumSupportedArchs;
  nvrtc.getSupportedArchs = getSupportedArchs;
  nvrtc.createProgram = createProgram;
  nvrtc.compileProgram = compileProgram;
  nvrtc.getCubinSize = getCubinSize;
  nvrtc.getCubin = getCubin;
  nvrtc.getProgramLogSize = getProgramLogSize;
  nvrtc.getProgramLog = getProgramLog;
  nvrtc.destroyProgram = destroyProgram;
  nvrtc.path = state_->real.path;
  return nvrtc;
}

void FaultyNvrtc::failNext(llvm::StringRef name, nvrtcResult result, int afterCalls) {
  std::lock_guard lock(state_->mutex);
  state_->faults[name.str()] = {afterCalls, result};
}

void FaultyNvrtc::beforeCompilations(std::function<void()> hook) {
  state_->beforeCompilations = std::move(hook);
}

size_t FaultyNvrtc::callCount(llvm::StringRef name) const {
  std::lock_guard lock(state_->mutex);
  auto found = state_->calls.find(name.str());
  return found == state_->calls.end() ? 0 : found->second;
}

size_t FaultyNvrtc::livePrograms() const {
  std::lock_guard lock(state_->mutex);
  return state_->livePrograms;
}
