//===- tests/fuzz/safetensors_fuzz.cpp - The tensor reader on any bytes -----===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/io/Safetensors.h"

#include <cstdlib>
#include <optional>

using namespace lathe;

namespace {

/// The number of elements that `read` gives; none when it refuses the type.
template <class Value> std::optional<int64_t> countOf(llvm::Expected<std::vector<Value>> read) {
  if (read) return static_cast<int64_t>(read->size());
  llvm::consumeError(read.takeError());
  return std::nullopt;
}

/// Every element of an accepted tensor must be readable, in one way, when Lathe computes with its type.
void readAll(const TensorView& tensor) {
  const std::optional<int64_t> doubles = countOf(toDoubles(tensor));
  const std::optional<int64_t> integers = countOf(toIntegers(tensor));
  if (doubles && *doubles != tensor.count()) std::abort();
  if (integers && *integers != tensor.count()) std::abort();
  const bool computed = tensor.type <= TensorType::I64;
  if (computed ? doubles.has_value() == integers.has_value() : doubles || integers) std::abort();
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
