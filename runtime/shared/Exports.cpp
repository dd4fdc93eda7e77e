//===- runtime/shared/Exports.cpp - The shared library -----------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// liblathe.so is made of the library lathe_public; this file only gives it a source of its own.
///
//===----------------------------------------------------------------------===//
#include "lathe.h"
