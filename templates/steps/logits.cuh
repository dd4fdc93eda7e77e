//===- steps/logits.cuh - Logits, reduced tile by tile ----------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Rows times weight transposed. The logits never reach memory: the epilogue works on the fp32 accumulators and keeps,
/// for every row and column tile, the maximum, the sum of exponentials and the sum of the logits; the target's logit;
/// and, when gradients are wanted, E = exp(z - maximum), rounded once.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "common/math.cuh"
#include "common/operand.cuh"
#include "common/output_tile.cuh"
#include "common/rows.cuh"
#include "common/tail.cuh"
#include "steps/logsumexp.cuh"

namespace lathe::device {

/// The epilogue for one group's tile at rows `firstRow`.. and columns `firstColumn`...
template <class Config, class Accumulators, class Group, class Out> struct LogitsEpilogue {
  using Element = typename Config::Element;
  static constexpr int kRows = Accumulators::kRows;
  static constexpr int kColumns = Accumulators::kColumns;
  static constexpr int kColumnWarps = Accumulators::kColumnWarps;
  /// Shared memory: the staged tile, then three values for each row and column warp.
  static constexpr int kReductionOffset =
      Accumulators::kTileRows * stagedColumns<Element, Accumulators>() * int(sizeof(Element));
  using RowValues = float[kColumnWarps][Accumulators::kTileRows];

  const LogitsArguments& arguments;
  /// Rows times weight, plus bias; then the logits, unless the sums have fixed registers.
  Accumulators& z;
  const RowRange& range;
  const Group& group;
  int firstRow;
  int firstColumn;
  char* shared;
  const Out& out;

  __device__ __forceinline__ RowValues& rowValues(int which) const {
    return reinterpret_cast<RowValues*>(shared + kReductionOffset)[which];
  }

  /// The scalars that turn a product into a logit. Every phase of the epilogue reads its own, so that the compiler does
  /// not carry logits from one to the next where they would need registers beside the sums.
  struct Scalars {
    float scale;
    float cap;

    __device__ __forceinline__ explicit Scalars(const LogitsArguments& arguments)
        : scale(opaque(arguments.logitScale)), cap(opaque(arguments.softcap)) {}
  };

  /// Logit (i, j) of this thread, minus infinity past the end of the vocabulary.
  __device__ __forceinline__ float logit(int i, int j, const Scalars& scalars) const {
    float value = z.at(i, j);
    if constexpr (Config::kLogitScale) value *= scalars.scale;
    if constexpr (Config::kSoftcap) value = softCap(value, scalars.cap);
    const bool exists =
        Config::kVocab % Config::kBlockN == 0 || z.fixedColumn(j) < Config::kVocab - firstColumn - z.laneColumn();
    return exists ? value : negativeInfinity();
  }

  /// Notes maximum and sum of the logits of each row, and the target's logit.
  __device__ __forceinline__ void reduceLogits() const {
    const Scalars scalars(arguments);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = firstRow + z.row(i);
      // Relative to the lane's columns, so that every comparison below is with a constant.
      const int target = (row < range.validEnd ? arguments.tables.rowTarget[row] : -1) - firstColumn - z.laneColumn();
      float maximum = ScaledSum::kLowest;
      float logitSum = 0.0f;
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const float value = logit(i, j, scalars);
        if constexpr (!Accumulators::kFixedRegisters) z.at(i, j) = value;
        if (z.fixedColumn(j) == target) arguments.targetLogit[row] = value;
        if constexpr (Config::kLogitMeans) logitSum += value > negativeInfinity() ? value : 0.0f;
        maximum = fmaxf(maximum, value);
      }
      maximum = reduceLanes<Accumulators::kLanesPerRow>(maximum, Maximum());
      if constexpr (Config::kLogitMeans) logitSum = reduceLanes<Accumulators::kLanesPerRow>(logitSum, Sum());
      if (z.leadsRow()) {
        rowValues(0)[z.columnWarp()][z.row(i)] = maximum;
        rowValues(1)[z.columnWarp()][z.row(i)] = logitSum;
      }
    }
  }

  __device__ __forceinline__ float tileMaximum(int row) const {
    float maximum = rowValues(0)[0][row];
#pragma unroll
    for (int warp = 1; warp < kColumnWarps; ++warp) maximum = fmaxf(maximum, rowValues(0)[warp][row]);
    return maximum;
  }

  /// Exponentials relative to the tile's maximum: summed in fp32 and, with `stored`, kept rounded.
  __device__ __forceinline__ void makeExponentials(bool stored) const {
    const Scalars scalars(arguments);
    float maximum[kRows];
    float sum[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      maximum[i] = tileMaximum(z.row(i));
      sum[i] = 0.0f;
    }
    const auto exponential = [&](int i, int j) {
      const float logit = Accumulators::kFixedRegisters ? this->logit(i, j, scalars) : z.at(i, j);
      const float value = fastExp(logit - maximum[i]);
      sum[i] += value;
      return value * ElementTraits<Element>::kExponentialScale;
    };
    if (!stored) {
#pragma unroll
      for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int j = 0; j < kColumns; ++j) exponential(i, j);
    } else if constexpr (Out::kCopies) {
      copyExponentials(exponential);
    } else {
      storeThroughShared<Element, Accumulators>(
          group, shared, exponential,
          [&](int row, int column, const Vector16& value) { storeExponentials(row, column, value); });
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      sum[i] = reduceLanes<Accumulators::kLanesPerRow>(sum[i], Sum());
      if (z.leadsRow()) rowValues(2)[z.columnWarp()][z.row(i)] = sum[i];
    }
  }

  /// The panels have room for the whole tile where its first row is valid.
  template <class Exponential> __device__ __forceinline__ void copyExponentials(const Exponential& exponential) const {
    const int firstPanel = firstColumn / ElementTraits<Element>::kPanel;
    out.template store<Element, Accumulators>(
        group, shared, firstRow < range.validEnd, false, exponential, [&](int panel) {
          return TensorPlace{0, int((firstPanel + panel) * arguments.exponentials.rows) + firstRow - range.begin};
        });
  }

  __device__ __forceinline__ void storeExponentials(int row, int column, const Vector16& value) const {
    constexpr int kPanel = ElementTraits<Element>::kPanel;
    constexpr int kVector = 16 / sizeof(Element);
    const Panels& panels = arguments.exponentials;
    const int v = firstColumn + column;
    if (firstRow + row >= range.validEnd || v >= Config::kPaddedVocab) return;
    Vector16* data = static_cast<Vector16*>(panels.data);
    data[(v / kPanel * panels.rows + firstRow - range.begin + row) * 8 + v % kPanel / kVector] = value;
  }

  __device__ __forceinline__ void storePartials() const {
    for (int row = group.index; row < Accumulators::kTileRows; row += Group::kThreads) {
      if (firstRow + row >= range.end) break;
      float sum = 0.0f;
      float logitSum = 0.0f;
#pragma unroll
      for (int warp = 0; warp < kColumnWarps; ++warp) {
        sum += rowValues(2)[warp][row];
        logitSum += rowValues(1)[warp][row];
      }
      const TilePartials& partials = arguments.partials;
      const i64 at = firstColumn / Config::kBlockN * partials.pitch + firstRow - range.begin + row;
      partials.maximum[at] = tileMaximum(row);
      partials.sum[at] = sum;
      if constexpr (Config::kLogitMeans) partials.logitSum[at] = logitSum;
    }
  }

  __device__ __forceinline__ void run() const {
    reduceLogits();
    group.sync();
    makeExponentials(Config::kStoreExponentials && arguments.exponentials.data != nullptr);
    group.sync();
    storePartials();
    // The row values may now be overwritten by the next tile.
    group.sync();
  }
};

template <class Config> struct LogitsStep {
  using Arguments = LogitsArguments;
  using Element = typename Config::Element;
  using A = OperandTraits<Major::K, Layout::RowMajor, 16>;
  using B = OperandTraits<Major::K, Layout::RowMajor, rowAccessBytes<Element, Config::kHidden>()>;

  static constexpr L2Hint kHintA = L2Hint::EvictLast;
  static constexpr L2Hint kHintB = L2Hint::EvictFirst;

  const Arguments& arguments;
  RowRange range;

  __device__ __forceinline__ explicit LogitsStep(const Arguments& arguments)
      : arguments(arguments), range(arguments.tables, arguments.slots) {}

  __device__ __forceinline__ int tilesM() const { return ceilDiv(range.count(), Config::kBlockM); }
  __device__ __forceinline__ int tilesN() const { return ceilDiv(Config::kVocab, Config::kBlockN); }
  __device__ __forceinline__ int depth() const { return Config::kHidden; }

  __device__ __forceinline__ Operand<Element> a() const {
    return rowMajor<Element>(arguments.rows, Config::kPitch, range.end, Config::kHidden);
  }
  __device__ __forceinline__ int firstA(int m) const { return range.begin + m * Config::kBlockM; }
  __device__ __forceinline__ Operand<Element> b() const {
    return rowMajor<Element>(arguments.weight, Config::kHidden, Config::kVocab, Config::kHidden);
  }
  __device__ __forceinline__ int firstB(int n) const { return n * Config::kBlockN; }

  static constexpr bool kBeginsAtZero = !Config::kBias;
  /// The sums begin at the bias; those of the low halves of means, which are added to others, at zero.
  template <class Accumulators> __device__ __forceinline__ void begin(Accumulators& sums, int m, int n) const {
    setToZero(sums);
    if constexpr (Config::kBias) {
      const int firstRow = firstA(m) + Accumulators::groupRow();
#pragma unroll
      for (int j = 0; j < Accumulators::kColumns; ++j) {
        const int column = n * Config::kBlockN + Accumulators::column(j);
        if (column >= Config::kVocab) continue;
        const float bias = toFloat(static_cast<const Element*>(arguments.bias)[column]);
#pragma unroll
        for (int i = 0; i < Accumulators::kRows; ++i) {
          const int tail = firstRow + Accumulators::row(i) - range.validEnd;
          if (Config::kSoftcap || tail < 0 || !isLowHalf(tail)) sums.at(i, j) = bias;
        }
      }
    }
  }

  template <class Accumulators, class Group, class Out>
  __device__ __forceinline__ void finish(Accumulators& sums, int m, int n, const Group& group, char* shared,
                                         const Out& out) const {
    LogitsEpilogue<Config, Accumulators, Group, Out>{
        arguments, sums, range, group, firstA(m) + Accumulators::groupRow(), n * Config::kBlockN, shared, out}
        .run();
  }
};

} // namespace lathe::device
