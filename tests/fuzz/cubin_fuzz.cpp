//===- tests/fuzz/cubin_fuzz.cpp - The cubin reader on any bytes ----------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/compile/Cubin.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  llvm::StringRef bytes(reinterpret_cast<const char*>(data), size);
  llvm::Expected<std::vector<std::string>> entries = lathe::readCubinEntries(bytes);
  if (!entries) {
    llvm::consumeError(entries.takeError());
    return 0;
  }
  for (const std::string& entry : *entries) {
    llvm::Expected<lathe::CubinInfo> info = lathe::readCubin(bytes, entry);
    if (!info) llvm::consumeError(info.takeError());
  }
  return 0;
}
