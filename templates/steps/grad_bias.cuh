//===- steps/grad_bias.cuh - Sum the partial bias gradients -----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "common/arguments.cuh"
#include "common/math.cuh"

namespace lathe::device {

/// One thread a vocabulary entry; partial sums are added in a fixed order.
template <class Config> __device__ void gradBias(const GradBiasArguments& arguments) {
  using Element = typename Config::Element;
  constexpr int kPanel = ElementTraits<Element>::kPanel;
  constexpr int kPaddedVocab = ceilDiv(Config::kVocab, kPanel) * kPanel;
  const i64 column = i64(blockIdx.x) * Config::kThreads + threadIdx.x;
  if (column >= Config::kVocab) return;
  float sum = 0.0f;
  for (int i = 0; i < arguments.partialCount; ++i) sum += arguments.biasPartials[i64(i) * kPaddedVocab + column];
  Element* out = static_cast<Element*>(arguments.gradBias) + column;
  if (arguments.accumulate != 0) sum += toFloat(*out);
  *out = fromFloat<Element>(sum);
}

} // namespace lathe::device
