//===- common/tile_kernel.cuh - A kernel whose blocks compute one tile ------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// The frame of the simt and mma_sync kernels. A *product step* (steps/logits.cuh, grad_input.cuh, grad_weight.cuh)
/// says what is multiplied and what happens to the sums:
///
///     using Arguments, Element; using A, B (OperandTraits);
///     Step(arguments): reads the rows it covers
///     tilesM(), tilesN(), depth(): extents, the first two in tiles, the last in elements
///     a(), b(): the operands; firstA(m), firstB(n): where a tile begins in them
///     begin(sums, m, n): sets what the sums of a tile begin at; kBeginsAtZero: whether the first product may
///         overwrite them instead
///     finish(sums, m, n, group, shared, out): the epilogue; `out` may be able to copy whole tiles
///
//===----------------------------------------------------------------------===//
#pragma once

#include "common/group.cuh"
#include "common/math.cuh"
#include "common/operand.cuh"
#include "common/output_tile.cuh"
#include "common/tile_order.cuh"

namespace lathe::device {

template <class Config, template <class> class StepTemplate, template <class, class, class> class Mainloop>
__device__ __forceinline__ void runTile(const typename StepTemplate<Config>::Arguments& arguments) {
  using Step = StepTemplate<Config>;
  using Loop = Mainloop<Config, typename Step::A, typename Step::B>;
  extern __shared__ __align__(1024) char shared[];
  const Step step(arguments);
  const TileOrder tile = TileOrder::grouped<Config::kGroupM>(blockIdx.x, step.tilesM(), step.tilesN());
  if (!tile.exists) return;

  typename Loop::Accumulators sums;
  step.begin(sums, tile.m, tile.n);
  Loop::run(sums, step.a(), step.firstA(tile.m), step.b(), step.firstB(tile.n), ceilDiv(step.depth(), Config::kBlockK),
            shared);
  step.finish(sums, tile.m, tile.n, ThreadGroup<Config::kThreads>{int(threadIdx.x), 0}, shared, NoCopyOut());
}

} // namespace lathe::device
