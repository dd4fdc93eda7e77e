//===- runtime/api/RuntimeOptions.cpp - Options of the C++ API --------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/api/RuntimeOptions.h"

using namespace lathe;

Environment lathe::withOptions(Environment environment, const RuntimeOptions& options) {
  if (options.cacheDir) environment.cacheDir = *options.cacheDir;
  if (options.readOnlyCaches) environment.cachePath = *options.readOnlyCaches;
  if (options.nvrtcPath) environment.nvrtcPath = *options.nvrtcPath;
  if (options.compileThreads) environment.compileThreads = options.compileThreads;
  return environment;
}

PlanRequest lathe::requestOf(const PlanOptions& options) {
  PlanRequest request;
  request.workspaceLimit = options.workspaceLimit;
  request.chunkPairs = options.chunkPairs;
  if (options.chunkPairs) request.strategy = Strategy::Chunked;
  return request;
}
