//===- tests/support/FakeDriverLibrary.cpp - A libcuda without a GPU ------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// The fake driver as a library that LATHE_LIBCUDA may name. It lives as long as the process.
///
//===----------------------------------------------------------------------===//
#include "tests/support/FakeDriver.h"

using namespace lathe;

extern "C" __attribute__((visibility("default"))) CUresult cuGetProcAddress_v2(const char* name, void** address, int,
                                                                               cuuint64_t,
                                                                               CUdriverProcAddressQueryResult* found) {
  static const test::FakeDriver fake;
  Driver driver = fake.table();
  *address = nullptr;
  const auto compare = [&](llvm::StringRef entry, auto function) {
    if (entry == name) *address = reinterpret_cast<void*>(function);
  };
  forEachEntry(driver, compare);
  compare("cuTensorMapEncodeTiled", driver.tensorMapEncodeTiled);
  *found = *address ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *address ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
