//===- templates/EmbeddedTemplates.h - Device code as text -----*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include <span>
#include <string_view>

namespace lathe {

/// One file of templates/, embedded at build time.
struct EmbeddedTemplate {
  /// Path relative to templates/, as generated sources include it.
  std::string_view name;
  /// SHA-256 of the text, lower-case hexadecimal.
  std::string_view digest;
  std::string_view text;
};

/// All of them, sorted by name.
std::span<const EmbeddedTemplate> embeddedTemplates();

} // namespace lathe
