//===- tests/fuzz/sass_fuzz.cpp - The reader of machine code on any text ----===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/inspect/Sass.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  llvm::StringRef text(reinterpret_cast<const char*>(data), size);
  llvm::Expected<std::vector<lathe::SassListing>> listings = lathe::parseSass(text);
  if (!listings) {
    llvm::consumeError(listings.takeError());
    return 0;
  }
  for (const lathe::SassListing& listing : *listings) {
    const std::vector<lathe::SassLoop> loops = lathe::findLoops(listing);
    const std::optional<size_t> hot = lathe::findHotLoop(loops);
    if (hot && (*hot >= loops.size() || loops[*hot].ranges.back().end > listing.instructions.size())) __builtin_trap();
    for (const lathe::SassInstruction& instruction : listing.instructions)
      if (instruction.stack >= static_cast<int>(listing.stacks.size())) __builtin_trap();
  }
  return 0;
}
