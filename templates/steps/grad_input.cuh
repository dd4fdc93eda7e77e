//===- steps/grad_input.cuh - Gradient of the input -------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "common/grad_scale.cuh"
#include "common/math.cuh"
#include "common/operand.cuh"
#include "common/output_tile.cuh"
#include "common/rows.cuh"

namespace lathe::device {

/// G times weight, each row written to the token it was gathered from.
template <class Config> struct GradInputStep {
  using Arguments = GradInputArguments;
  using Element = typename Config::Element;
  using A = OperandTraits<Major::K, Layout::Panels, 16>;
  using B = OperandTraits<Major::MN, Layout::RowMajor, rowAccessBytes<Element, Config::kHidden>()>;

  const Arguments& arguments;
  RowRange range;

  __device__ __forceinline__ explicit GradInputStep(const Arguments& arguments)
      : arguments(arguments), range(arguments.tables, arguments.slots) {}

  __device__ __forceinline__ int tilesM() const { return ceilDiv(range.validCount(), Config::kBlockM); }
  __device__ __forceinline__ int tilesN() const { return ceilDiv(Config::kHidden, Config::kBlockN); }
  __device__ __forceinline__ int depth() const { return Config::kVocab; }

  __device__ __forceinline__ Operand<Element> a() const {
    return panels<Element>(arguments.panels, range.validCount(), Config::kPaddedVocab);
  }
  __device__ __forceinline__ int firstA(int m) const { return m * Config::kBlockM; }
  __device__ __forceinline__ Operand<Element> b() const {
    return rowMajor<Element>(arguments.weight, Config::kHidden, Config::kVocab, Config::kHidden);
  }
  __device__ __forceinline__ int firstB(int n) const { return n * Config::kBlockN; }

  static constexpr bool kBeginsAtZero = true;
  template <class Accumulators> __device__ __forceinline__ void begin(Accumulators& sums, int, int) const {
    setToZero(sums);
  }

  /// Rows go to scattered places, so no whole tile can be copied.
  template <class Accumulators, class Group, class Out>
  __device__ __forceinline__ void finish(Accumulators& sums, int m, int n, const Group& group, char* shared,
                                         const Out&) const {
    const int firstLocal = m * Config::kBlockM + Accumulators::groupRow();
    const float scale = GradScale<Element>(*arguments.tables.state, arguments.upstream).inverse;
    storeThroughShared<Element, Accumulators>(
        group, shared, [&](int i, int j) { return sums.at(i, j) * scale; },
        [&](int row, int column, const Vector16& value) {
          if (firstLocal + row >= range.validCount()) return;
          const i64 token = arguments.tables.rowToken[range.begin + firstLocal + row];
          storeVector<Element, Config::kHidden>(static_cast<Element*>(arguments.gradInput) + token * Config::kHidden,
                                                n * Config::kBlockN + column, value);
        });
  }
};

} // namespace lathe::device
