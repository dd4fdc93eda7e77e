//===- runtime/io/Safetensors.h - Tensors in files -------------*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// A strict reader and a writer of the safetensors format: eight bytes of header length (little endian), a JSON header
/// that names every tensor with its dtype, shape and byte range, then the data.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Error.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/MemoryBuffer.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace lathe {

/// Element types of the format. Lathe computes with the first six; tensors of the others are listed, copied and
/// checked for their size, and never read as numbers.
enum class TensorType : uint8_t {
  BF16,
  F16,
  F32,
  F64,
  I32,
  I64,
  Bool,
  F8E4M3,
  F8E5M2,
  F8E8M0,
  I8,
  I16,
  U8,
  U16,
  U32,
  U64,
  C64,
};

/// The format's own name: `BF16`, `F16`, ...
llvm::StringRef toString(TensorType type);
/// Bytes of one element.
int64_t sizeOf(TensorType type);

/// Whether `path` is a device such as /dev/zero, which may have no end.
bool isDevice(llvm::StringRef path);

/// One tensor of a file. The bytes are row-major and little endian, and may lie at any address: copy them out before
/// use as numbers.
struct TensorView {
  TensorType type = TensorType::F32;
  std::vector<int64_t> shape;
  llvm::StringRef bytes;

  /// Elements: the product of the shape, 1 for a scalar.
  int64_t count() const { return static_cast<int64_t>(bytes.size()) / sizeOf(type); }
};

/// `[4, 33]`: a shape as messages print it.
std::string shapeText(llvm::ArrayRef<int64_t> shape);

/// The elements of a floating-point tensor in double precision; any other type is an error.
llvm::Expected<std::vector<double>> toDoubles(const TensorView& tensor);
/// The elements of an integer tensor; any other type is an error.
llvm::Expected<std::vector<int64_t>> toIntegers(const TensorView& tensor);

/// A file held in memory (mapped where the system can). Views point into it and live as long as it does.
class SafetensorsFile {
public:
  using Tensors = std::map<std::string, TensorView, std::less<>>;
  using Metadata = std::map<std::string, std::string, std::less<>>;

  /// ErrorCode::Io when the file cannot be read, ErrorCode::Corrupt when it is not a valid safetensors file.
  static llvm::Expected<SafetensorsFile> open(llvm::StringRef path);
  /// Messages name the buffer's identifier as the file.
  static llvm::Expected<SafetensorsFile> parse(std::unique_ptr<llvm::MemoryBuffer> buffer);

  /// Null when the file has no such tensor.
  const TensorView* find(llvm::StringRef name) const;
  const Tensors& tensors() const { return tensors_; }
  const Metadata& metadata() const { return metadata_; }
  /// The path, or the buffer's identifier.
  llvm::StringRef name() const { return buffer_->getBufferIdentifier(); }

private:
  SafetensorsFile(std::unique_ptr<llvm::MemoryBuffer> buffer, Tensors tensors, Metadata metadata)
      : buffer_(std::move(buffer)), tensors_(std::move(tensors)), metadata_(std::move(metadata)) {}

  std::unique_ptr<llvm::MemoryBuffer> buffer_;
  Tensors tensors_;
  Metadata metadata_;
};

/// Collects tensors and writes them. The same content always gives the same bytes: tensors are laid out by element
/// size, largest first, then by name, so that each is aligned.
class SafetensorsWriter {
public:
  SafetensorsWriter() = default;
  // A copy would refer to the numbers that the original owns.
  SafetensorsWriter(SafetensorsWriter&&) = default;
  SafetensorsWriter& operator=(SafetensorsWriter&&) = default;

  /// Keeps `bytes` by reference: they must outlive `write`. Replaces a tensor of the same name.
  void add(llvm::StringRef name, TensorType type, std::vector<int64_t> shape, llvm::StringRef bytes);
  /// Takes ownership of a copy of `values`, as F64.
  void addDoubles(llvm::StringRef name, std::vector<int64_t> shape, llvm::ArrayRef<double> values);
  void setMetadata(llvm::StringRef key, llvm::StringRef value);
  /// Does nothing when there is no such key.
  void removeMetadata(llvm::StringRef key);

  /// Writes a temporary file in the folder of `path` and renames it, so that a file there is replaced whole or not at
  /// all; a device or pipe is refused. The error is ErrorCode::Io, or ErrorCode::InvalidArgument when a tensor's bytes
  /// do not fit its shape or a text is not UTF-8.
  llvm::Error write(llvm::StringRef path) const;

private:
  std::map<std::string, TensorView, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> metadata_;
  /// What `addDoubles` copied, by tensor; a map's elements do not move.
  std::map<std::string, std::string, std::less<>> owned_;
};

} // namespace lathe
