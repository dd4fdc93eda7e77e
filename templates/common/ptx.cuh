//===- common/ptx.cuh - PTX instructions, one function each -----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "common/types.cuh"

namespace lathe::device {

__device__ __forceinline__ u32 sharedAddress(const void* pointer) {
  return u32(__cvta_generic_to_shared(pointer));
}

/// Copies `kBytes` (4, 8 or 16) from global to shared memory without registers; zeros where not `inBounds`.
template <int kBytes> __device__ __forceinline__ void copyAsync(u32 to, const void* from, bool inBounds) {
  const u32 size = inBounds ? kBytes : 0;
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(size) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(kBytes), "r"(size)
                 : "memory");
}
__device__ __forceinline__ void commitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until at most `kPending` of this thread's groups are under way.
template <int kPending> __device__ __forceinline__ void waitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void loadMatrices(u32 (&out)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void loadMatricesTransposed(u32 (&out)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ u32 loadShared(u32 address) {
  u32 result;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(result) : "r"(address) : "memory");
  return result;
}

/// Rounds fp32 bits to tf32, to nearest with ties away from zero.
__device__ __forceinline__ u32 roundToTf32(u32 bits) {
  u32 result;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(result) : "f"(__uint_as_float(bits)));
  return result;
}

/// d += a b on one warp: 16x8 fp32 sums; 16 (bf16, fp16) or 8 (tf32) deep.
template <class Element>
__device__ __forceinline__ void multiplyAccumulate(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]);
template <>
__device__ __forceinline__ void multiplyAccumulate<bf16>(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
__device__ __forceinline__ void multiplyAccumulate<fp16>(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
__device__ __forceinline__ void multiplyAccumulate<float>(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

} // namespace lathe::device
