//===- mma_sync/mainloop.cuh - Matrix product with mma.sync -----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Tensor cores of sm_80 and later. A ring of kStages stages is filled by cp.async; every operand tile is a set of
/// 128-byte panels `[panel][outer][128]` whose 16-byte vectors are permuted by `vector ^ (outer % 8)`, so that cp.async
/// writes and ldmatrix reads are free of bank conflicts. Each warp holds a kWarpM x kWarpN part of the tile; fragments
/// of the next 32-byte slice of K are read while the current slice is multiplied.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "common/operand.cuh"
#include "common/ptx.cuh"

namespace lathe::device {

/// One operand's share of a stage: kExtent entries along M or N and kBlockK along K.
template <class Config, Major kMajor, int kExtent, int kBytes> struct MmaOperandTile {
  using Element = typename Config::Element;
  static constexpr int kPanel = ElementTraits<Element>::kPanel;
  static constexpr int kPanels = kMajor == Major::K ? Config::kBlockK / kPanel : kExtent / kPanel;
  static constexpr int kOuter = kMajor == Major::K ? kExtent : Config::kBlockK;
  static constexpr int kStageBytes = kPanels * kOuter * 128;
  static constexpr int kCopiesPerRow = 128 / kBytes;
  static constexpr int kRowsPerPass = Config::kThreads / kCopiesPerRow;
  static constexpr int kPasses = kPanels * kOuter / kRowsPerPass;
  static_assert(kOuter % kRowsPerPass == 0, "a pass stays within a panel");

  __device__ __forceinline__ static u32 offset(int panel, int outer, int vector) {
    return u32((panel * kOuter + outer) * 128 + (vector ^ (outer % 8)) * 16);
  }

  const Operand<Element>& source;
  /// First entry along M or N, a multiple of kPanel when that is the inner index.
  int first;
  /// This thread's place in a pass.
  int row = int(threadIdx.x) / kCopiesPerRow;
  int copy = int(threadIdx.x) % kCopiesPerRow;

  /// Starts copying the stage whose first K is `step * kBlockK`.
  __device__ __forceinline__ void load(int step, u32 stage) const {
    const int outerBase = kMajor == Major::K ? first : step * Config::kBlockK;
    const int panelBase = kMajor == Major::K ? step * kPanels : first / kPanel;
    const int column = copy * (kBytes / int(sizeof(Element)));
    const Element* from = source.at(outerBase + row, panelBase) + column;
    // Unrolling all passes would cost the registers that the sums need.
#pragma unroll(kBytes == 16 ? 4 : 2)
    for (int pass = 0; pass < kPasses; ++pass) {
      const int panel = pass * kRowsPerPass / kOuter;
      const int outer = pass * kRowsPerPass % kOuter;
      const bool inBounds =
          outerBase + outer + row < source.outerBound && (panelBase + panel) * kPanel + column < source.innerBound;
      const Element* address = from + outer * source.outerStride + panel * source.panelStride;
      const int byte = copy * kBytes;
      const u32 to = stage + offset(panel, outer + row, byte / 16) + byte % 16;
      if constexpr (kBytes >= 4)
        copyAsync<kBytes>(to, address, inBounds);
      else
        copyElement(to, address, inBounds);
    }
  }

  /// For rows that are only 2-byte aligned, which cp.async cannot serve.
  __device__ __forceinline__ static void copyElement(u32 to, const Element* from, bool inBounds) {
    const u16 bits = inBounds ? *reinterpret_cast<const u16*>(from) : u16(0);
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(bits) : "memory");
  }

  /// Where this lane's 32-bit word of an MN-major fragment lies, for which there is no ldmatrix: entry
  /// `entry + 8 * entryHalf + lane / 4`, K `8 * slice + 4 * kHalf + lane % 4`; `entry` is a multiple of 16. This is
  /// offset() with the permutation taken apart, so that only two values depend on the lane and the rest are constants.
  __device__ __forceinline__ static u32 wordOffset(int entry, int entryHalf, int slice, int kHalf) {
    const int lane = int(threadIdx.x % 32);
    const int lanePart = (lane % 4) * 128 + (((lane / 16) ^ (lane % 4) ^ (entryHalf * 2)) * 16) + lane / 4 % 4 * 4;
    const int tilePart =
        (entry / kPanel * kOuter + slice * 8 + kHalf * 4) * 128 + ((entry % kPanel / 4) ^ (kHalf * 4)) * 16;
    return u32(tilePart + lanePart);
  }

  /// Fragment of 16 entries from `entry` on, and 32 bytes of K from slice `slice` on. `kEntriesFirst` orders the four
  /// 8 x 16-byte matrices as the A operand wants them (entries, then K); else as two B operands do (K, then entries).
  template <bool kEntriesFirst>
  __device__ __forceinline__ static void fragment(u32 (&out)[4], u32 stage, int entry, int slice) {
    const int lane = int(threadIdx.x % 32);
    const int matrix = lane / 8;
    const int entryHalf = kEntriesFirst ? matrix % 2 : matrix / 2;
    const int kHalf = kEntriesFirst ? matrix / 2 : matrix % 2;
    if constexpr (kMajor == Major::K) {
      const int vector = slice % 4 * 2 + kHalf;
      loadMatrices(out, stage + offset(slice / 4, entry + entryHalf * 8 + lane % 8, vector));
    } else if constexpr (sizeof(Element) == 2) {
      const int inner = entry + entryHalf * 8;
      loadMatricesTransposed(out,
                             stage + offset(inner / kPanel, slice * 16 + kHalf * 8 + lane % 8, inner % kPanel / 8));
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        out[i] =
            loadShared(stage + wordOffset(entry, kEntriesFirst ? i % 2 : i / 2, slice, kEntriesFirst ? i / 2 : i % 2));
    }
    if constexpr (sizeof(Element) == 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out[i] = roundToTf32(out[i]);
    }
  }
};

template <class Config, class A, class B> struct MmaSync {
  using Element = typename Config::Element;
  using TileA = MmaOperandTile<Config, A::kMajor, Config::kBlockM, A::kBytes>;
  using TileB = MmaOperandTile<Config, B::kMajor, Config::kBlockN, B::kBytes>;
  static constexpr int kWarpM = Config::kBlockM / Config::kWarpsM;
  static constexpr int kWarpN = Config::kBlockN / Config::kWarpsN;
  static constexpr int kFragmentsM = kWarpM / 16;
  static constexpr int kFragmentsN = kWarpN / 8;
  static constexpr int kSlices = Config::kBlockK * int(sizeof(Element)) / 32;
  static constexpr int kStageBytes = TileA::kStageBytes + TileB::kStageBytes;
  static_assert(kWarpM % 16 == 0 && kWarpN % 16 == 0, "a warp's part is made of whole fragments");

  struct Accumulators {
    static constexpr int kRows = 2 * kFragmentsM;
    static constexpr int kColumns = 2 * kFragmentsN;
    static constexpr int kLanesPerRow = 4;
    static constexpr int kColumnWarps = Config::kWarpsN;
    static constexpr int kTileRows = Config::kBlockM;
    static constexpr int kTileColumns = Config::kBlockN;
    static constexpr int kStagingBytes = kTileRows * kTileColumns * 4;
    static constexpr bool kFixedRegisters = false;

    float value[kFragmentsM][kFragmentsN][4];

    __device__ __forceinline__ static int warp() { return int(threadIdx.x / 32); }
    __device__ __forceinline__ static int firstRow() { return warp() / Config::kWarpsN * kWarpM; }
    __device__ __forceinline__ static int firstColumn() { return warp() % Config::kWarpsN * kWarpN; }

    __device__ __forceinline__ float& at(int i, int j) { return value[i / 2][j / 2][i % 2 * 2 + j % 2]; }
    __device__ __forceinline__ static int row(int i) {
      return firstRow() + i / 2 * 16 + i % 2 * 8 + int(threadIdx.x % 32 / 4);
    }
    __device__ __forceinline__ static constexpr int fixedColumn(int j) { return j / 2 * 8 + j % 2; }
    __device__ __forceinline__ static int laneColumn() { return firstColumn() + int(threadIdx.x % 4) * 2; }
    __device__ __forceinline__ static int column(int j) { return laneColumn() + fixedColumn(j); }
    __device__ __forceinline__ static int groupRow() { return 0; }
    __device__ __forceinline__ static int columnWarp() { return warp() % Config::kWarpsN; }
    __device__ __forceinline__ static bool leadsRow() { return threadIdx.x % 4 == 0; }
  };

  /// Walks the stages in shared memory.
  struct Ring {
    u32 first;
    u32 at = 0;

    __device__ __forceinline__ u32 stage() const { return first + at; }
    __device__ __forceinline__ void advance() {
      at = at + kStageBytes == Config::kStages * kStageBytes ? 0 : at + kStageBytes;
    }
  };

  /// What one warp multiplies in one slice of K.
  struct Fragments {
    u32 a[kFragmentsM][4];
    u32 b[kFragmentsN / 2][4];

    __device__ __forceinline__ void load(u32 stage, int slice) {
#pragma unroll
      for (int i = 0; i < kFragmentsM; ++i)
        TileA::template fragment<true>(a[i], stage, Accumulators::firstRow() + i * 16, slice);
#pragma unroll
      for (int j = 0; j < kFragmentsN / 2; ++j)
        TileB::template fragment<false>(b[j], stage + TileA::kStageBytes, Accumulators::firstColumn() + j * 16, slice);
    }

    __device__ __forceinline__ void multiply(Accumulators& sums) const {
#pragma unroll
      for (int i = 0; i < kFragmentsM; ++i)
#pragma unroll
        for (int j = 0; j < kFragmentsN; ++j) {
          const u32 pair[2] = {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]};
          multiplyAccumulate<Element>(sums.value[i][j], a[i], pair);
        }
    }
  };

  /// sums += A B over `steps` stages of depth kBlockK. Ends with the block synchronized and `shared` free.
  __device__ __forceinline__ static void run(Accumulators& sums, const Operand<Element>& a, int firstM,
                                             const Operand<Element>& b, int firstN, int steps, char* shared) {
    if (steps == 0) return;

    const TileA tileA{a, firstM};
    const TileB tileB{b, firstN};
    Ring written{sharedAddress(shared)};
    Ring read = written;
    const auto load = [&](int step) {
      if (step < steps) {
        tileA.load(step, written.stage());
        tileB.load(step, written.stage() + TileA::kStageBytes);
      }
      commitCopies();
      written.advance();
    };
    for (int step = 0; step < Config::kStages - 1; ++step) load(step);
    waitCopies<Config::kStages - 2>();
    __syncthreads();

    Fragments fragments[2];
    fragments[0].load(read.stage(), 0);
    for (int step = 0; step < steps; ++step) {
#pragma unroll
      for (int slice = 0; slice < kSlices; ++slice) {
        // Here only one set of fragments is alive, which leaves registers for the addresses of the copies.
        if (slice == 1) load(step + Config::kStages - 1);
        if (slice + 1 < kSlices) {
          fragments[(slice + 1) % 2].load(read.stage(), slice + 1);
        } else {
          read.advance();
          waitCopies<Config::kStages - 2>();
          __syncthreads();
          // Past the last step this reads a stage that holds nothing of use, and nobody uses it.
          fragments[0].load(read.stage(), 0);
        }
        fragments[slice % 2].multiply(sums);
      }
    }
    waitCopies<0>();
    __syncthreads();
  }
};

} // namespace lathe::device
