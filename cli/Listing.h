//===- cli/Listing.h - Sources and machine code on a terminal ---------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "cli/Table.h"
#include "lathe/inspect.h"

namespace lathe::cli {

/// How a listing is written.
struct ListingStyle {
  bool colour = false;
  /// Columns of a line; lines are cut there. 0: as long as they are.
  int columns = 0;
};

/// A text with its lines numbered.
void printNumbered(llvm::raw_ostream& out, llvm::StringRef text, const ListingStyle& style);

/// The PTX, where the machine code is known with the templates' lines above it.
void printPtx(llvm::raw_ostream& out, const KernelInspection& kernel, const ListingStyle& style);

/// The machine code, the lines that it comes from above it. The hot loop is marked by a bar.
void printSass(llvm::raw_ostream& out, const KernelInspection& kernel, const ListingStyle& style);

/// The source's lines to the left of the machine code that was made of them. On fewer than 100 columns as `printSass`.
void printSideBySide(llvm::raw_ostream& out, const KernelInspection& kernel, const ListingStyle& style);

} // namespace lathe::cli
