//===- runtime/inspect/Quantities.h - Numbers for people --------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include <string>

namespace lathe {

/// `512 B`, `1.50 MiB`: bytes in binary units.
std::string bytesText(double bytes);
/// `12.9 TFLOP`
std::string flopsText(double flops);
/// `12.3 us`, `6.34 ms`, `1.20 s`: a time given in milliseconds.
std::string timeText(double milliseconds);

} // namespace lathe
