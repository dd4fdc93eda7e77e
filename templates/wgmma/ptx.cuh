//===- wgmma/ptx.cuh - PTX instructions of sm_90a ---------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "common/arguments.cuh"
#include "common/operand.cuh"
#include "common/ptx.cuh"

namespace lathe::device {

//===- Barriers in shared memory ------------------------------------------===//

__device__ __forceinline__ void initBarrier(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
/// Makes initialised barriers visible to the other blocks of the cluster and to the copy engine.
__device__ __forceinline__ void fenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// Arrives, and adds `bytes` that copies must deliver before the phase can end.
__device__ __forceinline__ void arriveExpecting(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
/// Arrives at the same barrier of block `rank` of the cluster. Without `.release.cluster`: what is handed over are
/// reads that have finished, which need no fence, and the fence would cost half the kernel's speed.
__device__ __forceinline__ void arriveAt(u32 barrier, u32 rank) {
  asm volatile("{\n"
               ".reg .b32 remote;\n"
               "mapa.shared::cluster.u32 remote, %0, %1;\n"
               "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
               "}\n" ::"r"(barrier),
               "r"(rank)
               : "memory");
}
/// Waits until the phase with parity `parity` has ended.
__device__ __forceinline__ void waitBarrier(u32 barrier, u32 parity) {
  asm volatile("{\n"
               ".reg .pred done;\n"
               "again:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@!done bra again;\n"
               "}\n" ::"r"(barrier),
               "r"(parity)
               : "memory");
}

//===- Clusters ------------------------------------------------------------===//

__device__ __forceinline__ u32 clusterRank() {
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void syncCluster() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

//===- The copy engine ------------------------------------------------------===//

__device__ __forceinline__ void prefetchMap(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// Copies the box at (`x`, `y`) into shared memory; the bytes count towards `barrier`.
__device__ __forceinline__ void copyBox(u32 to, const TensorMap& map, int x, int y, u32 barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
               "l"(&map), "r"(x), "r"(y), "r"(barrier)
               : "memory");
}
/// The same into every block of `blocks`, a bit mask, each at the same place and on its own barrier.
__device__ __forceinline__ void copyBoxToAll(u32 to, const TensorMap& map, int x, int y, u32 barrier, u16 blocks) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
               "l"(&map), "r"(x), "r"(y), "r"(barrier), "h"(blocks)
               : "memory");
}

/// Makes this thread's writes to shared memory visible to the copy engine.
__device__ __forceinline__ void fenceForCopyEngine() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/// What L2 should not keep: the policy that the copy engine takes.
inline constexpr u64 kEvictFirst = 0x12F0000000000000;

/// Copies a box from shared memory to (`x`, `y`); what the tensor does not have is left out.
__device__ __forceinline__ void storeBox(const TensorMap& map, int x, int y, u32 from) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group.L2::cache_hint [%0, {%1, %2}], [%3], %4;" ::"l"(&map),
      "r"(x), "r"(y), "r"(from), "l"(kEvictFirst)
      : "memory");
}
/// Adds a box to what is at (`x`, `y`), in the tensor's own type.
__device__ __forceinline__ void addBox(const TensorMap& map, int x, int y, u32 from) {
  asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group.L2::cache_hint "
               "[%0, {%1, %2}], [%3], %4;" ::"l"(&map),
               "r"(x), "r"(y), "r"(from), "l"(kEvictFirst)
               : "memory");
}
__device__ __forceinline__ void commitBulk() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/// Waits until at most `kPending` of this thread's groups of copies still read shared memory.
template <int kPending> __device__ __forceinline__ void waitBulkReads() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

//===- Warpgroups -----------------------------------------------------------===//

template <int kRegisters> __device__ __forceinline__ void giveUpRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters> __device__ __forceinline__ void takeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

__device__ __forceinline__ void fenceWgmma() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commitWgmma() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending> __device__ __forceinline__ void waitWgmma() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

} // namespace lathe::device
