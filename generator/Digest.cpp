//===- generator/Digest.cpp - SHA-256 digests -------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "generator/Digest.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"

using namespace lathe;

Digest Digest::of(llvm::StringRef bytes) {
  return Digest(llvm::SHA256::hash(llvm::ArrayRef(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size())));
}

llvm::Expected<Digest> Digest::parse(llvm::StringRef text) {
  llvm::StringRef digits = text;
  digits.consume_front("sha256:");
  std::string bytes;
  const auto isLowerHex = [](char c) { return llvm::isDigit(c) || (c >= 'a' && c <= 'f'); };
  if (digits.size() != 64 || !llvm::all_of(digits, isLowerHex) || !llvm::tryGetFromHex(digits, bytes))
    return makeError(ErrorCode::InvalidArgument,
                     "\"{0}\" is not a digest; one is sha256: and 64 lower-case hexadecimal digits", text);
  std::array<uint8_t, 32> value{};
  llvm::copy(bytes, value.begin());
  return Digest(value);
}

std::string Digest::hex() const {
  return llvm::toHex(llvm::ArrayRef(bytes_), /*LowerCase=*/true);
}
