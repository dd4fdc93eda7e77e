//===- runtime/driver/Driver.cpp - The CUDA driver as a table -------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/driver/Driver.h"

#include "runtime/driver/DynamicLibrary.h"

using namespace lathe;

namespace {

constexpr const char* kUpdateDriver =
    "Lathe needs a driver that supports CUDA 12.0 (R525 or later): update the NVIDIA driver";

/// Looks up entry points by the version of their ABI.
class EntryLookup {
public:
  explicit EntryLookup(PFN_cuGetProcAddress_v12000 getProcAddress) : getProcAddress_(getProcAddress) {}

  template <typename Function> bool find(const char* name, Function& function) const {
    void* address = nullptr;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    CUresult result = getProcAddress_(name, &address, kDriverVersion, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &found);
    if (result != CUDA_SUCCESS || found != CU_GET_PROC_ADDRESS_SUCCESS) return false;
    function = reinterpret_cast<Function>(address);
    return address != nullptr;
  }

private:
  PFN_cuGetProcAddress_v12000 getProcAddress_;
};

/// What to do about `result`, or null.
const char* adviceFor(CUresult result) {
  switch (result) {
  case CUDA_ERROR_OUT_OF_MEMORY:
    return "free GPU memory, lower the workspace limit or use a smaller shape";
  case CUDA_ERROR_NO_BINARY_FOR_GPU:
    return "the kernel was compiled for another architecture: compile for the architecture of this GPU";
  case CUDA_ERROR_INVALID_IMAGE:
  case CUDA_ERROR_INVALID_SOURCE:
    return "the driver does not accept this binary: rebuild it, and if it comes from a newer NVRTC update the driver";
  case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
  case CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC:
    return "the binary comes from a newer CUDA than the driver: update the driver or use an older NVRTC";
  case CUDA_ERROR_NO_DEVICE:
    return "no GPU is visible: check nvidia-smi, CUDA_VISIBLE_DEVICES and whether the container was given a GPU";
  case CUDA_ERROR_INVALID_DEVICE:
    return "no GPU has this ordinal: check CUDA_VISIBLE_DEVICES";
  case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
  case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
    return "libcuda and the kernel module differ in version: reboot, or remove the CUDA compatibility package";
  case CUDA_ERROR_SYSTEM_NOT_READY:
    return "the system is not ready: start nvidia-fabricmanager, or wait until it has started";
  case CUDA_ERROR_DEVICE_UNAVAILABLE:
    return "another process holds the GPU in exclusive mode: end it or change the compute mode";
  case CUDA_ERROR_NOT_INITIALIZED:
  case CUDA_ERROR_DEINITIALIZED:
    return "the driver is not running in this process: initialise it first, and make no call while the process exits";
  case CUDA_ERROR_INVALID_CONTEXT:
    return "make a context of the GPU current on this thread first";
  case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
    return "the launch needs more registers or shared memory than the GPU has: use a smaller configuration";
  case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
  case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    return "the stream is being captured: prepare the plan and its workspace before the capture starts";
  case CUDA_ERROR_ILLEGAL_ADDRESS:
  case CUDA_ERROR_MISALIGNED_ADDRESS:
  case CUDA_ERROR_LAUNCH_FAILED:
    return "work queued earlier has crashed and the context is lost: check that every pointer is device memory of the "
           "stated size, and run under compute-sanitizer to find the kernel";
  default:
    return nullptr;
  }
}

/// Reads `attribute` of `device` into `value`, an int or int64_t.
template <typename Integer>
llvm::Error readAttribute(const Driver& driver, CUdevice device, CUdevice_attribute attribute, Integer& value) {
  int result = 0;
  std::string what =
      llvm::formatv("cuDeviceGetAttribute({0}) of device {1}", static_cast<int>(attribute), device).str();
  if (llvm::Error error = check(driver, driver.deviceGetAttribute(&result, attribute, device), what)) return error;
  value = result;
  return llvm::Error::success();
}

bool hasArchSpecificCode(int sm) {
  return sm == 90 || sm == 100 || sm == 103 || sm == 120;
}

} // namespace

llvm::Expected<Driver> lathe::openDriver(llvm::StringRef path) {
  llvm::Expected<DynamicLibrary> library = DynamicLibrary::open(path);
  if (!library)
    return makeError(
        ErrorCode::MissingLibrary,
        "no NVIDIA driver was found: {0}; tried to open '{1}'. Install the NVIDIA driver for your GPU (it "
        "brings libcuda.so.1), or start the container with --gpus all. Without a GPU Lathe can still emit and "
        "compile kernels",
        takeSummary(library.takeError()).message, path);

  auto getProcAddress = reinterpret_cast<PFN_cuGetProcAddress_v12000>(library->find("cuGetProcAddress_v2"));
  if (!getProcAddress)
    return makeError(ErrorCode::MissingLibrary, "'{0}' has no function cuGetProcAddress_v2. {1}", path, kUpdateDriver);

  Driver driver;
  EntryLookup lookup(getProcAddress);
  std::string missing;
  forEachEntry(driver, [&](const char* name, auto& function) {
    if (!lookup.find(name, function)) missing += (missing.empty() ? "" : ", ") + std::string(name);
  });
  if (!missing.empty())
    return makeError(ErrorCode::MissingLibrary, "'{0}' lacks {1}. {2}", path, missing, kUpdateDriver);
  if (!lookup.find("cuTensorMapEncodeTiled", driver.tensorMapEncodeTiled)) driver.tensorMapEncodeTiled = nullptr;
  return driver;
}

llvm::Error lathe::initialize(const Driver& driver) {
  if (llvm::Error error = check(driver, driver.init(0), "cuInit")) return error;
  int version = 0;
  if (llvm::Error error = check(driver, driver.driverGetVersion(&version), "cuDriverGetVersion")) return error;
  if (version >= kDriverVersion) return llvm::Error::success();
  return makeError(ErrorCode::Unsupported, "the driver supports CUDA {0}.{1} only. {2}", version / 1000,
                   version % 1000 / 10, kUpdateDriver);
}

llvm::Error lathe::check(const Driver& driver, CUresult result, llvm::StringRef what) {
  if (result == CUDA_SUCCESS) return llvm::Error::success();
  const char* name = nullptr;
  const char* text = nullptr;
  if (driver.getErrorName(result, &name) != CUDA_SUCCESS) name = nullptr;
  if (driver.getErrorString(result, &text) != CUDA_SUCCESS) text = nullptr;
  std::string message = llvm::formatv("{0} failed: {1} ({2})", what, name ? name : "an error unknown to this driver",
                                      text ? text : "code " + std::to_string(static_cast<int>(result)))
                            .str();
  if (const char* advice = adviceFor(result)) message += std::string("; ") + advice;
  return llvm::make_error<LatheError>(ErrorCode::Driver, std::move(message));
}

llvm::Expected<Target> lathe::queryTarget(const Driver& driver, CUdevice device) {
  Target target;
  int major = 0;
  int minor = 0;
  auto read = [&](CUdevice_attribute attribute, auto& value) {
    return readAttribute(driver, device, attribute, value);
  };
  if (llvm::Error error = read(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, major)) return error;
  if (llvm::Error error = read(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, minor)) return error;
  if (llvm::Error error = read(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, target.multiprocessors)) return error;
  if (llvm::Error error = read(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, target.sharedPerBlock))
    return error;
  if (llvm::Error error =
          read(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, target.sharedPerMultiprocessor))
    return error;
  if (llvm::Error error = read(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, target.registersPerMultiprocessor))
    return error;
  if (llvm::Error error = read(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, target.maxThreadsPerMultiprocessor))
    return error;
  if (llvm::Error error = read(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, target.l2Bytes)) return error;
  target.sm = 10 * major + minor;
  target.archSpecific = hasArchSpecificCode(target.sm);
  return target;
}
