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
  static constexpr bool kWholeTiles = Config::kVocab % Config::kBlockN == 0;
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

  /// Whether the logits replace the products. Not under a soft cap where sums have fixed registers: there the registers
  /// beside them do not suffice, and every phase of the epilogue makes the logits anew.
  static constexpr bool kInPlace = !(Accumulators::kFixedRegisters && Config::kSoftcap);

  /// The scalars that turn a product into a logit. Every phase reads its own, so that the compiler does not carry
  /// logits from one to the next.
  struct Scalars {
    float scale;
    float cap;

    __device__ __forceinline__ explicit Scalars(const LogitsArguments& arguments)
        : scale(opaque(arguments.logitScale)), cap(opaque(arguments.softcap)) {}
  };

  /// Logit (i, j) of this thread, minus infinity past the end of the vocabulary.
  __device__ __forceinline__ float makeLogit(int i, int j, const Scalars& scalars) const {
    float value = z.at(i, j);
    if constexpr (Config::kLogitScale) value *= scalars.scale;
    if constexpr (Config::kSoftcap) value = softCap(value, scalars.cap);
    const bool exists = kWholeTiles || z.fixedColumn(j) < Config::kVocab - firstColumn - z.laneColumn();
    return exists ? value : negativeInfinity();
  }
  /// The same once reduceLogits has been called.
  __device__ __forceinline__ float logit(int i, int j, const Scalars& scalars) const {
    return kInPlace ? z.at(i, j) : makeLogit(i, j, scalars);
  }

  /// Combines what the column warps of the group have found for their parts of a row.
  template <class Combine>
  __device__ __forceinline__ void combineWarps(float (&value)[kRows], int which, Combine combine) const {
    if constexpr (kColumnWarps > 1) {
      RowValues& values = reinterpret_cast<RowValues*>(shared + kReductionOffset)[which];
#pragma unroll
      for (int i = 0; i < kRows; ++i)
        if (z.leadsRow()) values[z.columnWarp()][z.row(i)] = value[i];
      group.sync();
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        value[i] = values[0][z.row(i)];
#pragma unroll
        for (int warp = 1; warp < kColumnWarps; ++warp) value[i] = combine(value[i], values[warp][z.row(i)]);
      }
    }
  }

  /// The maximum, times log2(e), and the sum of the logits of each row.
  __device__ __forceinline__ void reduceLogits(float (&maximum)[kRows], float (&logitSum)[kRows]) const {
    const Scalars scalars(arguments);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      maximum[i] = ScaledSum::kLowest;
      logitSum[i] = 0.0f;
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const float value = makeLogit(i, j, scalars);
        if constexpr (kInPlace) z.at(i, j) = value;
        if constexpr (Config::kLogitMeans) logitSum[i] += kWholeTiles || value > negativeInfinity() ? value : 0.0f;
        maximum[i] = fmaxf(maximum[i], value);
      }
      maximum[i] = reduceLanes<Accumulators::kLanesPerRow>(maximum[i], Maximum());
      if constexpr (Config::kLogitMeans) logitSum[i] = reduceLanes<Accumulators::kLanesPerRow>(logitSum[i], Sum());
    }
    combineWarps(maximum, 0, Maximum());
    if constexpr (Config::kLogitMeans) combineWarps(logitSum, 1, Sum());
#pragma unroll
    for (float& value : maximum) value = fmaxf(value * kLog2E, ScaledSum::kLowest);
  }

  /// Exponentials relative to the tile's maximum: summed in fp32 and, with `stored`, kept rounded.
  __device__ __forceinline__ void makeExponentials(bool stored, const float (&maximum)[kRows],
                                                   float (&sum)[kRows]) const {
    const Scalars scalars(arguments);
#pragma unroll
    for (float& value : sum) value = 0.0f;
    const auto exponential = [&](int i, int j) {
      const float value = exp2Fast(fmaf(logit(i, j, scalars), kLog2E, -maximum[i]));
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
    for (float& value : sum) value = reduceLanes<Accumulators::kLanesPerRow>(value, Sum());
    combineWarps(sum, 2, Sum());
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

  __device__ __forceinline__ int targetOf(int row) const {
    return row < range.validEnd ? arguments.tables.rowTarget[row] : -1;
  }

  /// Notes the logit of target `target[i]` of row i. Few tiles hold a target, so most warps have nothing to search.
  __device__ __forceinline__ void noteTargets(const int (&target)[kRows]) const {
    const Scalars scalars(arguments);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int column = target[i] - firstColumn;
      if (!__any_sync(0xffffffffu, column >= 0 && column < Config::kBlockN)) continue;
#pragma unroll
      for (int j = 0; j < kColumns; ++j)
        if (z.fixedColumn(j) == column - z.laneColumn())
          arguments.targetLogit[firstRow + z.row(i)] = logit(i, j, scalars);
    }
  }

  __device__ __forceinline__ void storePartials(const float (&maximum)[kRows], const float (&sum)[kRows],
                                                const float (&logitSum)[kRows]) const {
    const TilePartials& partials = arguments.partials;
    const i64 first = firstColumn / Config::kBlockN * partials.pitch + firstRow - range.begin;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = z.row(i);
      if (!z.leadsRow() || z.columnWarp() != 0 || firstRow + row >= range.end) continue;
      partials.maximum[first + row] = maximum[i];
      partials.sum[first + row] = sum[i];
      if constexpr (Config::kLogitMeans) partials.logitSum[first + row] = logitSum[i];
    }
  }

  __device__ __forceinline__ void run() const {
    int target[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) target[i] = targetOf(firstRow + z.row(i));
    float maximum[kRows];
    float logitSum[kRows];
    float sum[kRows];
    reduceLogits(maximum, logitSum);
    makeExponentials(Config::kStoreExponentials && arguments.exponentials.data != nullptr, maximum, sum);
    noteTargets(target);
    storePartials(maximum, sum, logitSum);
  }
};

template <class Config> struct LogitsStep {
  using Arguments = LogitsArguments;
  using Element = typename Config::Element;
  using A = OperandTraits<Major::K, Layout::RowMajor, 16>;
  using B = OperandTraits<Major::K, Layout::RowMajor, rowAccessBytes<Element, Config::kHidden>()>;

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

  /// Where the epilogue changes sums in place, the compiler keeps them in their registers only if `begin` has set them.
  static constexpr bool kBeginsAtZero = !Config::kBias && !Config::kLogitScale && Config::kVocab % Config::kBlockN == 0;
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
