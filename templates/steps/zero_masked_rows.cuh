//===- steps/zero_masked_rows.cuh - Zero gradients of masked tokens ---------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "common/arguments.cuh"
#include "common/memory.cuh"

namespace lathe::device {

/// Writes zeros to the input gradient of every masked token; one warp a token.
template <class Config> __device__ void zeroMaskedRows(const ZeroMaskedRowsArguments& arguments) {
  using Element = typename Config::Element;
  const int index = int(blockIdx.x * (Config::kThreads / 32) + threadIdx.x / 32);
  if (index >= arguments.tables.state->maskedTokens) return;
  const i64 token = arguments.tables.maskedToken[index];
  zeroRow<Element, Config::kHidden>(static_cast<Element*>(arguments.gradInput) + token * Config::kHidden,
                                    int(threadIdx.x % 32));
}

} // namespace lathe::device
