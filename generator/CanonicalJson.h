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

} // namespace lathe
