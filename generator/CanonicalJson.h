//===- generator/CanonicalJson.h - JSON with one spelling -------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/Error.h"

#include "llvm/Support/JSON.h"

#include <string>

namespace lathe {

/// The text of `value` by the JSON Canonicalization Scheme (RFC 8785): no white space, keys sorted by UTF-16 code
/// units, numbers as ECMAScript prints them. Numbers that are not finite, or integers that a double cannot hold
/// exactly, are errors.
llvm::Expected<std::string> canonicalJson(const llvm::json::Value& value);

/// The deepest nesting of arrays and objects that `parseJson` accepts.
inline constexpr int kDeepestJson = 64;

/// Parses JSON text from anywhere. LLVM's parser calls itself for every level of nesting, so text that is nested deeper
/// than `kDeepestJson` is refused before it can exhaust the stack. Errors name the line or the byte.
llvm::Expected<llvm::json::Value> parseJson(llvm::StringRef text);

} // namespace lathe
