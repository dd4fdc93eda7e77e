//===- tuning/Nvml.cpp - Clocks and their limits ----------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tuning/Nvml.h"

#include "runtime/driver/DynamicLibrary.h"

using namespace lathe;

namespace {

/// The values of NVML's interface that are used here.
constexpr int kSuccess = 0;
constexpr int kClockOfMultiprocessors = 1;
constexpr unsigned long long kSoftwarePowerCap = 0x4;
constexpr unsigned long long kSlowdown = 0x8 | 0x20 | 0x40 | 0x80;

/// `GPU-` and the bytes as NVML writes them.
std::string uuidText(const CUuuid& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += llvm::formatv("{0:x-2}", static_cast<unsigned>(static_cast<uint8_t>(uuid.bytes[i]))).str();
  }
  return text;
}

template <class Function>
llvm::Error find(const DynamicLibrary& library, llvm::StringRef name, llvm::StringRef path, Function& to) {
  to = reinterpret_cast<Function>(library.find(name));
  if (to) return llvm::Error::success();
  return makeError(ErrorCode::MissingLibrary, "{0} has no {1}", path, name);
}

} // namespace

llvm::Expected<Nvml> Nvml::open(const Driver& driver, CUdevice device, llvm::StringRef path) {
  llvm::Expected<DynamicLibrary> library = DynamicLibrary::open(path);
  if (!library) return library.takeError();
  Nvml nvml;
  int (*init)() = nullptr;
  int (*byUuid)(const char*, Handle*) = nullptr;
  if (llvm::Error error = find(*library, "nvmlInit_v2", path, init)) return error;
  if (llvm::Error error = find(*library, "nvmlDeviceGetHandleByUUID", path, byUuid)) return error;
  if (llvm::Error error = find(*library, "nvmlDeviceGetClockInfo", path, nvml.getClock_)) return error;
  if (llvm::Error error = find(*library, "nvmlDeviceGetCurrentClocksThrottleReasons", path, nvml.getReasons_))
    return error;
  if (llvm::Error error = find(*library, "nvmlSystemGetDriverVersion", path, nvml.getDriver_)) return error;
  CUuuid uuid{};
  if (llvm::Error error = check(driver, driver.deviceGetUuid(&uuid, device), "cuDeviceGetUuid")) return error;
  const std::string name = uuidText(uuid);
  if (const int code = init(); code != kSuccess)
    return makeError(ErrorCode::Driver, "nvmlInit failed with code {0}", code);
  if (const int code = byUuid(name.c_str(), &nvml.device_); code != kSuccess)
    return makeError(ErrorCode::Driver, "NVML does not know the device {0}: code {1}", name, code);
  return nvml;
}

std::optional<ClockState> Nvml::state() const {
  ClockState state;
  unsigned long long reasons = 0;
  if (getClock_(device_, kClockOfMultiprocessors, &state.clock) != kSuccess) return std::nullopt;
  if (getReasons_(device_, &reasons) != kSuccess) return std::nullopt;
  state.throttled = (reasons & kSlowdown) != 0;
  state.powerCapped = (reasons & kSoftwarePowerCap) != 0;
  return state;
}

std::string Nvml::driverRelease() const {
  char text[96] = {};
  return getDriver_(text, sizeof(text) - 1) == kSuccess ? text : "";
}
