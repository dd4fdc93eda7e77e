//===- tests/fuzz/safetensors_fuzz.cpp - The tensor reader on any bytes -----===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/io/Safetensors.h"

#include <cstdlib>

using namespace lathe;

namespace {

/// Every element of an accepted tensor must be readable.
void readAll(const TensorView& tensor) {
  const bool integers = tensor.type == TensorType::I32 || tensor.type == TensorType::I64;
  size_t count = 0;
  if (integers) {
    count = llvm::cantFail(toIntegers(tensor)).size();
  } else {
    count = llvm::cantFail(toDoubles(tensor)).size();
  }
  if (static_cast<int64_t>(count) != tensor.count()) std::abort();
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const llvm::StringRef bytes(reinterpret_cast<const char*>(data), size);
  llvm::Expected<SafetensorsFile> file = SafetensorsFile::parse(llvm::MemoryBuffer::getMemBufferCopy(bytes, "fuzz"));
  if (!file) {
    llvm::consumeError(file.takeError());
    return 0;
  }
  for (const auto& entry : file->tensors()) readAll(entry.second);
  return 0;
}
