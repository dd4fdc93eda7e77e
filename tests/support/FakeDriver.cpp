//===- tests/support/FakeDriver.cpp - A CUDA driver in memory -------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tests/support/FakeDriver.h"

#include "runtime/compile/Cubin.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Object/ELF.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

using namespace lathe;
using namespace lathe::test;

namespace {

using State = FakeDriver::State;
/// Queued work: runs now, or each time the graph that it was captured into is launched.
using Work = std::function<CUresult(State&, bool fromGraph)>;

constexpr int kDefaultDynamicShared = 48 * 1024;
constexpr int64_t kMaxGrid[3] = {0x7fffffff, 65535, 65535};
constexpr unsigned kMaxBlock[3] = {1024, 1024, 64};
constexpr unsigned kMaxThreads = 1024;

struct FakeStream {
  bool nonBlocking = false;
  /// The work captured so far, while a capture is under way.
  std::optional<std::vector<Work>> capture;
  bool invalidated = false;
};

struct FakeEvent {
  bool timed = true;
  std::optional<double> time;
};

struct FakeFunction {
  std::string name;
  CubinInfo info;
  int maxDynamicShared = kDefaultDynamicShared;
};

struct FakeModule {
  std::string image;
  std::map<std::string, std::unique_ptr<FakeFunction>> functions;
};

struct FakeAllocation {
  std::unique_ptr<void, decltype(&std::free)> memory{nullptr, &std::free};
  size_t bytes = 0;
};

struct Fault {
  /// Empty for any function.
  std::string name;
  size_t callsBefore;
  CUresult result;
};

/// What a call does when a fault is injected: nothing, or its effect all the same.
enum class OnFault { Refuse, Release };

std::atomic<State*> currentState{nullptr};

} // namespace

struct FakeDriver::State {
  mutable std::recursive_mutex mutex;

  int deviceCount = 1;
  int driverVersion = CUDA_VERSION;
  std::map<CUdevice_attribute, int> attributes;
  size_t memoryBytes = size_t(1) << 30;
  bool initialized = false;

  /// References to the primary context of each device. The handle of a context is the address of its counter.
  std::array<int, 16> primaryReferences{};
  std::map<std::thread::id, std::vector<CUcontext>> contextStacks;

  /// Keyed by address.
  std::map<CUdeviceptr, FakeAllocation> allocations;
  std::map<CUmodule, std::unique_ptr<FakeModule>> modules;
  std::map<CUstream, std::unique_ptr<FakeStream>> streams;
  std::map<CUevent, std::unique_ptr<FakeEvent>> events;
  std::map<CUgraph, std::unique_ptr<std::vector<Work>>> graphs;
  std::map<CUgraphExec, std::unique_ptr<std::vector<Work>>> graphExecs;

  std::vector<Fault> faults;
  std::vector<std::string> calls;
  std::vector<FakeLaunch> launches;
  std::function<void(const FakeLaunch&)> effect;
  std::function<double(const FakeLaunch&)> launchTime;
  /// Milliseconds.
  double clock = 0;

  size_t allocatedBytes() const {
    size_t bytes = 0;
    for (const auto& [address, allocation] : allocations) bytes += allocation.bytes;
    return bytes;
  }

  size_t freeBytes() const { return memoryBytes - std::min(memoryBytes, allocatedBytes()); }

  CUcontext contextOf(CUdevice device) { return reinterpret_cast<CUcontext>(&primaryReferences[device]); }

  std::optional<CUdevice> deviceOf(CUcontext context) {
    for (CUdevice device = 0; device < deviceCount; ++device)
      if (contextOf(device) == context && primaryReferences[device] > 0) return device;
    return std::nullopt;
  }

  CUcontext current() {
    std::vector<CUcontext>& stack = contextStacks[std::this_thread::get_id()];
    return stack.empty() ? nullptr : stack.back();
  }

  /// The fault for the call `name`, which is counted.
  CUresult takeFault(const char* name) {
    calls.push_back(name);
    for (auto fault = faults.begin(); fault != faults.end(); ++fault) {
      if (!fault->name.empty() && fault->name != name) continue;
      if (fault->callsBefore-- > 0) continue;
      CUresult result = fault->result;
      faults.erase(fault);
      return result;
    }
    return CUDA_SUCCESS;
  }

  /// Whether `[address, address + bytes)` lies in one allocation.
  bool covers(CUdeviceptr address, size_t bytes) const {
    auto after = allocations.upper_bound(address);
    if (after == allocations.begin()) return false;
    const auto& [begin, allocation] = *std::prev(after);
    size_t offset = address - begin;
    return offset <= allocation.bytes && bytes <= allocation.bytes - offset;
  }

  bool capturing() const {
    return llvm::any_of(streams, [](const auto& entry) { return entry.second->capture.has_value(); });
  }

  /// Ends every capture with failure, as a call that is not allowed during one does.
  void invalidateCaptures() {
    for (auto& [handle, stream] : streams)
      if (stream->capture) stream->invalidated = true;
  }

  /// The stream of `handle`; null for the default streams.
  llvm::ErrorOr<FakeStream*> stream(CUstream handle) {
    if (handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) return nullptr;
    auto found = streams.find(handle);
    if (found == streams.end()) return std::make_error_code(std::errc::bad_address);
    return found->second.get();
  }

  /// Runs `work`, or captures it.
  CUresult submit(CUstream handle, Work work) {
    llvm::ErrorOr<FakeStream*> found = stream(handle);
    if (!found) return CUDA_ERROR_INVALID_HANDLE;
    FakeStream* target = *found;
    if (target && target->capture) {
      if (target->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
      target->capture->push_back(std::move(work));
      return CUDA_SUCCESS;
    }
    bool ordersCapture = !target && llvm::any_of(streams, [](const auto& entry) {
      return entry.second->capture && !entry.second->nonBlocking;
    });
    if (ordersCapture) {
      invalidateCaptures();
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    return work(*this, false);
  }

  FakeFunction* function(CUfunction handle) {
    for (auto& [module, contents] : modules)
      for (auto& [name, function] : contents->functions)
        if (reinterpret_cast<CUfunction>(function.get()) == handle) return function.get();
    return nullptr;
  }
};

namespace {

/// A call that needs neither initialisation nor a context.
template <typename Body> CUresult enterAlways(const char* name, Body body) {
  State* state = currentState.load();
  if (!state) return CUDA_ERROR_DEINITIALIZED;
  std::lock_guard lock(state->mutex);
  if (CUresult fault = state->takeFault(name)) return fault;
  return body(*state);
}

/// A call that needs `cuInit` before.
template <typename Body> CUresult enter(const char* name, Body body, OnFault onFault = OnFault::Refuse) {
  State* state = currentState.load();
  if (!state) return CUDA_ERROR_DEINITIALIZED;
  std::lock_guard lock(state->mutex);
  CUresult fault = state->takeFault(name);
  if (fault && onFault == OnFault::Refuse) return fault;
  if (!state->initialized) return CUDA_ERROR_NOT_INITIALIZED;
  CUresult result = body(*state);
  return fault ? fault : result;
}

/// A call that needs a live context as well.
template <typename Body> CUresult enterContext(const char* name, Body body, OnFault onFault = OnFault::Refuse) {
  auto checked = [&](State& state) {
    return state.deviceOf(state.current()) ? body(state) : CUDA_ERROR_INVALID_CONTEXT;
  };
  return enter(name, checked, onFault);
}

/// Destroys the object `handle` of `map`.
template <typename Map, typename Handle> CUresult destroy(Map& map, Handle handle) {
  return map.erase(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/// Puts `object` into `map` under its address.
template <typename Handle, typename T>
Handle insert(std::map<Handle, std::unique_ptr<T>>& map, std::unique_ptr<T> object) {
  auto handle = reinterpret_cast<Handle>(object.get());
  map[handle] = std::move(object);
  return handle;
}

//===----------------------------------------------------------------------===//
// Driver and devices
//===----------------------------------------------------------------------===//

CUresult init(unsigned flags) {
  return enterAlways("cuInit", [&](State& state) {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (state.deviceCount == 0) return CUDA_ERROR_NO_DEVICE;
    state.initialized = true;
    return CUDA_SUCCESS;
  });
}

CUresult driverGetVersion(int* version) {
  return enterAlways("cuDriverGetVersion", [&](State& state) {
    *version = state.driverVersion;
    return CUDA_SUCCESS;
  });
}

struct ErrorText {
  CUresult code;
  const char* name;
  const char* text;
};
constexpr ErrorText kErrors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

CUresult lookUpError(CUresult code, const char* ErrorText::* field, const char** text) {
  auto found = llvm::find_if(kErrors, [&](const ErrorText& error) { return error.code == code; });
  *text = found == std::end(kErrors) ? nullptr : (*found).*field;
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult getErrorName(CUresult code, const char** name) {
  return enterAlways("cuGetErrorName", [&](State&) { return lookUpError(code, &ErrorText::name, name); });
}

CUresult getErrorString(CUresult code, const char** text) {
  return enterAlways("cuGetErrorString", [&](State&) { return lookUpError(code, &ErrorText::text, text); });
}

CUresult deviceGetCount(int* count) {
  return enter("cuDeviceGetCount", [&](State& state) {
    *count = state.deviceCount;
    return CUDA_SUCCESS;
  });
}

/// A call about `device`.
template <typename Body> CUresult enterDevice(const char* name, CUdevice device, Body body) {
  return enter(name, [&](State& state) {
    return device >= 0 && device < state.deviceCount ? body(state) : CUDA_ERROR_INVALID_DEVICE;
  });
}

CUresult deviceGet(CUdevice* device, int ordinal) {
  return enterDevice("cuDeviceGet", ordinal, [&](State&) {
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult deviceGetName(char* name, int length, CUdevice device) {
  return enterDevice("cuDeviceGetName", device, [&](State&) {
    std::snprintf(name, length, "Fake GPU %d", device);
    return CUDA_SUCCESS;
  });
}

CUresult deviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return enterDevice("cuDeviceGetAttribute", device, [&](State& state) {
    auto found = state.attributes.find(attribute);
    if (found == state.attributes.end()) return CUDA_ERROR_INVALID_VALUE;
    *value = found->second;
    return CUDA_SUCCESS;
  });
}

CUresult deviceTotalMem(size_t* bytes, CUdevice device) {
  return enterDevice("cuDeviceTotalMem", device, [&](State& state) {
    *bytes = state.memoryBytes;
    return CUDA_SUCCESS;
  });
}

CUresult deviceGetUuid(CUuuid* uuid, CUdevice device) {
  return enterDevice("cuDeviceGetUuid", device, [&](State&) {
    std::memset(uuid->bytes, 0xfa, sizeof(uuid->bytes));
    uuid->bytes[15] = static_cast<char>(device);
    return CUDA_SUCCESS;
  });
}

//===----------------------------------------------------------------------===//
// Contexts
//===----------------------------------------------------------------------===//

CUresult devicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return enterDevice("cuDevicePrimaryCtxRetain", device, [&](State& state) {
    ++state.primaryReferences[device];
    *context = state.contextOf(device);
    return CUDA_SUCCESS;
  });
}

CUresult devicePrimaryCtxRelease(CUdevice device) {
  auto release = [&](State& state) {
    if (device < 0 || device >= state.deviceCount) return CUDA_ERROR_INVALID_DEVICE;
    if (state.primaryReferences[device] == 0) return CUDA_ERROR_INVALID_CONTEXT;
    --state.primaryReferences[device];
    return CUDA_SUCCESS;
  };
  return enter("cuDevicePrimaryCtxRelease", release, OnFault::Release);
}

CUresult ctxGetCurrent(CUcontext* context) {
  return enter("cuCtxGetCurrent", [&](State& state) {
    *context = state.current();
    return CUDA_SUCCESS;
  });
}

CUresult ctxSetCurrent(CUcontext context) {
  return enter("cuCtxSetCurrent", [&](State& state) {
    if (context && !state.deviceOf(context)) return CUDA_ERROR_INVALID_CONTEXT;
    std::vector<CUcontext>& stack = state.contextStacks[std::this_thread::get_id()];
    if (!stack.empty()) stack.pop_back();
    if (context) stack.push_back(context);
    return CUDA_SUCCESS;
  });
}

CUresult ctxPushCurrent(CUcontext context) {
  return enter("cuCtxPushCurrent", [&](State& state) {
    if (!state.deviceOf(context)) return CUDA_ERROR_INVALID_CONTEXT;
    state.contextStacks[std::this_thread::get_id()].push_back(context);
    return CUDA_SUCCESS;
  });
}

CUresult ctxPopCurrent(CUcontext* context) {
  auto pop = [&](State& state) {
    std::vector<CUcontext>& stack = state.contextStacks[std::this_thread::get_id()];
    if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (context) *context = stack.back();
    stack.pop_back();
    return CUDA_SUCCESS;
  };
  return enter("cuCtxPopCurrent", pop, OnFault::Release);
}

CUresult ctxGetDevice(CUdevice* device) {
  return enterContext("cuCtxGetDevice", [&](State& state) {
    *device = *state.deviceOf(state.current());
    return CUDA_SUCCESS;
  });
}

/// A call that waits for the device or changes its memory: not allowed while a stream is captured.
CUresult refuseDuringCapture(State& state) {
  if (!state.capturing()) return CUDA_SUCCESS;
  state.invalidateCaptures();
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult ctxSynchronize() {
  return enterContext("cuCtxSynchronize", refuseDuringCapture);
}

//===----------------------------------------------------------------------===//
// Modules and functions
//===----------------------------------------------------------------------===//

/// The cubin at `image`, whose length only its own headers tell.
std::optional<llvm::StringRef> cubinAt(const void* image) {
  using Elf = llvm::object::ELF64LE;
  auto* header = static_cast<const Elf::Ehdr*>(image);
  if (!header || !header->checkMagic()) return std::nullopt;
  auto* begin = static_cast<const char*>(image);
  uint64_t size = std::max<uint64_t>(header->e_shoff + uint64_t(header->e_shnum) * header->e_shentsize,
                                     header->e_phoff + uint64_t(header->e_phnum) * header->e_phentsize);
  auto* sections = reinterpret_cast<const Elf::Shdr*>(begin + header->e_shoff);
  for (unsigned i = 0; i < header->e_shnum; ++i)
    if (sections[i].sh_type != llvm::ELF::SHT_NOBITS)
      size = std::max<uint64_t>(size, sections[i].sh_offset + sections[i].sh_size);
  return llvm::StringRef(begin, size);
}

/// Whether code for `info`'s architecture runs on a device of compute capability `sm`.
bool runsOn(const CubinInfo& info, int sm) {
  if (info.archSpecific) return info.sm == sm;
  return info.sm / 10 == sm / 10 && info.sm <= sm;
}

CUresult loadModule(State& state, CUmodule* module, const void* image) {
  std::optional<llvm::StringRef> bytes = cubinAt(image);
  if (!bytes) return CUDA_ERROR_INVALID_IMAGE;
  auto loaded = std::make_unique<FakeModule>();
  loaded->image = bytes->str();
  llvm::Expected<std::vector<std::string>> entries = readCubinEntries(loaded->image);
  if (!entries) {
    llvm::consumeError(entries.takeError());
    return CUDA_ERROR_INVALID_IMAGE;
  }
  int sm = 10 * state.attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] +
           state.attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR];
  for (const std::string& entry : *entries) {
    llvm::Expected<CubinInfo> info = readCubin(loaded->image, entry);
    if (!info) {
      llvm::consumeError(info.takeError());
      return CUDA_ERROR_INVALID_IMAGE;
    }
    if (!runsOn(*info, sm)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    loaded->functions[entry] = std::make_unique<FakeFunction>(FakeFunction{entry, std::move(*info)});
  }
  *module = insert(state.modules, std::move(loaded));
  return CUDA_SUCCESS;
}

CUresult moduleLoadData(CUmodule* module, const void* image) {
  return enterContext("cuModuleLoadData", [&](State& state) { return loadModule(state, module, image); });
}

CUresult moduleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
  return enterContext("cuModuleLoadDataEx", [&](State& state) { return loadModule(state, module, image); });
}

CUresult moduleUnload(CUmodule module) {
  return enterContext("cuModuleUnload", [&](State& state) { return destroy(state.modules, module); }, OnFault::Release);
}

CUresult moduleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return enterContext("cuModuleGetFunction", [&](State& state) {
    auto found = state.modules.find(module);
    if (found == state.modules.end()) return CUDA_ERROR_INVALID_HANDLE;
    auto entry = found->second->functions.find(name);
    if (entry == found->second->functions.end()) return CUDA_ERROR_NOT_FOUND;
    *function = reinterpret_cast<CUfunction>(entry->second.get());
    return CUDA_SUCCESS;
  });
}

CUresult funcSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  return enterContext("cuFuncSetAttribute", [&](State& state) {
    FakeFunction* function = state.function(handle);
    if (!function) return CUDA_ERROR_INVALID_HANDLE;
    int limit = state.attributes[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN];
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      if (value < 0 || value + function->info.sharedBytes > limit) return CUDA_ERROR_INVALID_VALUE;
      function->maxDynamicShared = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return value >= -1 && value <= 100 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      return value == 0 || value == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_ERROR_INVALID_VALUE;
    }
  });
}

CUresult funcGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  return enterContext("cuFuncGetAttribute", [&](State& state) {
    FakeFunction* function = state.function(handle);
    if (!function) return CUDA_ERROR_INVALID_HANDLE;
    const CubinInfo& info = function->info;
    std::map<CUfunction_attribute, int64_t> values = {
        {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, info.maxThreads ? info.maxThreads : kMaxThreads},
        {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, info.sharedBytes},
        {CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, info.localBytes},
        {CU_FUNC_ATTRIBUTE_NUM_REGS, info.registers},
        {CU_FUNC_ATTRIBUTE_BINARY_VERSION, info.sm},
        {CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function->maxDynamicShared},
    };
    auto found = values.find(attribute);
    if (found == values.end()) return CUDA_ERROR_INVALID_VALUE;
    *value = static_cast<int>(found->second);
    return CUDA_SUCCESS;
  });
}

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

CUresult checkLaunch(State& state, const FakeFunction& function, const FakeLaunch& launch) {
  uint64_t threads = 1;
  for (int axis : {0, 1, 2}) {
    if (launch.grid[axis] == 0 || launch.grid[axis] > kMaxGrid[axis]) return CUDA_ERROR_INVALID_VALUE;
    if (launch.block[axis] == 0 || launch.block[axis] > kMaxBlock[axis]) return CUDA_ERROR_INVALID_VALUE;
    if (launch.cluster[axis] == 0 || launch.grid[axis] % launch.cluster[axis]) return CUDA_ERROR_INVALID_VALUE;
    threads *= launch.block[axis];
  }
  const CubinInfo& info = function.info;
  if (threads > static_cast<uint64_t>(info.maxThreads ? info.maxThreads : kMaxThreads)) return CUDA_ERROR_INVALID_VALUE;
  if (launch.sharedBytes > static_cast<unsigned>(function.maxDynamicShared)) return CUDA_ERROR_INVALID_VALUE;
  int64_t shared = launch.sharedBytes + info.sharedBytes;
  if (shared > state.attributes[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN]) return CUDA_ERROR_INVALID_VALUE;
  uint64_t registers = threads * ((info.registers + 7) / 8 * 8);
  if (registers > static_cast<uint64_t>(state.attributes[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR]))
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  return CUDA_SUCCESS;
}

CUresult execute(State& state, FakeLaunch launch, bool fromGraph) {
  launch.fromGraph = fromGraph;
  state.clock += state.launchTime ? state.launchTime(launch) : 0.001;
  if (state.effect) state.effect(launch);
  state.launches.push_back(std::move(launch));
  return CUDA_SUCCESS;
}

CUresult submitLaunch(State& state, CUfunction handle, FakeLaunch launch, void** parameters, void** extra) {
  FakeFunction* function = state.function(handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (extra || (!parameters && !function->info.parameters.empty())) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult result = checkLaunch(state, *function, launch)) return result;
  launch.kernel = function->name;
  for (size_t i = 0; i < function->info.parameters.size(); ++i)
    launch.parameters.emplace_back(static_cast<const char*>(parameters[i]), function->info.parameters[i].size);
  return state.submit(launch.stream,
                      [launch](State& state, bool fromGraph) { return execute(state, launch, fromGraph); });
}

CUresult launchKernel(CUfunction function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX,
                      unsigned blockY, unsigned blockZ, unsigned sharedBytes, CUstream stream, void** parameters,
                      void** extra) {
  return enterContext("cuLaunchKernel", [&](State& state) {
    FakeLaunch launch;
    launch.grid = {gridX, gridY, gridZ};
    launch.block = {blockX, blockY, blockZ};
    launch.sharedBytes = sharedBytes;
    launch.stream = stream;
    return submitLaunch(state, function, std::move(launch), parameters, extra);
  });
}

CUresult launchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) {
  return enterContext("cuLaunchKernelEx", [&](State& state) {
    FakeLaunch launch;
    launch.grid = {config->gridDimX, config->gridDimY, config->gridDimZ};
    launch.block = {config->blockDimX, config->blockDimY, config->blockDimZ};
    launch.sharedBytes = config->sharedMemBytes;
    launch.stream = config->hStream;
    for (const CUlaunchAttribute& attribute : llvm::ArrayRef(config->attrs, config->numAttrs))
      if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
        launch.cluster = {attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z};
    return submitLaunch(state, function, std::move(launch), parameters, extra);
  });
}

CUresult occupancyMaxActiveClusters(int* count, CUfunction, const CUlaunchConfig* config) {
  return enterContext("cuOccupancyMaxActiveClusters", [&](State& state) {
    if (config->numAttrs != 1 || config->attrs[0].id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
      return CUDA_ERROR_INVALID_VALUE;
    // One block a multiprocessor, as for kernels that take all of its shared memory.
    const int multiprocessors = state.attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
    *count = multiprocessors / static_cast<int>(config->attrs[0].value.clusterDim.x);
    return CUDA_SUCCESS;
  });
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

CUresult memAlloc(CUdeviceptr* address, size_t bytes) {
  return enterContext("cuMemAlloc", [&](State& state) {
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult result = refuseDuringCapture(state)) return result;
    if (bytes > state.freeBytes()) return CUDA_ERROR_OUT_OF_MEMORY;
    FakeAllocation allocation;
    allocation.bytes = bytes;
    allocation.memory.reset(std::aligned_alloc(512, (bytes + 511) / 512 * 512));
    if (!allocation.memory) return CUDA_ERROR_OUT_OF_MEMORY;
    // Fresh memory is not zero on a device either.
    std::memset(allocation.memory.get(), 0xa5, bytes);
    *address = reinterpret_cast<CUdeviceptr>(allocation.memory.get());
    state.allocations[*address] = std::move(allocation);
    return CUDA_SUCCESS;
  });
}

CUresult memFree(CUdeviceptr address) {
  auto release = [&](State& state) {
    if (CUresult result = refuseDuringCapture(state)) return result;
    if (address == 0) return CUDA_SUCCESS;
    return state.allocations.erase(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  return enterContext("cuMemFree", release, OnFault::Release);
}

CUresult memGetInfo(size_t* free, size_t* total) {
  return enterContext("cuMemGetInfo", [&](State& state) {
    *total = state.memoryBytes;
    *free = state.freeBytes();
    return CUDA_SUCCESS;
  });
}

void* hostAddress(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);
}

CUresult memcpyHtoDAsync(CUdeviceptr target, const void* source, size_t bytes, CUstream stream) {
  return enterContext("cuMemcpyHtoDAsync", [&](State& state) {
    if (!state.covers(target, bytes) || (!source && bytes)) return CUDA_ERROR_INVALID_VALUE;
    return state.submit(stream, [=](State& state, bool) {
      if (!state.covers(target, bytes)) return CUDA_ERROR_ILLEGAL_ADDRESS;
      std::memcpy(hostAddress(target), source, bytes);
      return CUDA_SUCCESS;
    });
  });
}

CUresult memcpyDtoHAsync(void* target, CUdeviceptr source, size_t bytes, CUstream stream) {
  return enterContext("cuMemcpyDtoHAsync", [&](State& state) {
    if (!state.covers(source, bytes) || (!target && bytes)) return CUDA_ERROR_INVALID_VALUE;
    return state.submit(stream, [=](State& state, bool) {
      if (!state.covers(source, bytes)) return CUDA_ERROR_ILLEGAL_ADDRESS;
      std::memcpy(target, hostAddress(source), bytes);
      return CUDA_SUCCESS;
    });
  });
}

CUresult memcpyDtoDAsync(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream) {
  return enterContext("cuMemcpyDtoDAsync", [&](State& state) {
    if (!state.covers(target, bytes) || !state.covers(source, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return state.submit(stream, [=](State& state, bool) {
      if (!state.covers(target, bytes) || !state.covers(source, bytes)) return CUDA_ERROR_ILLEGAL_ADDRESS;
      std::memmove(hostAddress(target), hostAddress(source), bytes);
      return CUDA_SUCCESS;
    });
  });
}

/// Fills `count` elements with `value`.
template <typename T> CUresult fill(const char* name, CUdeviceptr target, T value, size_t count, CUstream stream) {
  return enterContext(name, [&](State& state) {
    bool fits = count <= SIZE_MAX / sizeof(T) && state.covers(target, count * sizeof(T));
    if (!fits || target % sizeof(T)) return CUDA_ERROR_INVALID_VALUE;
    return state.submit(stream, [=](State& state, bool) {
      if (!state.covers(target, count * sizeof(T))) return CUDA_ERROR_ILLEGAL_ADDRESS;
      std::fill_n(static_cast<T*>(hostAddress(target)), count, value);
      return CUDA_SUCCESS;
    });
  });
}

CUresult memsetD8Async(CUdeviceptr target, unsigned char value, size_t count, CUstream stream) {
  return fill("cuMemsetD8Async", target, value, count, stream);
}

CUresult memsetD32Async(CUdeviceptr target, unsigned value, size_t count, CUstream stream) {
  return fill("cuMemsetD32Async", target, value, count, stream);
}

CUresult pointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  return enter("cuPointerGetAttribute", [&](State& state) {
    if (!state.covers(address, 1)) return CUDA_ERROR_INVALID_VALUE;
    const auto& [begin, allocation] = *std::prev(state.allocations.upper_bound(address));
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(data) = state.contextOf(0);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(data) = CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr*>(data) = address;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(data) = 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(data) = begin;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<size_t*>(data) = allocation.bytes;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
    }
  });
}

//===----------------------------------------------------------------------===//
// Streams and graphs
//===----------------------------------------------------------------------===//

CUresult streamCreate(CUstream* handle, unsigned flags) {
  return enterContext("cuStreamCreate", [&](State& state) {
    if (flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    auto stream = std::make_unique<FakeStream>();
    stream->nonBlocking = flags & CU_STREAM_NON_BLOCKING;
    *handle = insert(state.streams, std::move(stream));
    return CUDA_SUCCESS;
  });
}

CUresult streamDestroy(CUstream handle) {
  return enterContext(
      "cuStreamDestroy", [&](State& state) { return destroy(state.streams, handle); }, OnFault::Release);
}

/// A call about `handle`; `body` gets the stream, null for the default streams.
template <typename Body>
CUresult enterStream(const char* name, CUstream handle, Body body, OnFault onFault = OnFault::Refuse) {
  auto found = [&](State& state) {
    llvm::ErrorOr<FakeStream*> stream = state.stream(handle);
    return stream ? body(state, *stream) : CUDA_ERROR_INVALID_HANDLE;
  };
  return enterContext(name, found, onFault);
}

CUresult streamSynchronize(CUstream handle) {
  return enterStream("cuStreamSynchronize", handle, [&](State&, FakeStream* stream) {
    if (!stream || !stream->capture) return CUDA_SUCCESS;
    stream->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  });
}

CUresult streamGetCtx(CUstream handle, CUcontext* context) {
  return enterStream("cuStreamGetCtx", handle, [&](State& state, FakeStream*) {
    *context = state.current();
    return CUDA_SUCCESS;
  });
}

CUresult streamBeginCapture(CUstream handle, CUstreamCaptureMode) {
  return enterStream("cuStreamBeginCapture", handle, [&](State&, FakeStream* stream) {
    // The default streams cannot be captured.
    if (!stream) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture) return CUDA_ERROR_INVALID_VALUE;
    stream->capture.emplace();
    stream->invalidated = false;
    return CUDA_SUCCESS;
  });
}

CUresult streamEndCapture(CUstream handle, CUgraph* graph) {
  *graph = nullptr;
  auto end = [&](State& state, FakeStream* stream) {
    if (!stream || !stream->capture) return CUDA_ERROR_INVALID_VALUE;
    auto captured = std::make_unique<std::vector<Work>>(std::move(*stream->capture));
    stream->capture.reset();
    if (stream->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    *graph = insert(state.graphs, std::move(captured));
    return CUDA_SUCCESS;
  };
  // A failure ends the capture as well, and there is no graph.
  CUresult result = enterStream("cuStreamEndCapture", handle, end, OnFault::Release);
  State* state = currentState.load();
  if (result == CUDA_SUCCESS || !state) return result;
  std::lock_guard lock(state->mutex);
  state->graphs.erase(std::exchange(*graph, nullptr));
  return result;
}

CUresult streamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return enterStream("cuStreamIsCapturing", handle, [&](State&, FakeStream* stream) {
    bool active = stream && stream->capture;
    *status = !active               ? CU_STREAM_CAPTURE_STATUS_NONE
              : stream->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                    : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
  });
}

CUresult graphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  return enterContext("cuGraphInstantiateWithFlags", [&](State& state) {
    auto found = state.graphs.find(graph);
    if (found == state.graphs.end()) return CUDA_ERROR_INVALID_HANDLE;
    *exec = insert(state.graphExecs, std::make_unique<std::vector<Work>>(*found->second));
    return CUDA_SUCCESS;
  });
}

CUresult graphLaunch(CUgraphExec exec, CUstream stream) {
  return enterContext("cuGraphLaunch", [&](State& state) {
    auto found = state.graphExecs.find(exec);
    if (found == state.graphExecs.end()) return CUDA_ERROR_INVALID_HANDLE;
    return state.submit(stream, [work = *found->second](State& state, bool) {
      for (const Work& step : work)
        if (CUresult result = step(state, true)) return result;
      return CUDA_SUCCESS;
    });
  });
}

CUresult graphDestroy(CUgraph graph) {
  return enter("cuGraphDestroy", [&](State& state) { return destroy(state.graphs, graph); }, OnFault::Release);
}

CUresult graphExecDestroy(CUgraphExec exec) {
  return enter("cuGraphExecDestroy", [&](State& state) { return destroy(state.graphExecs, exec); }, OnFault::Release);
}

//===----------------------------------------------------------------------===//
// Events
//===----------------------------------------------------------------------===//

CUresult eventCreate(CUevent* handle, unsigned flags) {
  return enterContext("cuEventCreate", [&](State& state) {
    auto event = std::make_unique<FakeEvent>();
    event->timed = !(flags & CU_EVENT_DISABLE_TIMING);
    *handle = insert(state.events, std::move(event));
    return CUDA_SUCCESS;
  });
}

CUresult eventRecord(CUevent handle, CUstream stream) {
  return enterContext("cuEventRecord", [&](State& state) {
    if (!state.events.count(handle)) return CUDA_ERROR_INVALID_HANDLE;
    return state.submit(stream, [handle](State& state, bool) {
      auto found = state.events.find(handle);
      if (found == state.events.end()) return CUDA_ERROR_INVALID_HANDLE;
      found->second->time = state.clock;
      return CUDA_SUCCESS;
    });
  });
}

CUresult eventSynchronize(CUevent handle) {
  return enterContext("cuEventSynchronize", [&](State& state) {
    return state.events.count(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult eventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  return enterContext("cuEventElapsedTime", [&](State& state) {
    auto first = state.events.find(begin);
    auto last = state.events.find(end);
    if (first == state.events.end() || last == state.events.end()) return CUDA_ERROR_INVALID_HANDLE;
    const FakeEvent& from = *first->second;
    const FakeEvent& to = *last->second;
    if (!from.timed || !to.timed || !from.time || !to.time) return CUDA_ERROR_INVALID_HANDLE;
    *milliseconds = static_cast<float>(*to.time - *from.time);
    return CUDA_SUCCESS;
  });
}

CUresult eventDestroy(CUevent handle) {
  return enterContext("cuEventDestroy", [&](State& state) { return destroy(state.events, handle); }, OnFault::Release);
}

CUresult tensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t rank, void* address,
                              const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                              const cuuint32_t* elementStrides, CUtensorMapInterleave, CUtensorMapSwizzle,
                              CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  return enter("cuTensorMapEncodeTiled", [&](State&) {
    if (rank < 1 || rank > 5 || reinterpret_cast<uintptr_t>(map) % 64) return CUDA_ERROR_INVALID_VALUE;
    if (!address || reinterpret_cast<uintptr_t>(address) % 16) return CUDA_ERROR_INVALID_VALUE;
    for (cuuint32_t axis = 0; axis < rank; ++axis) {
      bool valid = sizes[axis] > 0 && sizes[axis] <= uint64_t(1) << 32 && box[axis] > 0 && box[axis] <= 256 &&
                   elementStrides[axis] > 0 && elementStrides[axis] <= 8;
      if (!valid || (axis + 1 < rank && strides[axis] % 16)) return CUDA_ERROR_INVALID_VALUE;
    }
    std::memset(map, 0, sizeof(*map));
    std::memcpy(map, &address, sizeof(address));
    return CUDA_SUCCESS;
  });
}

} // namespace

//===----------------------------------------------------------------------===//
// The control surface
//===----------------------------------------------------------------------===//

void FakeLaunch::copyParameter(size_t index, void* target, size_t size) const {
  if (index >= parameters.size() || parameters[index].size() != size)
    llvm::report_fatal_error(
        llvm::formatv("launch of '{0}' has no parameter {1} of {2} bytes", kernel, index, size).str().c_str());
  std::memcpy(target, parameters[index].data(), size);
}

FakeDriver::FakeDriver() : state_(std::make_unique<State>()) {
  Target target;
  target.sm = 90;
  target.archSpecific = true;
  target.multiprocessors = 132;
  target.sharedPerBlock = 232448;
  target.sharedPerMultiprocessor = 233472;
  target.maxThreadsPerMultiprocessor = 2048;
  target.l2Bytes = 52428800;
  setTarget(target);
  State* none = nullptr;
  if (!currentState.compare_exchange_strong(none, state_.get()))
    llvm::report_fatal_error("only one FakeDriver may exist at a time");
}

FakeDriver::~FakeDriver() {
  currentState = nullptr;
}

Driver FakeDriver::table() const {
  Driver driver;
  driver.init = init;
  driver.driverGetVersion = driverGetVersion;
  driver.getErrorName = getErrorName;
  driver.getErrorString = getErrorString;
  driver.deviceGetCount = deviceGetCount;
  driver.deviceGet = deviceGet;
  driver.deviceGetName = deviceGetName;
  driver.deviceGetAttribute = deviceGetAttribute;
  driver.deviceTotalMem = deviceTotalMem;
  driver.deviceGetUuid = deviceGetUuid;
  driver.devicePrimaryCtxRetain = devicePrimaryCtxRetain;
  driver.devicePrimaryCtxRelease = devicePrimaryCtxRelease;
  driver.ctxGetCurrent = ctxGetCurrent;
  driver.ctxSetCurrent = ctxSetCurrent;
  driver.ctxPushCurrent = ctxPushCurrent;
  driver.ctxPopCurrent = ctxPopCurrent;
  driver.ctxGetDevice = ctxGetDevice;
  driver.ctxSynchronize = ctxSynchronize;
  driver.moduleLoadData = moduleLoadData;
  driver.moduleLoadDataEx = moduleLoadDataEx;
  driver.moduleUnload = moduleUnload;
  driver.moduleGetFunction = moduleGetFunction;
  driver.funcSetAttribute = funcSetAttribute;
  driver.funcGetAttribute = funcGetAttribute;
  driver.launchKernel = launchKernel;
  driver.launchKernelEx = launchKernelEx;
  driver.occupancyMaxActiveClusters = occupancyMaxActiveClusters;
  driver.memAlloc = memAlloc;
  driver.memFree = memFree;
  driver.memGetInfo = memGetInfo;
  driver.memcpyHtoDAsync = memcpyHtoDAsync;
  driver.memcpyDtoHAsync = memcpyDtoHAsync;
  driver.memcpyDtoDAsync = memcpyDtoDAsync;
  driver.memsetD8Async = memsetD8Async;
  driver.memsetD32Async = memsetD32Async;
  driver.pointerGetAttribute = pointerGetAttribute;
  driver.streamCreate = streamCreate;
  driver.streamDestroy = streamDestroy;
  driver.streamSynchronize = streamSynchronize;
  driver.streamGetCtx = streamGetCtx;
  driver.streamBeginCapture = streamBeginCapture;
  driver.streamEndCapture = streamEndCapture;
  driver.streamIsCapturing = streamIsCapturing;
  driver.graphInstantiateWithFlags = graphInstantiateWithFlags;
  driver.graphLaunch = graphLaunch;
  driver.graphDestroy = graphDestroy;
  driver.graphExecDestroy = graphExecDestroy;
  driver.eventCreate = eventCreate;
  driver.eventRecord = eventRecord;
  driver.eventSynchronize = eventSynchronize;
  driver.eventElapsedTime = eventElapsedTime;
  driver.eventDestroy = eventDestroy;
  driver.tensorMapEncodeTiled = tensorMapEncodeTiled;
  return driver;
}

void FakeDriver::setDeviceCount(int count) {
  std::lock_guard lock(state_->mutex);
  state_->deviceCount = std::min<int>(count, state_->primaryReferences.size());
}

void FakeDriver::setDriverVersion(int version) {
  std::lock_guard lock(state_->mutex);
  state_->driverVersion = version;
}

void FakeDriver::setTarget(const Target& target) {
  setAttribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, target.sm / 10);
  setAttribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, target.sm % 10);
  setAttribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, target.multiprocessors);
  setAttribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, target.sharedPerBlock);
  setAttribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, target.sharedPerMultiprocessor);
  setAttribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, target.registersPerMultiprocessor);
  setAttribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, target.maxThreadsPerMultiprocessor);
  setAttribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, static_cast<int>(target.l2Bytes));
}

void FakeDriver::setAttribute(CUdevice_attribute attribute, int value) {
  std::lock_guard lock(state_->mutex);
  state_->attributes[attribute] = value;
}

void FakeDriver::setMemoryBytes(size_t bytes) {
  std::lock_guard lock(state_->mutex);
  state_->memoryBytes = bytes;
}

void FakeDriver::failNext(llvm::StringRef name, CUresult result, int afterCalls) {
  std::lock_guard lock(state_->mutex);
  state_->faults.push_back({name.str(), static_cast<size_t>(afterCalls), result});
}

void FakeDriver::failCall(size_t index, CUresult result) {
  std::lock_guard lock(state_->mutex);
  if (index < state_->calls.size()) llvm::report_fatal_error("failCall: that call has been made already");
  state_->faults.push_back({"", index - state_->calls.size(), result});
}

std::vector<std::string> FakeDriver::calls() const {
  std::lock_guard lock(state_->mutex);
  return state_->calls;
}

size_t FakeDriver::callCount(llvm::StringRef name) const {
  std::lock_guard lock(state_->mutex);
  return llvm::count(state_->calls, name);
}

void FakeDriver::forgetCalls() {
  std::lock_guard lock(state_->mutex);
  state_->calls.clear();
  state_->launches.clear();
}

std::vector<FakeLaunch> FakeDriver::launches() const {
  std::lock_guard lock(state_->mutex);
  return state_->launches;
}

std::string FakeDriver::leaks() const {
  std::lock_guard lock(state_->mutex);
  int references = 0;
  for (int count : state_->primaryReferences) references += count;
  size_t pushed = 0;
  for (const auto& [thread, stack] : state_->contextStacks) pushed += stack.size();
  std::string text;
  auto report = [&](size_t count, llvm::StringRef what) {
    if (count) text += llvm::formatv("{0}{1} {2}", text.empty() ? "" : ", ", count, what).str();
  };
  report(references, "primary context reference(s)");
  report(pushed, "pushed context(s)");
  report(state_->modules.size(), "module(s)");
  report(state_->streams.size(), "stream(s)");
  report(state_->events.size(), "event(s)");
  report(state_->graphs.size(), "graph(s)");
  report(state_->graphExecs.size(), "executable graph(s)");
  report(state_->allocations.size(), "allocation(s)");
  report(state_->allocatedBytes(), "allocated byte(s)");
  return text;
}

size_t FakeDriver::allocatedBytes() const {
  std::lock_guard lock(state_->mutex);
  return state_->allocatedBytes();
}

void FakeDriver::onLaunch(std::function<void(const FakeLaunch&)> effect) {
  std::lock_guard lock(state_->mutex);
  state_->effect = std::move(effect);
}

void FakeDriver::setLaunchTime(std::function<double(const FakeLaunch&)> milliseconds) {
  std::lock_guard lock(state_->mutex);
  state_->launchTime = std::move(milliseconds);
}
