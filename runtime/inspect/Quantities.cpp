//===- runtime/inspect/Quantities.cpp - Numbers for people ------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/inspect/Quantities.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

using namespace lathe;

namespace {

std::string printed(const char* format, double value) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format(format, value);
  return text;
}

/// Three significant digits for values from 1 to 999.
std::string threeDigits(double value) {
  return printed(value < 9.995 ? "%.2f" : value < 99.95 ? "%.1f" : "%.0f", value);
}

/// `value` in the largest of `units`, each `step` times the one before, that leaves at least 1.
std::string scaled(double value, double step, llvm::ArrayRef<const char*> units) {
  size_t unit = 0;
  while (unit + 1 < units.size() && value >= step) {
    value /= step;
    ++unit;
  }
  return (unit == 0 ? printed("%.0f", value) : threeDigits(value)) + " " + units[unit];
}

} // namespace

std::string lathe::bytesText(double bytes) {
  return scaled(bytes, 1024, {"B", "KiB", "MiB", "GiB", "TiB", "PiB"});
}

std::string lathe::flopsText(double flops) {
  return scaled(flops, 1000, {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"});
}

std::string lathe::timeText(double milliseconds) {
  if (milliseconds < 1) return threeDigits(milliseconds * 1000) + " us";
  return milliseconds < 1000 ? threeDigits(milliseconds) + " ms" : threeDigits(milliseconds / 1000) + " s";
}
