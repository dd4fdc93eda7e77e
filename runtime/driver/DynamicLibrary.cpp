//===- runtime/driver/DynamicLibrary.cpp - Libraries opened late ----------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/driver/DynamicLibrary.h"

#include "generator/Error.h"

#include <dlfcn.h>

#include <string>

using namespace lathe;

llvm::Expected<DynamicLibrary> DynamicLibrary::open(llvm::StringRef path) {
  // An empty name would open the program itself.
  if (path.empty()) return makeError(ErrorCode::MissingLibrary, "the path of the library to open is empty");
  if (void* handle = dlopen(path.str().c_str(), RTLD_NOW | RTLD_LOCAL)) return DynamicLibrary(handle);
  const char* reason = dlerror();
  return makeError(ErrorCode::MissingLibrary, "{0}", reason ? reason : "the loader gave no reason");
}

void* DynamicLibrary::find(llvm::StringRef name) const {
  return dlsym(handle_, name.str().c_str());
}
