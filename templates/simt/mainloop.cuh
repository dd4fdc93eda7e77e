//===- simt/mainloop.cuh - Matrix product on the FMA units ------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// The path that always works: fp32 arithmetic for any element type, shape and alignment, on any GPU. 256 threads in a
/// 16 x 16 arrangement; two stages of shared memory in fp32, both operands K-outermost; the next stage is fetched into
/// registers while the current one is multiplied.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "common/operand.cuh"

namespace lathe::device {

template <class Config, class A, class B> struct Simt {
  using Element = typename Config::Element;
  static constexpr int kPanel = ElementTraits<Element>::kPanel;
  static constexpr int kSide = 16;
  static constexpr int kDepth = Config::kBlockK;
  static_assert(Config::kThreads == kSide * kSide, "threads form a square");

  struct Accumulators {
    static constexpr int kRows = Config::kBlockM / kSide;
    static constexpr int kColumns = Config::kBlockN / kSide;
    static constexpr int kLanesPerRow = kSide;
    static constexpr int kColumnWarps = 1;
    static constexpr int kTileRows = Config::kBlockM;
    static constexpr int kTileColumns = Config::kBlockN;
    static constexpr int kStagingBytes = kTileRows * kTileColumns * 4;
    static constexpr bool kFixedRegisters = false;

    float value[kRows][kColumns];

    __device__ __forceinline__ float& at(int i, int j) { return value[i][j]; }
    __device__ __forceinline__ static int row(int i) {
      return i / 4 * (kSide * 4) + int(threadIdx.x / kSide) * 4 + i % 4;
    }
    __device__ __forceinline__ static constexpr int fixedColumn(int j) { return j / 4 * (kSide * 4) + j % 4; }
    __device__ __forceinline__ static int laneColumn() { return int(threadIdx.x % kSide) * 4; }
    __device__ __forceinline__ static int column(int j) { return laneColumn() + fixedColumn(j); }
    __device__ __forceinline__ static int groupRow() { return 0; }
    __device__ __forceinline__ static int columnWarp() { return 0; }
    __device__ __forceinline__ static bool leadsRow() { return threadIdx.x % kSide == 0; }
  };

  /// One operand's share of a stage: kExtent entries along M or N, kDepth along K, in shared memory `[k][kPitch]`.
  template <Major kMajor, int kExtent> struct Loader {
    static constexpr int kPitch = kExtent + 4;
    static constexpr int kPerThread = kExtent * kDepth / Config::kThreads;
    static_assert(kExtent * kDepth % Config::kThreads == 0, "threads share the tile evenly");

    const Operand<Element>& source;
    int first;
    float value[kPerThread];

    /// Neighbouring threads read along the operand's rows.
    __device__ __forceinline__ static int along(int i) {
      const int index = int(threadIdx.x) + i * Config::kThreads;
      return kMajor == Major::K ? index / kDepth : index % kExtent;
    }
    __device__ __forceinline__ static int depth(int i) {
      const int index = int(threadIdx.x) + i * Config::kThreads;
      return kMajor == Major::K ? index % kDepth : index / kExtent;
    }

    __device__ __forceinline__ void fetch(int firstK) {
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) {
        const int entry = first + along(i);
        const int k = firstK + depth(i);
        const int outer = kMajor == Major::K ? entry : k;
        const int inner = kMajor == Major::K ? k : entry;
        const bool inBounds = outer < source.outerBound && inner < source.innerBound;
        value[i] = inBounds ? toFloat(source.at(outer, inner / kPanel)[inner % kPanel]) : 0.0f;
      }
    }
    __device__ __forceinline__ void store(float* stage) const {
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) stage[depth(i) * kPitch + along(i)] = value[i];
    }
  };
  using LoaderA = Loader<A::kMajor, Config::kBlockM>;
  using LoaderB = Loader<B::kMajor, Config::kBlockN>;

  /// The entries of one depth that this thread multiplies.
  template <int kCount>
  __device__ __forceinline__ static void readRow(float (&out)[kCount], const float* row, int lane) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(row + i * kSide + lane * 4);
      out[i] = four.x;
      out[i + 1] = four.y;
      out[i + 2] = four.z;
      out[i + 3] = four.w;
    }
  }

  __device__ __forceinline__ static void multiply(Accumulators& sums, const float* stageA, const float* stageB) {
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      float a[Accumulators::kRows];
      float b[Accumulators::kColumns];
      readRow(a, stageA + k * LoaderA::kPitch, int(threadIdx.x / kSide));
      readRow(b, stageB + k * LoaderB::kPitch, int(threadIdx.x % kSide));
#pragma unroll
      for (int i = 0; i < Accumulators::kRows; ++i)
#pragma unroll
        for (int j = 0; j < Accumulators::kColumns; ++j) sums.value[i][j] = fmaf(a[i], b[j], sums.value[i][j]);
    }
  }

  /// sums += A B over `steps` stages of depth kBlockK. Ends with the block synchronized and `shared` free.
  __device__ static void run(Accumulators& sums, const Operand<Element>& a, int firstM, const Operand<Element>& b,
                             int firstN, int steps, char* shared) {
    float* stageA = reinterpret_cast<float*>(shared);
    float* stageB = stageA + 2 * kDepth * LoaderA::kPitch;
    LoaderA loaderA{a, firstM};
    LoaderB loaderB{b, firstN};
    loaderA.fetch(0);
    loaderB.fetch(0);
    for (int step = 0; step < steps; ++step) {
      float* currentA = stageA + step % 2 * kDepth * LoaderA::kPitch;
      float* currentB = stageB + step % 2 * kDepth * LoaderB::kPitch;
      loaderA.store(currentA);
      loaderB.store(currentB);
      __syncthreads();
      if (step + 1 < steps) {
        loaderA.fetch((step + 1) * kDepth);
        loaderB.fetch((step + 1) * kDepth);
      }
      multiply(sums, currentA, currentB);
    }
    __syncthreads();
  }
};

} // namespace lathe::device
