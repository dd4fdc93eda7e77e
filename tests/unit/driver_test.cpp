//===- tests/unit/driver_test.cpp - The driver's table and its owners -----===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/compile/Cubin.h"
#include "runtime/driver/Driver.h"
#include "runtime/driver/Handles.h"
#include "tests/support/Failures.h"
#include "tests/support/FakeDriver.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MemoryBuffer.h"

#include <algorithm>
#include <numeric>
#include <thread>

using namespace lathe;
using namespace lathe::test;

namespace {

/// The cubin `name` of tests/data/cubin; each has the kernel `shared_user(const float*, float*, int)`.
std::string readData(const std::string& name) {
  auto buffer = llvm::MemoryBuffer::getFile(std::string(LATHE_TEST_DATA) + "/cubin/" + name);
  REQUIRE(buffer);
  return (*buffer)->getBuffer().str();
}

std::string hopperCubin() {
  return readData("shared_sm_90a_cuda13.cubin");
}

/// One result of a call, to be checked under the name of the call.
struct Call {
  const char* name;
  CUresult result;
};

/// The first failure among `calls`. All of them are made before the first is checked.
llvm::Error firstError(const Driver& driver, std::initializer_list<Call> calls) {
  for (const Call& call : calls)
    if (llvm::Error error = check(driver, call.result, call.name)) return error;
  return llvm::Error::success();
}

llvm::Error exerciseDevice(const Driver& driver) {
  int count = 0;
  CUdevice device = 0;
  char name[64];
  size_t bytes = 0;
  CUuuid uuid;
  if (llvm::Error error = firstError(driver, {{"cuDeviceGetCount", driver.deviceGetCount(&count)},
                                              {"cuDeviceGet", driver.deviceGet(&device, 0)},
                                              {"cuDeviceGetName", driver.deviceGetName(name, sizeof(name), 0)},
                                              {"cuDeviceTotalMem", driver.deviceTotalMem(&bytes, 0)},
                                              {"cuDeviceGetUuid", driver.deviceGetUuid(&uuid, 0)}}))
    return error;
  return queryTarget(driver, device).takeError();
}

llvm::Error exerciseContext(const Driver& driver, CUcontext expected) {
  CUcontext context = nullptr;
  CUdevice device = -1;
  size_t free = 0, total = 0;
  if (llvm::Error error = firstError(driver, {{"cuCtxGetCurrent", driver.ctxGetCurrent(&context)},
                                              {"cuCtxSetCurrent", driver.ctxSetCurrent(expected)},
                                              {"cuCtxGetDevice", driver.ctxGetDevice(&device)},
                                              {"cuMemGetInfo", driver.memGetInfo(&free, &total)}}))
    return error;
  CHECK(context == expected);
  CHECK(device == 0);
  CHECK(free <= total);
  return llvm::Error::success();
}

/// Captures a launch of `config` and runs it as a graph.
llvm::Error exerciseGraph(const Driver& driver, const CUlaunchConfig& config, CUfunction function, void** parameters) {
  CUstream stream = config.hStream;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph captured = nullptr;
  if (llvm::Error error = firstError(
          driver, {{"cuStreamBeginCapture", driver.streamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)}}))
    return error;
  llvm::Error launched =
      firstError(driver, {{"cuStreamIsCapturing", driver.streamIsCapturing(stream, &status)},
                          {"cuLaunchKernelEx", driver.launchKernelEx(&config, function, parameters, nullptr)}});
  llvm::Error ended = firstError(driver, {{"cuStreamEndCapture", driver.streamEndCapture(stream, &captured)}});
  Graph graph = captured ? Graph(driver, captured) : Graph();
  if (launched || ended) return llvm::joinErrors(std::move(launched), std::move(ended));
  CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);

  CUgraphExec exec = nullptr;
  CUresult instantiated = driver.graphInstantiateWithFlags(&exec, graph.get(), 0);
  if (llvm::Error error = firstError(driver, {{"cuGraphInstantiateWithFlags", instantiated}})) return error;
  GraphExec executable(driver, exec);
  return firstError(driver, {{"cuGraphLaunch", driver.graphLaunch(exec, stream)}});
}

/// Uses every entry of the table but the optional one, as the runtime does. `cubin` has `shared_user`, which writes its
/// 1024 inputs in reverse; `output` gets what it wrote.
llvm::Error exercise(const Driver& driver, const std::string& cubin, std::vector<float>& output) {
  if (llvm::Error error = initialize(driver)) return error;
  if (llvm::Error error = exerciseDevice(driver)) return error;
  llvm::Expected<PrimaryContext> context = PrimaryContext::retain(driver, 0);
  if (!context) return context.takeError();
  llvm::Expected<ContextGuard> guard = ContextGuard::enter(driver, context->get());
  if (!guard) return guard.takeError();
  if (llvm::Error error = exerciseContext(driver, context->get())) return error;

  CUmodule second = nullptr;
  CUresult loadedAgain = driver.moduleLoadDataEx(&second, cubin.data(), 0, nullptr, nullptr);
  if (llvm::Error error = firstError(driver, {{"cuModuleLoadDataEx", loadedAgain}})) return error;
  UniqueHandle<CUmodule, &Driver::moduleUnload> unused(driver, second);
  llvm::Expected<Module> module = Module::load(driver, cubin, "shared_user");
  if (!module) return module.takeError();
  llvm::Expected<CUfunction> function = module->function("shared_user");
  if (!function) return function.takeError();
  int registers = 0;
  CUfunction_attribute dynamicShared = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  if (llvm::Error error = firstError(
          driver, {{"cuFuncSetAttribute", driver.funcSetAttribute(*function, dynamicShared, 80000)},
                   {"cuFuncGetAttribute", driver.funcGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, *function)}}))
    return error;

  std::vector<float> input(1024);
  std::iota(input.begin(), input.end(), 0.0f);
  size_t bytes = input.size() * sizeof(float);
  llvm::Expected<Stream> stream = Stream::create(driver);
  if (!stream) return stream.takeError();
  llvm::Expected<DeviceBuffer> staged = DeviceBuffer::allocate(driver, bytes);
  if (!staged) return staged.takeError();
  llvm::Expected<DeviceBuffer> x = DeviceBuffer::allocate(driver, bytes);
  if (!x) return x.takeError();
  llvm::Expected<DeviceBuffer> y = DeviceBuffer::allocate(driver, bytes);
  if (!y) return y.takeError();
  llvm::Expected<Event> begin = Event::create(driver);
  if (!begin) return begin.takeError();
  llvm::Expected<Event> end = Event::create(driver);
  if (!end) return end.takeError();

  CUdeviceptr addresses[2] = {x->get(), y->get()};
  int n = 1024;
  void* parameters[] = {&addresses[0], &addresses[1], &n};
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 1024;
  config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream->get();
  CUlaunchAttribute cluster{};
  cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  cluster.value.clusterDim = {1, 1, 1};
  CUlaunchConfig clustered = config;
  clustered.attrs = &cluster;
  clustered.numAttrs = 1;
  int clusters = 0;
  CUcontext owner = nullptr;
  int ordinal = -1;
  CUpointer_attribute ordinalOf = CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;

  if (llvm::Error error = begin->record(config.hStream)) return error;
  if (llvm::Error error = firstError(
          driver,
          {{"cuMemcpyHtoDAsync", driver.memcpyHtoDAsync(staged->get(), input.data(), bytes, config.hStream)},
           {"cuMemcpyDtoDAsync", driver.memcpyDtoDAsync(x->get(), staged->get(), bytes, config.hStream)},
           {"cuMemsetD8Async", driver.memsetD8Async(y->get(), 0, bytes, config.hStream)},
           {"cuMemsetD32Async", driver.memsetD32Async(staged->get(), 7, bytes / 4, config.hStream)},
           {"cuStreamGetCtx", driver.streamGetCtx(config.hStream, &owner)},
           {"cuPointerGetAttribute", driver.pointerGetAttribute(&ordinal, ordinalOf, x->get())},
           {"cuOccupancyMaxActiveClusters", driver.occupancyMaxActiveClusters(&clusters, *function, &clustered)},
           {"cuLaunchKernel",
            driver.launchKernel(*function, 1, 1, 1, 1024, 1, 1, 0, config.hStream, parameters, nullptr)}}))
    return error;
  CHECK(owner == context->get());
  CHECK(ordinal == 0);
  if (llvm::Error error = exerciseGraph(driver, config, *function, parameters)) return error;
  if (llvm::Error error = end->record(config.hStream)) return error;
  if (llvm::Error error = end->synchronize()) return error;
  output.assign(1024, 0.0f);
  CUresult copied = driver.memcpyDtoHAsync(output.data(), y->get(), bytes, config.hStream);
  if (llvm::Error error = firstError(driver, {{"cuMemcpyDtoHAsync", copied}})) return error;
  if (llvm::Error error = stream->synchronize()) return error;
  if (llvm::Error error = firstError(driver, {{"cuCtxSynchronize", driver.ctxSynchronize()}})) return error;
  return end->millisecondsSince(*begin).takeError();
}

/// What `shared_user` writes for the input of `exercise`.
std::vector<float> reversed() {
  std::vector<float> values(1024);
  std::iota(values.rbegin(), values.rend(), 0.0f);
  return values;
}

/// Does on a fake what the kernel would do.
void runSharedUser(const FakeLaunch& launch) {
  auto* x = reinterpret_cast<const float*>(launch.parameter<CUdeviceptr>(0));
  auto* y = reinterpret_cast<float*>(launch.parameter<CUdeviceptr>(1));
  std::reverse_copy(x, x + 1024, y);
}

bool isRelease(llvm::StringRef function) {
  return function.contains("Destroy") || function.contains("Unload") || function.contains("Free") ||
         function.contains("Pop") || function.contains("Release");
}

/// A fake with a current context, for tests of single functions.
struct Fixture {
  FakeDriver fake;
  Driver driver = fake.table();
  std::optional<PrimaryContext> context;
  std::optional<ContextGuard> guard;

  Fixture() {
    require(initialize(driver));
    context.emplace(require(PrimaryContext::retain(driver, 0)));
    guard.emplace(require(ContextGuard::enter(driver, context->get())));
  }
};

} // namespace

TEST_CASE("a missing driver is reported with what was tried and what to install") {
  ErrorSummary error = requireError(openDriver("libcuda-that-does-not-exist.so.1"));
  CHECK(error.code == ErrorCode::MissingLibrary);
  CHECK_THAT(error.message, Catch::Contains("no NVIDIA driver was found") &&
                                Catch::Contains("libcuda-that-does-not-exist.so.1") &&
                                Catch::Contains("Install the NVIDIA driver"));
  CHECK(requireError(openDriver("")).code == ErrorCode::MissingLibrary);
}

TEST_CASE("a library that is no driver, or too old a one, is refused") {
  ErrorSummary error = requireError(openDriver("libm.so.6"));
  CHECK(error.code == ErrorCode::MissingLibrary);
  CHECK_THAT(error.message, Catch::Contains("cuGetProcAddress_v2") && Catch::Contains("CUDA 12.0"));
}

TEST_CASE("the driver of this machine opens completely or says why not") {
  llvm::Expected<Driver> driver = openDriver();
  if (!driver) {
    CHECK_THAT(takeSummary(driver.takeError()).message, Catch::Contains("no NVIDIA driver was found"));
    return;
  }
  forEachEntry(*driver, [](const char* name, auto function) {
    INFO(name);
    CHECK(function != nullptr);
  });
}

TEST_CASE("the fake's table is complete") {
  FakeDriver fake;
  Driver driver = fake.table();
  size_t entries = 0;
  forEachEntry(driver, [&](const char* name, auto function) {
    INFO(name);
    CHECK(function != nullptr);
    ++entries;
  });
  // Every pointer of the struct is visited, but the optional one.
  CHECK(entries == sizeof(Driver) / sizeof(void*) - 1);
  CHECK(driver.tensorMapEncodeTiled != nullptr);
}

TEST_CASE("a driver for an older CUDA is refused at initialisation") {
  FakeDriver fake;
  fake.setDriverVersion(11080);
  ErrorSummary error = requireError(initialize(fake.table()));
  CHECK(error.code == ErrorCode::Unsupported);
  CHECK_THAT(error.message, Catch::Contains("11.8") && Catch::Contains("12.0") && Catch::Contains("update"));
}

TEST_CASE("no device is an error with advice") {
  FakeDriver fake;
  fake.setDeviceCount(0);
  ErrorSummary error = requireError(initialize(fake.table()));
  CHECK(error.code == ErrorCode::Driver);
  CHECK_THAT(error.message,
             Catch::Contains("cuInit failed: CUDA_ERROR_NO_DEVICE") && Catch::Contains("CUDA_VISIBLE_DEVICES"));
}

TEST_CASE("check names the call, the code, its text and what to do") {
  FakeDriver fake;
  Driver driver = fake.table();
  require(check(driver, CUDA_SUCCESS, "cuInit"));
  ErrorSummary memory = requireError(check(driver, CUDA_ERROR_OUT_OF_MEMORY, "cuMemAlloc of 7 bytes"));
  CHECK(memory.message == "cuMemAlloc of 7 bytes failed: CUDA_ERROR_OUT_OF_MEMORY (out of memory); free GPU memory, "
                          "lower the workspace limit or use a smaller shape");
  CHECK(requireError(check(driver, CUDA_ERROR_UNKNOWN, "cuX")).message ==
        "cuX failed: CUDA_ERROR_UNKNOWN (unknown error)");
  // A code that this driver does not know itself.
  CHECK_THAT(requireError(check(driver, static_cast<CUresult>(998), "cuX")).message, Catch::Contains("code 998"));
}

TEST_CASE("the figures of a live device become a target") {
  FakeDriver fake;
  Driver driver = fake.table();
  require(initialize(driver));
  Target target = require(queryTarget(driver, 0));
  CHECK(target.sm == 90);
  CHECK(target.archSpecific);
  CHECK(target.multiprocessors == 132);
  CHECK(target.sharedPerBlock == 232448);
  CHECK(target.sharedPerMultiprocessor == 233472);
  CHECK(target.registersPerMultiprocessor == 65536);
  CHECK(target.maxThreadsPerMultiprocessor == 2048);
  CHECK(target.l2Bytes == 52428800);
  for (int sm : {75, 80, 86, 89, 90, 100, 103, 120}) {
    Target other = target;
    other.sm = sm;
    fake.setTarget(other);
    INFO(sm);
    CHECK(require(queryTarget(driver, 0)).sm == sm);
    CHECK(require(queryTarget(driver, 0)).archSpecific == (sm >= 90));
  }
  CHECK_THAT(requireError(queryTarget(driver, 3)).message, Catch::Contains("device 3"));
}

TEST_CASE("every use of the driver works on the fake and releases everything") {
  FakeDriver fake;
  fake.onLaunch(runSharedUser);
  std::vector<float> output;
  require(exercise(fake.table(), hopperCubin(), output));
  CHECK(output == reversed());
  CHECK(fake.leaks() == "");
  Driver driver = fake.table();
  forEachEntry(driver, [&](llvm::StringRef name, auto) {
    INFO(name.str());
    CHECK((fake.callCount(name) > 0 || name.starts_with("cuGetError")));
  });
  REQUIRE(fake.launches().size() == 2);
  CHECK(!fake.launches()[0].fromGraph);
  FakeLaunch launch = fake.launches()[1];
  CHECK(launch.fromGraph);
  CHECK(launch.kernel == "shared_user");
  CHECK(launch.block == std::array<unsigned, 3>{1024, 1, 1});
  CHECK(launch.parameter<int>(2) == 1024);
}

TEST_CASE("a failure of any single driver call is a clean error that leaks nothing") {
  std::string cubin = hopperCubin();
  std::vector<float> output;
  size_t calls = 0;
  {
    FakeDriver fake;
    require(exercise(fake.table(), cubin, output));
    calls = fake.calls().size();
  }
  REQUIRE(calls > 50);
  for (size_t index = 0; index < calls; ++index) {
    FakeDriver fake;
    fake.failCall(index, CUDA_ERROR_LAUNCH_FAILED);
    llvm::Error error = exercise(fake.table(), cubin, output);
    std::string failed = fake.calls()[index];
    INFO("call " << index << ", " << failed);
    CHECK(fake.leaks() == "");
    // The end of a life is silent; everything else is reported under the name of the call.
    if (isRelease(failed)) {
      require(std::move(error));
      continue;
    }
    CHECK_THAT(requireError(std::move(error)).message,
               Catch::Contains(failed) && Catch::Contains("CUDA_ERROR_LAUNCH_FAILED"));
  }
}

TEST_CASE("on a GPU: the driver runs a kernel, and its view of a cubin is the reader's") {
  llvm::Expected<Driver> driver = openDriver();
  if (!driver) {
    WARN("skipped: " << takeSummary(driver.takeError()).message);
    return;
  }
  require(initialize(*driver));
  int sm = require(queryTarget(*driver, 0)).sm;
  std::vector<std::string> files;
  if (sm == 90) files = {"shared_sm_90a_cuda12.cubin", "shared_sm_90a_cuda13.cubin"};
  if (sm / 10 == 8) files = {"shared_sm_80_cuda12.cubin"};
  if (sm == 75) files = {"shared_sm_75_cuda13.cubin"};
  if (files.empty()) WARN("skipped: there is no test cubin for sm_" << sm);
  for (const std::string& file : files) {
    INFO(file);
    std::string cubin = readData(file);
    std::vector<float> output;
    require(exercise(*driver, cubin, output));
    CHECK(output == reversed());

    PrimaryContext context = require(PrimaryContext::retain(*driver, 0));
    ContextGuard guard = require(ContextGuard::enter(*driver, context.get()));
    Module module = require(Module::load(*driver, cubin, file));
    CUfunction function = require(module.function("shared_user"));
    auto attribute = [&](CUfunction_attribute which) {
      int value = -1;
      require(check(*driver, driver->funcGetAttribute(&value, which, function), "cuFuncGetAttribute"));
      return value;
    };
    CubinInfo info = require(readCubin(cubin, "shared_user"));
    CHECK(attribute(CU_FUNC_ATTRIBUTE_NUM_REGS) == info.registers);
    CHECK(attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES) == info.sharedBytes);
    CHECK(attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES) == info.localBytes);
    CHECK(attribute(CU_FUNC_ATTRIBUTE_BINARY_VERSION) == info.sm);
  }
}

TEST_CASE("owners release exactly once when they are moved") {
  Fixture fixture;
  {
    DeviceBuffer first = require(DeviceBuffer::allocate(fixture.driver, 100));
    DeviceBuffer second = std::move(first);
    CHECK(first.get() == 0);
    CHECK(second.bytes() == 100);
    second = require(DeviceBuffer::allocate(fixture.driver, 200));
    CHECK(fixture.fake.allocatedBytes() == 200);
    Stream stream = require(Stream::create(fixture.driver));
    stream = require(Stream::create(fixture.driver));
    Event event = require(Event::create(fixture.driver));
    Event moved = std::move(event);
    Module module = require(Module::load(fixture.driver, hopperCubin(), "k"));
    module = require(Module::load(fixture.driver, hopperCubin(), "k"));
  }
  fixture.guard.reset();
  PrimaryContext other = require(PrimaryContext::retain(fixture.driver, 0));
  other = std::move(*fixture.context);
  fixture.context.reset();
  CHECK(fixture.fake.leaks() == "1 primary context reference(s)");
}

TEST_CASE("buffers of no or negative size touch no driver") {
  Fixture fixture;
  fixture.fake.forgetCalls();
  DeviceBuffer empty = require(DeviceBuffer::allocate(fixture.driver, 0));
  CHECK(empty.get() == 0);
  CHECK(requireError(DeviceBuffer::allocate(fixture.driver, -1)).code == ErrorCode::InvalidArgument);
  CHECK(fixture.fake.calls().empty());
}

TEST_CASE("out of memory says how much was asked for") {
  Fixture fixture;
  fixture.fake.setMemoryBytes(1000);
  DeviceBuffer buffer = require(DeviceBuffer::allocate(fixture.driver, 600));
  CHECK_THAT(requireError(DeviceBuffer::allocate(fixture.driver, 500)).message,
             Catch::Contains("cuMemAlloc of 500 bytes") && Catch::Contains("CUDA_ERROR_OUT_OF_MEMORY"));
}

TEST_CASE("a cubin for another architecture or of wrong bytes is refused at loading") {
  Fixture fixture;
  CHECK_THAT(requireError(Module::load(fixture.driver, readData("shared_sm_80_cuda12.cubin"), "old")).message,
             Catch::Contains("'old'") && Catch::Contains("CUDA_ERROR_NO_BINARY_FOR_GPU"));
  std::string junk(4096, 'x');
  CHECK_THAT(requireError(Module::load(fixture.driver, junk, "junk")).message,
             Catch::Contains("CUDA_ERROR_INVALID_IMAGE"));
  Module module = require(Module::load(fixture.driver, hopperCubin(), "k"));
  CHECK_THAT(requireError(module.function("absent")).message,
             Catch::Contains("'absent'") && Catch::Contains("CUDA_ERROR_NOT_FOUND"));
}

TEST_CASE("the fake checks launches against the kernel and the device") {
  Fixture fixture;
  const Driver& driver = fixture.driver;
  Module module = require(Module::load(driver, hopperCubin(), "k"));
  CUfunction function = require(module.function("shared_user"));
  DeviceBuffer buffer = require(DeviceBuffer::allocate(driver, 4096));
  CUdeviceptr address = buffer.get();
  int n = 5;
  void* parameters[] = {&address, &address, &n};
  auto launch = [&](unsigned grid, unsigned block, unsigned shared) {
    return driver.launchKernel(function, grid, 1, 1, block, 1, 1, shared, nullptr, parameters, nullptr);
  };
  CHECK(launch(1, 128, 0) == CUDA_SUCCESS);
  CHECK(launch(0, 128, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch(1, 0, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch(1, 1025, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(driver.launchKernel(function, 1, 70000, 1, 32, 1, 1, 0, nullptr, parameters, nullptr) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(launch(1, 128, 60000) == CUDA_ERROR_INVALID_VALUE);
  CHECK(driver.funcSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000) == CUDA_SUCCESS);
  CHECK(launch(1, 128, 60000) == CUDA_SUCCESS);
  CHECK(driver.funcSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 232448) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(driver.launchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch(1, 128, 0) == CUDA_SUCCESS);
  std::vector<FakeLaunch> launches = fixture.fake.launches();
  REQUIRE(launches.size() == 3);
  CHECK(launches[1].sharedBytes == 60000);
  CHECK(launches[0].parameter<CUdeviceptr>(0) == address);
}

TEST_CASE("the fake's copies and fills move real bytes and keep their bounds") {
  Fixture fixture;
  const Driver& driver = fixture.driver;
  DeviceBuffer a = require(DeviceBuffer::allocate(driver, 64));
  DeviceBuffer b = require(DeviceBuffer::allocate(driver, 64));
  std::string text = "sixteen bytes !!";
  CHECK(driver.memcpyHtoDAsync(a.get() + 8, text.data(), text.size(), nullptr) == CUDA_SUCCESS);
  CHECK(driver.memcpyDtoDAsync(b.get(), a.get() + 8, text.size(), nullptr) == CUDA_SUCCESS);
  std::string back(text.size(), '\0');
  CHECK(driver.memcpyDtoHAsync(back.data(), b.get(), back.size(), nullptr) == CUDA_SUCCESS);
  CHECK(back == text);
  CHECK(driver.memsetD8Async(b.get(), 'z', 64, nullptr) == CUDA_SUCCESS);
  CHECK(driver.memcpyDtoHAsync(back.data(), b.get() + 48, 16, nullptr) == CUDA_SUCCESS);
  CHECK(back == std::string(16, 'z'));
  CHECK(driver.memsetD32Async(b.get(), 0x01020304, 16, nullptr) == CUDA_SUCCESS);
  CHECK(driver.memsetD32Async(b.get(), 0, 17, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(driver.memsetD32Async(b.get() + 2, 0, 1, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(driver.memcpyHtoDAsync(a.get() + 60, text.data(), 5, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(driver.memcpyDtoHAsync(back.data(), a.get() - 1, 1, nullptr) == CUDA_ERROR_INVALID_VALUE);
  size_t range = 0;
  CHECK(driver.pointerGetAttribute(&range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, a.get() + 10) == CUDA_SUCCESS);
  CHECK(range == 64);
  CHECK(driver.pointerGetAttribute(&range, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                   reinterpret_cast<CUdeviceptr>(text.data())) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("the fake keeps the rules of stream capture") {
  Fixture fixture;
  const Driver& driver = fixture.driver;
  Stream stream = require(Stream::create(driver));
  DeviceBuffer buffer = require(DeviceBuffer::allocate(driver, 16));
  CHECK(driver.streamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(driver.streamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  CUstreamCaptureStatus status;
  CHECK(driver.streamIsCapturing(stream.get(), &status) == CUDA_SUCCESS);
  CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CHECK(driver.memsetD8Async(buffer.get(), 1, 16, stream.get()) == CUDA_SUCCESS);
  CUgraph captured = nullptr;
  CHECK(driver.streamEndCapture(stream.get(), &captured) == CUDA_SUCCESS);
  Graph graph(driver, captured);
  // Captured work runs at the launch of the graph, not before, and as often as it is launched.
  char byte = 0;
  driver.memcpyDtoHAsync(&byte, buffer.get(), 1, nullptr);
  CHECK(byte != 1);
  CUgraphExec exec = nullptr;
  CHECK(driver.graphInstantiateWithFlags(&exec, graph.get(), 0) == CUDA_SUCCESS);
  GraphExec executable(driver, exec);
  for (int round = 0; round < 2; ++round) {
    driver.memsetD8Async(buffer.get(), 0, 16, nullptr);
    CHECK(driver.graphLaunch(exec, stream.get()) == CUDA_SUCCESS);
    driver.memcpyDtoHAsync(&byte, buffer.get(), 1, nullptr);
    CHECK(byte == 1);
  }
  // Waiting or allocating inside a capture spoils it.
  CUdeviceptr address = 0;
  CHECK(driver.streamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  CHECK(driver.memAlloc(&address, 16) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(driver.streamEndCapture(stream.get(), &captured) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(driver.streamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  CHECK_THAT(requireError(stream.synchronize()).message, Catch::Contains("before the capture starts"));
  CHECK(driver.streamEndCapture(stream.get(), &captured) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(captured == nullptr);
}

TEST_CASE("the fake's events measure what launches are said to take") {
  Fixture fixture;
  const Driver& driver = fixture.driver;
  fixture.fake.setLaunchTime([](const FakeLaunch& launch) { return 0.5 * launch.grid[0]; });
  int seen = 0;
  fixture.fake.onLaunch([&](const FakeLaunch&) { ++seen; });
  Module module = require(Module::load(driver, hopperCubin(), "k"));
  CUfunction function = require(module.function("shared_user"));
  Event begin = require(Event::create(driver));
  Event end = require(Event::create(driver));
  CHECK_THAT(requireError(end.millisecondsSince(begin)).message, Catch::Contains("CUDA_ERROR_INVALID_HANDLE"));
  CUdeviceptr none = 0;
  int n = 0;
  void* parameters[] = {&none, &none, &n};
  require(begin.record(nullptr));
  CHECK(driver.launchKernel(function, 4, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr) == CUDA_SUCCESS);
  require(end.record(nullptr));
  CHECK(require(end.millisecondsSince(begin)) == 2.0f);
  CHECK(seen == 1);
}

TEST_CASE("the fake wants initialisation, a current context and live handles") {
  FakeDriver fake;
  Driver driver = fake.table();
  CUcontext context = nullptr;
  CUdeviceptr address = 0;
  CHECK(driver.devicePrimaryCtxRetain(&context, 0) == CUDA_ERROR_NOT_INITIALIZED);
  require(initialize(driver));
  CHECK(driver.memAlloc(&address, 16) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(driver.devicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
  CHECK(driver.ctxPushCurrent(context) == CUDA_SUCCESS);
  // Another thread has contexts of its own.
  CUresult elsewhere = CUDA_SUCCESS;
  std::thread([&] { elsewhere = driver.memAlloc(&address, 16); }).join();
  CHECK(elsewhere == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(driver.memAlloc(&address, 16) == CUDA_SUCCESS);
  CHECK(fake.leaks() == "1 primary context reference(s), 1 pushed context(s), 1 allocation(s), 16 allocated byte(s)");
  CHECK(driver.memFree(address) == CUDA_SUCCESS);
  CHECK(driver.memFree(address) == CUDA_ERROR_INVALID_VALUE);
  CHECK(driver.streamDestroy(reinterpret_cast<CUstream>(0x1234)) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(driver.ctxPopCurrent(&context) == CUDA_SUCCESS);
  CHECK(driver.ctxPopCurrent(&context) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(driver.devicePrimaryCtxRelease(0) == CUDA_SUCCESS);
}

TEST_CASE("the fake fails the call it was told to, and no other") {
  Fixture fixture;
  fixture.fake.failNext("cuMemAlloc", CUDA_ERROR_OUT_OF_MEMORY, 2);
  require(DeviceBuffer::allocate(fixture.driver, 16));
  require(DeviceBuffer::allocate(fixture.driver, 16));
  requireError(DeviceBuffer::allocate(fixture.driver, 16));
  require(DeviceBuffer::allocate(fixture.driver, 16));
  CHECK(fixture.fake.callCount("cuMemAlloc") == 4);
  CHECK(fixture.fake.callCount("cuMemFree") == 3);
}

TEST_CASE("the fake is used by several threads at once") {
  Fixture fixture;
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const Driver& driver = fixture.driver;
      failures += driver.ctxPushCurrent(fixture.context->get()) != CUDA_SUCCESS;
      for (int round = 0; round < 200; ++round) {
        CUdeviceptr address = 0;
        failures += driver.memAlloc(&address, 256) != CUDA_SUCCESS;
        failures += driver.memsetD8Async(address, 1, 256, nullptr) != CUDA_SUCCESS;
        failures += driver.memFree(address) != CUDA_SUCCESS;
      }
      failures += driver.ctxPopCurrent(nullptr) != CUDA_SUCCESS;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
  fixture.guard.reset();
  fixture.context.reset();
  CHECK(fixture.fake.leaks() == "");
}
