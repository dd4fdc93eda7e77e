//===- steps/grad_weight.cuh - Gradient of the weight -----------------------===//
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

/// G transposed times the gathered rows, in the gradient's own type; overwrites or accumulates.
template <class Config> struct GradWeightStep {
  using Arguments = GradWeightArguments;
  using Element = typename Config::Element;
  using Output = typename Config::GradWeightElement;
  using A = OperandTraits<Major::MN, Layout::Panels, 16>;
  using B = OperandTraits<Major::MN, Layout::RowMajor, 16>;

  const Arguments& arguments;
  RowRange range;

  __device__ __forceinline__ explicit GradWeightStep(const Arguments& arguments)
      : arguments(arguments), range(arguments.tables, arguments.slots) {}

  __device__ __forceinline__ int tilesM() const { return ceilDiv(Config::kVocab, Config::kBlockM); }
  __device__ __forceinline__ int tilesN() const { return ceilDiv(Config::kHidden, Config::kBlockN); }
  __device__ __forceinline__ int depth() const { return range.validCount(); }

  __device__ __forceinline__ Operand<Element> a() const {
    return panels<Element>(arguments.panels, range.validCount(), Config::kPaddedVocab);
  }
  __device__ __forceinline__ int firstA(int m) const { return m * Config::kBlockM; }
  __device__ __forceinline__ Operand<Element> b() const {
    return rowMajor<Element>(arguments.rows, Config::kPitch, range.validCount(), Config::kPitch, range.begin);
  }
  __device__ __forceinline__ int firstB(int n) const { return n * Config::kBlockN; }

  static constexpr bool kBeginsAtZero = true;
  template <class Accumulators> __device__ __forceinline__ void begin(Accumulators& sums, int, int) const {
    setToZero(sums);
  }

  template <class Accumulators, class Group, class Out>
  __device__ __forceinline__ void finish(Accumulators& sums, int m, int n, const Group& group, char* shared,
                                         const Out& out) const {
    const int firstEntry = m * Config::kBlockM + Accumulators::groupRow();
    const int firstColumn = n * Config::kBlockN;
    const bool accumulate = arguments.accumulate != 0;
    const float scale = GradScale<Element>(*arguments.tables.state, arguments.upstream).inverse;
    const auto scaled = [&](int i, int j) { return sums.at(i, j) * scale; };
    if constexpr (Out::kCopies) {
      out.template store<Output, Accumulators>(group, shared, true, accumulate, scaled, [&](int panel) {
        return TensorPlace{firstColumn + panel * ElementTraits<Output>::kPanel, firstEntry};
      });
      return;
    }
    const auto rowOf = [&](int row) {
      return static_cast<Output*>(arguments.gradWeight) + i64(firstEntry + row) * Config::kHidden;
    };
    if (accumulate) {
      storeThroughShared<float, Accumulators>(group, shared, scaled, [&](int row, int column, const Vector16& value) {
        if (firstEntry + row < Config::kVocab)
          addSums<Output, Config::kHidden>(rowOf(row), firstColumn + column, value);
      });
    } else {
      storeThroughShared<Output, Accumulators>(group, shared, scaled, [&](int row, int column, const Vector16& value) {
        if (firstEntry + row < Config::kVocab)
          storeVector<Output, Config::kHidden>(rowOf(row), firstColumn + column, value);
      });
    }
  }
};

} // namespace lathe::device
