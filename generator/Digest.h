//===- generator/Digest.h - SHA-256 digests --------------------*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Error.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <array>
#include <string>

namespace lathe {

/// A SHA-256 digest. Its text form is `sha256:` and 64 lower-case hexadecimal digits.
class Digest {
public:
  Digest() = default;
  explicit Digest(std::array<uint8_t, 32> bytes) : bytes_(bytes) {}

  /// The digest of `bytes`.
  static Digest of(llvm::StringRef bytes);
  /// Reads the text form, with or without its `sha256:`.
  static llvm::Expected<Digest> parse(llvm::StringRef text);

  /// The 64 hexadecimal digits alone, as file names use them.
  std::string hex() const;
  /// `sha256:` and the digits.
  std::string text() const { return "sha256:" + hex(); }
  const std::array<uint8_t, 32>& bytes() const { return bytes_; }

  friend bool operator==(const Digest&, const Digest&) = default;
  friend auto operator<=>(const Digest&, const Digest&) = default;

private:
  std::array<uint8_t, 32> bytes_{};
};

} // namespace lathe
