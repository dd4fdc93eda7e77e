//===- steps/grad_logits.cuh - Turn E into the gradient of the logits -------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// In place, over the panels of E: G = factor * (one-hot - E * exp(maximum - logsumexp)), times the derivative of the
/// soft cap and the logit scale, in fp32 and rounded once. Also the column sums that the bias gradient needs, and zeros
/// for the input gradient of masked tokens, which no product covers. A block takes one panel and kRowsPerBlock rows; a
/// thread takes 16 bytes of a row at a time.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "common/grad_scale.cuh"
#include "common/math.cuh"
#include "common/memory.cuh"
#include "common/rows.cuh"

namespace lathe::device {

/// Zeros the input gradient of the masked tokens in the slots of this launch, whose warps share them.
template <class Config> __device__ void zeroMaskedRows(const GradLogitsArguments& arguments) {
  using Element = typename Config::Element;
  constexpr int kWarps = Config::kThreads / 32;
  const auto maskedBefore = [&](int slot) { return i64(slot) * arguments.tokens - arguments.tables.slotStart[slot]; };
  const i64 end = maskedBefore(arguments.slots.end);
  const i64 warp = (i64(blockIdx.y) * gridDim.x + blockIdx.x) * kWarps + threadIdx.x / 32;
  const i64 warps = i64(gridDim.x) * gridDim.y * kWarps;
  for (i64 i = maskedBefore(arguments.slots.begin) + warp; i < end; i += warps)
    zeroRow<Element, Config::kHidden>(static_cast<Element*>(arguments.gradInput) +
                                          i64(arguments.tables.maskedToken[i]) * Config::kHidden,
                                      int(threadIdx.x % 32));
}

template <class Config> __device__ void gradLogits(const GradLogitsArguments& arguments) {
  using Element = typename Config::Element;
  using Traits = ElementTraits<Element>;
  constexpr int kThreads = Config::kThreads;
  constexpr int kCount = 16 / sizeof(Element);
  constexpr int kVectors = 8;
  constexpr int kLanes = kThreads / kVectors;
  constexpr int kRowsAtOnce = 4;
  constexpr int kPaddedVocab = ceilDiv(Config::kVocab, Traits::kPanel) * Traits::kPanel;

  if (arguments.gradInput != nullptr) zeroMaskedRows<Config>(arguments);

  const RowTables& tables = arguments.tables;
  const RowRange range(tables, arguments.slots);
  const GradScale<Element> gradScale(*tables.state, arguments.upstream);
  const int panel = int(blockIdx.x);
  const int vector = int(threadIdx.x % kVectors);
  const int lane = int(threadIdx.x / kVectors);
  const int firstColumn = panel * Traits::kPanel + vector * kCount;
  const int tile = panel * Traits::kPanel / Config::kLogitsBlockN;
  const int firstRow = int(blockIdx.y) * Config::kRowsPerBlock;
  const int lastRow = min(firstRow + Config::kRowsPerBlock, range.validCount());
  Vector16* data = static_cast<Vector16*>(arguments.panels.data) + i64(panel) * arguments.panels.rows * kVectors;

  float columnSum[kCount] = {};
  // Loads of several rows are under way before the first is used.
  for (int first = firstRow + lane; first < lastRow; first += kLanes * kRowsAtOnce) {
    Vector16 loaded[kRowsAtOnce];
    float maximum[kRowsAtOnce];
    float rowLogsumexp[kRowsAtOnce];
    int target[kRowsAtOnce];
    int token[kRowsAtOnce];
#pragma unroll
    for (int k = 0; k < kRowsAtOnce; ++k) {
      const int local = min(first + k * kLanes, lastRow - 1);
      loaded[k] = data[i64(local) * kVectors + vector];
      maximum[k] = arguments.partials.maximum[tile * arguments.partials.pitch + local];
      rowLogsumexp[k] = arguments.rowLogsumexp[range.begin + local];
      target[k] = tables.rowTarget[range.begin + local];
      token[k] = tables.rowToken[range.begin + local];
    }
#pragma unroll
    for (int k = 0; k < kRowsAtOnce; ++k) {
      const int local = first + k * kLanes;
      if (local >= lastRow) break;
      const int slot = slotOfSequence(token[k] / arguments.tokens, arguments.sequences);
      const float factor = arguments.slotCoefficient[slot] * gradScale.factor;
      const float scale = exp2Fast(maximum[k] - rowLogsumexp[k]) / Traits::kExponentialScale;
      Unpacked<Element> values(loaded[k]);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const bool isTarget = firstColumn + i == target[k];
        const float exponential = values.value[i];
        float gradient = factor * ((isTarget ? 1.0f : 0.0f) - exponential * scale);
        if constexpr (Config::kSoftcap) {
          const float capped =
              isTarget ? arguments.targetLogit[range.begin + local]
                       : kLn2 * (maximum[k] + log2f(fmaxf(exponential / Traits::kExponentialScale, 1e-30f)));
          const float ratio = capped / arguments.softcap;
          gradient *= fmaxf(1.0f - ratio * ratio, 0.0f);
        }
        if constexpr (Config::kLogitScale) gradient *= arguments.logitScale;
        values.value[i] = gradient;
        if constexpr (Config::kGradBias) columnSum[i] += gradient;
      }
      data[i64(local) * kVectors + vector] = values.packed();
    }
  }

  // Rows behind the last, up to a multiple of kRowPadding: products that sum over rows may read them.
  const int padded = min(firstRow + Config::kRowsPerBlock, ceilDiv(range.validCount(), kRowPadding) * kRowPadding);
  for (int local = max(firstRow, lastRow) + lane; local < padded; local += kLanes)
    data[i64(local) * kVectors + vector] = Vector16{};

  if constexpr (Config::kGradBias) {
    __shared__ float sums[kLanes][kVectors * kCount + 1];
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums[lane][vector * kCount + i] = columnSum[i];
    __syncthreads();
    if (threadIdx.x >= Traits::kPanel) return;
    float sum = 0.0f;
    for (int i = 0; i < kLanes; ++i) sum += sums[i][threadIdx.x];
    arguments.biasPartials[i64(blockIdx.y) * kPaddedVocab + panel * Traits::kPanel + int(threadIdx.x)] =
        sum * gradScale.inverse;
  }
}

} // namespace lathe::device
