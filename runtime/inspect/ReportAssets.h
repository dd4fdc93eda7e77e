//===- runtime/inspect/ReportAssets.h - The report's page, style and script -===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/ErrorHandling.h"

namespace lathe {

/// The text of a file of runtime/inspect/report/, embedded at build time: `report.html`, `report.css` or `report.js`.
llvm::StringRef reportAsset(llvm::StringRef name);

} // namespace lathe
