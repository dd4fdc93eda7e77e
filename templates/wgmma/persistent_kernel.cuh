//===- wgmma/persistent_kernel.cuh - A persistent, warp-specialised kernel --===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Tensor cores of sm_90a. One block per multiprocessor stays for the whole product. One thread of the producer
/// warpgroup keeps a ring of stages filled by TMA; two consumer warpgroups multiply, each 64 rows of the tile, straight
/// from shared memory, and finish their rows while the ring already fills for the next tile; TMA takes finished panels.
/// Blocks of a cluster work on neighbouring row tiles of the same column tile: each loads its share of B and multicasts
/// it to all.
///
/// Operand tiles are sets of 128-byte panels `[panel][outer][128]`, permuted by TMA's 128-byte swizzle, which is that
/// of the mma_sync family. wgmma reads K-major and MN-major tiles alike, so no operand is ever transposed in memory.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "common/group.cuh"
#include "common/math.cuh"
#include "common/operand.cuh"
#include "common/tile_order.cuh"
#include "wgmma/copy_out.cuh"
#include "wgmma/multiply.cuh"
#include "wgmma/pace.cuh"
#include "wgmma/ptx.cuh"

namespace lathe::device {

/// One operand's share of a stage: kExtent entries along M or N and kBlockK along K.
template <class Config, class Traits, int kExtent> struct WgmmaOperandTile {
  using Element = typename Config::Element;
  static constexpr bool kMnMajor = Traits::kMajor == Major::MN;
  static constexpr int kPanel = ElementTraits<Element>::kPanel;
  static constexpr int kPanels = kMnMajor ? kExtent / kPanel : Config::kBlockK / kPanel;
  static constexpr int kOuter = kMnMajor ? Config::kBlockK : kExtent;
  static constexpr int kPanelBytes = kOuter * 128;
  static constexpr int kBytes = kPanels * kPanelBytes;
  static_assert(Config::kBlockK == kPanel, "a stage is 128 bytes deep");

  /// Starts the copies of share `share` of `kShares` of the tile at entry `first` and depth `k`. `copy(offset, x, y)`
  /// copies the box of 128 bytes x outer rows at tensor coordinates (x, y) to `offset` within the tile.
  template <int kShares, class Copy>
  __device__ __forceinline__ static void load(const Operand<Element>& source, int first, int k, int share, Copy copy) {
    if constexpr (kMnMajor) {
#pragma unroll
      for (int i = 0; i < kPanels / kShares; ++i) {
        const int panel = share * (kPanels / kShares) + i;
        copyAt(source, panel * kPanelBytes, k, first / kPanel + panel, copy);
      }
    } else {
      constexpr int kRows = kOuter / kShares;
      copyAt(source, share * kRows * 128, first + share * kRows, k / kPanel, copy);
    }
  }

  /// Matrix descriptor of the tile at `address`: where the start, and the strides between groups of 8 rows and, in an
  /// MN-major tile, between panels are.
  __device__ __forceinline__ static u64 descriptor(u32 address) {
    constexpr u64 kSwizzle128 = u64(1) << 62;
    constexpr u64 kEightRows = u64(1024 / 16) << 32;
    constexpr u64 kNextPanel = u64(kMnMajor ? kPanelBytes / 16 : 1) << 16;
    return kSwizzle128 | kEightRows | kNextPanel | u64((address & 0x3ffff) >> 4);
  }
  /// What the descriptor grows by from one slice of 16 along K to the next.
  static constexpr u64 kSliceStep = (kMnMajor ? 16 * 128 : 32) / 16;

private:
  template <class Copy>
  __device__ __forceinline__ static void copyAt(const Operand<Element>& source, int offset, int outer, int panel,
                                                Copy copy) {
    outer += source.origin;
    if constexpr (Traits::kLayout == Layout::RowMajor)
      copy(offset, panel * kPanel, outer);
    else
      copy(offset, 0, int(panel * (source.panelStride / kPanel)) + outer);
  }
};

template <class Config, template <class> class StepTemplate> struct PersistentKernel {
  using Step = StepTemplate<Config>;
  using Element = typename Config::Element;
  using TileA = WgmmaOperandTile<Config, typename Step::A, Config::kBlockM>;
  using TileB = WgmmaOperandTile<Config, typename Step::B, Config::kBlockN>;
  static constexpr int kConsumers = Config::kBlockM / 64;
  static constexpr int kCluster = Config::kClusterM;
  static constexpr int kStageBytes = TileA::kBytes + TileB::kBytes;
  /// What a consumer warpgroup's epilogue stages.
  static constexpr int kEpilogueBytes = 64 * 64 * 4;
  static constexpr int kStagingOffset = Config::kStages * kStageBytes;
  static constexpr int kBarrierOffset = kStagingOffset + kConsumers * kEpilogueBytes;
  static constexpr int kProducerRegisters = 40;
  static constexpr int kConsumerRegisters = 232;
  static_assert(Config::kThreads == 128 * (kConsumers + 1), "one producer warpgroup");

  /// 64 rows of the tile, on one warpgroup.
  struct Accumulators {
    static constexpr int kRows = 2;
    static constexpr int kColumns = Config::kBlockN / 4;
    static constexpr int kLanesPerRow = 4;
    static constexpr int kColumnWarps = 1;
    static constexpr int kTileRows = 64;
    static constexpr int kTileColumns = Config::kBlockN;
    static constexpr int kStagingBytes = 64 * 64 * 4;
    static constexpr bool kFixedRegisters = true;

    float value[Config::kBlockN / 2];

    __device__ __forceinline__ float& at(int i, int j) { return value[j / 2 * 4 + i * 2 + j % 2]; }
    __device__ __forceinline__ static int row(int i) {
      return int(threadIdx.x % 128 / 32) * 16 + i * 8 + int(threadIdx.x % 32 / 4);
    }
    __device__ __forceinline__ static constexpr int fixedColumn(int j) { return j / 2 * 8 + j % 2; }
    __device__ __forceinline__ static int laneColumn() { return int(threadIdx.x % 4) * 2; }
    __device__ __forceinline__ static int column(int j) { return laneColumn() + fixedColumn(j); }
    __device__ __forceinline__ static int groupRow() { return int(threadIdx.x / 128) * 64; }
    __device__ __forceinline__ static int columnWarp() { return 0; }
    __device__ __forceinline__ static bool leadsRow() { return threadIdx.x % 4 == 0; }
  };

  /// Walks the stages; the parity tells one round from the next.
  struct Ring {
    u32 first;
    u32 barriers;
    int stage = 0;
    u32 parity = 0;

    __device__ __forceinline__ u32 data() const { return first + u32(stage) * kStageBytes; }
    __device__ __forceinline__ u32 full() const { return barriers + u32(stage) * 8; }
    __device__ __forceinline__ u32 empty() const { return barriers + u32(Config::kStages + stage) * 8; }
    __device__ __forceinline__ void advance() {
      if (++stage < Config::kStages) return;
      stage = 0;
      parity ^= 1;
    }
  };

  /// Calls `body(m, n, round)` for every tile of this block, in the order in which clusters take them: a tile each in
  /// every round.
  template <class Body> __device__ __forceinline__ static void forEachTile(const Step& step, u32 rank, Body body) {
    const int clustersM = ceilDiv(step.tilesM(), kCluster);
    const int tilesN = step.tilesN();
    const i64 count = i64(clustersM) * tilesN;
    int round = 0;
    for (i64 tile = blockIdx.x / kCluster; tile < count; tile += gridDim.x / kCluster, ++round) {
      const TileOrder order = TileOrder::grouped<Config::kGroupM>(tile, clustersM, tilesN);
      body(order.m * kCluster + int(rank), order.n, round);
    }
  }

  __device__ __forceinline__ static void produce(const Step& step, const typename Step::Arguments& arguments,
                                                 const TensorMaps& maps, Ring ring, u32 rank) {
    const int steps = ceilDiv(step.depth(), Config::kBlockK);
    const Operand<Element> a = step.a();
    const Operand<Element> b = step.b();
    Pace pace(*arguments.tables.state, i64(ceilDiv(step.tilesM(), kCluster)) * step.tilesN(), gridDim.x / kCluster,
              steps);
    forEachTile(step, rank, [&](int m, int n, int round) {
      pace.beginRound(round);
      // The producer has few registers.
#pragma unroll 1
      for (int k = 0; k < steps; ++k) {
        if (rank == 0) pace.keep(k);
        // Every other round goes through the depth backwards: it begins with what L2 still holds of the round before.
        const int depth = (round % 2 == 0 ? k : steps - 1 - k) * Config::kBlockK;
        waitBarrier(ring.empty(), ring.parity ^ 1);
        arriveExpecting(ring.full(), kStageBytes);
        TileA::template load<1>(a, step.firstA(m), depth, 0, [&](int offset, int x, int y) {
          copyBox(ring.data() + offset, maps.a, x, y, ring.full());
        });
        TileB::template load<kCluster>(b, step.firstB(n), depth, int(rank), [&](int offset, int x, int y) {
          const u32 to = ring.data() + TileA::kBytes + offset;
          if constexpr (kCluster == 1)
            copyBox(to, maps.b, x, y, ring.full());
          else
            copyBoxToAll(to, maps.b, x, y, ring.full(), u16((1 << kCluster) - 1));
        });
        ring.advance();
      }
    });
    if (rank == 0) pace.finish();
  }

  /// Tells the producers of the whole cluster that this warpgroup has read a stage.
  __device__ __forceinline__ static void release(u32 emptyBarrier) {
    if (threadIdx.x % 128 < kCluster) arriveAt(emptyBarrier, threadIdx.x % 128);
  }

  __device__ __forceinline__ static void multiplyStage(Accumulators& sums, u32 data, bool accumulate) {
    // Both layouts put the next 64 entries of A 64 rows of 128 bytes further.
    u64 a = TileA::descriptor(data + threadIdx.x / 128 * (64 * 128));
    u64 b = TileB::descriptor(data + TileA::kBytes);
    fenceWgmma();
#pragma unroll
    for (int slice = 0; slice < Config::kBlockK / 16; ++slice) {
      Wgmma<Element, Config::kBlockN, TileA::kMnMajor, TileB::kMnMajor>::run(sums.value, a, b, accumulate || slice > 0);
      a += TileA::kSliceStep;
      b += TileB::kSliceStep;
    }
    commitWgmma();
  }

  __device__ __forceinline__ static void consume(const Step& step, const TensorMaps& maps, Ring ring, u32 rank,
                                                 char* staging) {
    const int steps = ceilDiv(step.depth(), Config::kBlockK);
    const ThreadGroup<128> group{int(threadIdx.x % 128), 1 + int(threadIdx.x / 128)};
    const CopyOut out{maps.out};
    forEachTile(step, rank, [&](int m, int n, int) {
      Accumulators sums;
      // The first product can overwrite the sums, which saves setting them to zero.
      if (!Step::kBeginsAtZero || steps == 0) step.begin(sums, m, n);
      u32 previous = 0;
      for (int k = 0; k < steps; ++k) {
        waitBarrier(ring.full(), ring.parity);
        multiplyStage(sums, ring.data(), !Step::kBeginsAtZero || k > 0);
        if (k > 0) {
          waitWgmma<1>();
          release(previous);
        }
        previous = ring.empty();
        ring.advance();
      }
      waitWgmma<0>();
      if (steps > 0) release(previous);
      step.finish(sums, m, n, group, staging + threadIdx.x / 128 * kEpilogueBytes, out);
    });
    out.finish(group);
  }

  __device__ __forceinline__ static void run(const typename Step::Arguments& arguments, const TensorMaps& maps) {
    extern __shared__ __align__(1024) char shared[];
    const Ring ring{sharedAddress(shared), sharedAddress(shared) + kBarrierOffset};
    const u32 rank = kCluster > 1 ? clusterRank() : 0;
    if (threadIdx.x == 0) {
      prefetchMap(maps.a);
      prefetchMap(maps.b);
      prefetchMap(maps.out);
      for (Ring each = ring; each.parity == 0; each.advance()) {
        initBarrier(each.full(), 1);
        initBarrier(each.empty(), kConsumers * kCluster);
      }
      fenceBarrierInit();
    }
    syncCluster();

    const Step step(arguments);
    if (threadIdx.x / 128 == kConsumers) {
      giveUpRegisters<kProducerRegisters>();
      if (threadIdx.x % 128 == 0) produce(step, arguments, maps, ring, rank);
    } else {
      takeRegisters<kConsumerRegisters>();
      consume(step, maps, ring, rank, shared + kStagingOffset);
    }
    // No block may leave while others still multicast into it or arrive at its barriers.
    __syncwarp();
    syncCluster();
  }
};

template <class Config, template <class> class Step>
__device__ __forceinline__ void runPersistent(const typename Step<Config>::Arguments& arguments,
                                              const TensorMaps& maps) {
  PersistentKernel<Config, Step>::run(arguments, maps);
}

} // namespace lathe::device
