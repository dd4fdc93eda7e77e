//===- tests/emulated/CudaOnHost.h - CUDA threads as fibers -----*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// What a kernel needs to run on the CPU: its threads, barriers, shared memory, and one function for each PTX
/// instruction that the simt and mma_sync kernels use. HostKernel.h includes it before a kernel's source. Blocks run
/// one after the other, in an order that a seed shuffles; a block's threads are fibers that take turns at barriers.
///
/// It is stricter than a GPU where mistakes would hide there: shared memory begins as NaN, an asynchronous copy arrives
/// no sooner than it is waited for, and a barrier that some threads never reach is an error.
///
//===----------------------------------------------------------------------===//
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <ucontext.h>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(bytes) alignas(bytes)
#define __CUDA_ARCH__ 800

struct Index {
  unsigned x, y, z;
};
inline Index threadIdx, blockIdx, gridDim;

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline float2 make_float2(float x, float y) {
  return {x, y};
}

namespace lathe::device {
/// The dynamic shared memory of the running block.
alignas(1024) inline char shared[232448];
} // namespace lathe::device

namespace emulator {

struct Warp {
  /// What the lanes hand to each other. Two sets take turns, so that one barrier is enough.
  char slot[2][32][32];
  unsigned arrived = 0;
  unsigned generation = 0;
};

struct Barrier {
  unsigned arrived = 0;
  unsigned generation = 0;
};

struct Copy {
  void* to;
  const void* from;
  unsigned bytes;
  unsigned size;
};

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  bool finished;
  std::vector<Copy> uncommitted;
  std::deque<std::vector<Copy>> groups;
};

/// The running block.
class Block {
public:
  /// Runs `body` once for each of `threads` threads.
  void run(unsigned threads, const std::function<void()>& body) {
    body_ = &body;
    fibers_.resize(threads);
    warps_.assign((threads + 31) / 32, {});
    std::fill(std::begin(barriers_), std::end(barriers_), Barrier());
    for (Fiber& fiber : fibers_) start(fiber);
    for (unsigned alive = threads; alive > 0;) {
      const bool before = std::exchange(progress_, false);
      if (!before) throw std::runtime_error("some threads of a block wait for others that never arrive");
      for (current_ = 0; current_ < threads; ++current_) {
        Fiber& fiber = fibers_[current_];
        if (fiber.finished) continue;
        threadIdx = {current_, 0, 0};
        swapcontext(&scheduler_, &fiber.context);
        if (!failure_.empty()) throw std::runtime_error(std::exchange(failure_, {}));
        if (fiber.finished) {
          --alive;
          progress_ = true;
        }
      }
    }
  }

  Fiber& fiber() { return fibers_[current_]; }

  /// Waits until `count` threads have come to named barrier `id`.
  void sync(unsigned id, unsigned count) { wait(barriers_[id], count); }
  void syncAll() { sync(0, unsigned(fibers_.size())); }

  /// Hands `value` to the lanes of this warp and returns everybody's.
  template <class T> const char (*exchange(const T& value))[32] {
    static_assert(sizeof(T) <= 32);
    Warp& warp = warps_[current_ / 32];
    auto& slots = warp.slot[warp.generation % 2];
    std::memcpy(slots[current_ % 32], &value, sizeof(T));
    wait(warp, 32);
    return slots;
  }

private:
  template <class Meeting> void wait(Meeting& meeting, unsigned count) {
    const unsigned generation = meeting.generation;
    if (++meeting.arrived == count) {
      meeting.arrived = 0;
      ++meeting.generation;
      progress_ = true;
      return;
    }
    while (meeting.generation == generation) yield();
  }

  void yield() {
    const unsigned self = current_;
    swapcontext(&fibers_[self].context, &scheduler_);
  }

  void start(Fiber& fiber) {
    constexpr size_t kStackBytes = 256 << 10;
    if (!fiber.stack) fiber.stack = std::make_unique_for_overwrite<char[]>(kStackBytes);
    fiber.finished = false;
    fiber.uncommitted.clear();
    fiber.groups.clear();
    progress_ = true;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = &scheduler_;
    makecontext(&fiber.context, &Block::enter, 0);
  }

  static void enter();

  const std::function<void()>* body_ = nullptr;
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  Barrier barriers_[16];
  ucontext_t scheduler_;
  unsigned current_ = 0;
  bool progress_ = true;
  /// What a thread threw; it must not leave its fiber.
  std::string failure_;
};

inline Block block;

inline void Block::enter() {
  try {
    (*block.body_)();
  } catch (const std::exception& exception) {
    block.failure_ = exception.what();
  }
  block.fiber().finished = true;
}

/// Runs `kernel` on a grid. The order of the blocks depends on `seed`.
template <class Parameter>
void launch(void (*kernel)(Parameter), const void* parameter, const unsigned (&grid)[3], unsigned threads,
            unsigned sharedBytes, unsigned seed) {
  std::vector<unsigned> order(size_t(grid[0]) * grid[1] * grid[2]);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), std::mt19937(seed));
  gridDim = {grid[0], grid[1], grid[2]};
  for (const unsigned index : order) {
    blockIdx = {index % grid[0], index / grid[0] % grid[1], index / grid[0] / grid[1]};
    std::memset(lathe::device::shared, 0xff, sharedBytes);
    block.run(threads, [&] { kernel(*static_cast<const Parameter*>(parameter)); });
  }
}

inline float asFloat(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline uint32_t asBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

template <class T> T read(const char (*slots)[32], unsigned lane) {
  T value;
  std::memcpy(&value, slots[lane], sizeof(T));
  return value;
}

inline float bf16ToFloat(uint16_t bits) {
  return asFloat(uint32_t(bits) << 16);
}
inline float fp16ToFloat(uint16_t bits) {
  _Float16 value;
  std::memcpy(&value, &bits, 2);
  return float(value);
}
inline float identity(uint32_t bits) {
  return asFloat(bits);
}

/// What a lane brings to a matrix product of one warp.
struct Fragments {
  uint32_t a[4];
  uint32_t b[2];
};

/// d += a b. Element (row, k) of a is lane `row % 8 * 4 + k / kPack % 4`, register `row / 8 + k / (4 * kPack) * 2`,
/// part `k % kPack` (PTX ISA, "Matrix Fragments for mma.m16n8k16" and "m16n8k8"); those of b and d lie alike.
template <unsigned kPack, class Unpack>
void multiply(float& d0, float& d1, float& d2, float& d3, const Fragments& mine, Unpack unpack) {
  const auto* slots = block.exchange(mine);
  const auto part = [&](uint32_t word, unsigned k) { return unpack(kPack == 1 ? word : word >> (k % kPack * 16)); };
  const unsigned lane = threadIdx.x % 32;
  float* const d[4] = {&d0, &d1, &d2, &d3};
  Fragments rows[4], columns[2][4];
  for (unsigned i = 0; i < 4; ++i) {
    rows[i] = read<Fragments>(slots, lane / 4 * 4 + i);
    for (unsigned j = 0; j < 2; ++j) columns[j][i] = read<Fragments>(slots, (lane % 4 * 2 + j) * 4 + i);
  }
  for (unsigned i = 0; i < 4; ++i) {
    float sum = 0;
    for (unsigned k = 0; k < 8 * kPack; ++k) {
      const unsigned holder = k / kPack % 4;
      const unsigned half = k / (4 * kPack);
      sum += part(rows[holder].a[i / 2 + half * 2], k) * part(columns[i % 2][holder].b[half], k);
    }
    *d[i] += sum;
  }
}

/// A pointer into the dynamic shared memory, from the address that instructions take.
inline char* sharedPointer(uint32_t address) {
  if (address >= sizeof(lathe::device::shared)) throw std::runtime_error("an address outside of shared memory");
  return lathe::device::shared + address;
}

template <bool kTransposed>
void loadMatrices(uint32_t& out0, uint32_t& out1, uint32_t& out2, uint32_t& out3, uint32_t address) {
  const auto* slots = block.exchange(address);
  const unsigned lane = threadIdx.x % 32;
  uint32_t* const out[4] = {&out0, &out1, &out2, &out3};
  const auto element = [&](unsigned matrix, unsigned row, unsigned column) {
    uint16_t value;
    std::memcpy(&value, sharedPointer(read<uint32_t>(slots, matrix * 8 + row)) + column * 2, 2);
    return uint32_t(value);
  };
  const unsigned major = lane / 4;
  const unsigned minor = lane % 4 * 2;
  for (unsigned matrix = 0; matrix < 4; ++matrix)
    *out[matrix] = kTransposed ? element(matrix, minor, major) | element(matrix, minor + 1, major) << 16
                               : element(matrix, major, minor) | element(matrix, major, minor + 1) << 16;
}

inline void copyAsync(uint32_t to, const void* from, unsigned bytes, unsigned size) {
  if (to % bytes != 0 || (size > 0 && reinterpret_cast<uintptr_t>(from) % bytes != 0))
    throw std::runtime_error("an asynchronous copy between addresses that are not aligned");
  block.fiber().uncommitted.push_back({sharedPointer(to), from, bytes, size});
}

//===----------------------------------------------------------------------===//
// PTX instructions: the opcode with '_' for what no name may hold, and the operands in the order of the asm statement
//===----------------------------------------------------------------------===//

template <class T> void ptx_(T&) {}
inline void ptx_ex2_approx_ftz_f32(float& d, float a) {
  d = std::exp2(a);
  if (std::fabs(d) < 0x1p-126f) d = 0.0f;
}
inline void ptx_cvt_f32_f16(float& d, uint16_t a) {
  d = fp16ToFloat(a);
}
inline void ptx_cvt_rn_f16_f32(uint16_t& d, float a) {
  const _Float16 value = _Float16(a);
  std::memcpy(&d, &value, 2);
}
inline void ptx_cvt_rn_bf16_f32(uint16_t& d, float a) {
  const uint32_t bits = asBits(a);
  d = a != a ? 0x7fff : uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline void ptx_cvt_rn_bf16x2_f32(uint32_t& d, float high, float low) {
  uint16_t half[2];
  ptx_cvt_rn_bf16_f32(half[0], low);
  ptx_cvt_rn_bf16_f32(half[1], high);
  std::memcpy(&d, half, 4);
}
inline void ptx_cvt_rna_tf32_f32(uint32_t& d, float a) {
  d = a != a ? 0x7fffffff : (asBits(a) + 0x1000) & ~0x1fffu;
}
inline void ptx_bar_sync(unsigned id, unsigned count) {
  block.sync(id, count);
}
inline void ptx_ld_shared_u32(uint32_t& d, uint32_t address) {
  std::memcpy(&d, sharedPointer(address), 4);
}
inline void ptx_st_shared_u16(uint32_t address, uint16_t value) {
  std::memcpy(sharedPointer(address), &value, 2);
}
inline void ptx_cp_async_cg_shared_global_L2__128B(uint32_t to, const void* from, unsigned size) {
  copyAsync(to, from, 16, size);
}
inline void ptx_cp_async_ca_shared_global(uint32_t to, const void* from, unsigned bytes, unsigned size) {
  copyAsync(to, from, bytes, size);
}
inline void ptx_cp_async_commit_group() {
  Fiber& fiber = block.fiber();
  fiber.groups.push_back(std::exchange(fiber.uncommitted, {}));
}
inline void ptx_cp_async_wait_group(unsigned pending) {
  Fiber& fiber = block.fiber();
  for (; fiber.groups.size() > pending; fiber.groups.pop_front())
    for (const Copy& copy : fiber.groups.front()) {
      std::memset(copy.to, 0, copy.bytes);
      std::memcpy(copy.to, copy.from, copy.size);
    }
}
inline void ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(uint32_t& d0, uint32_t& d1, uint32_t& d2, uint32_t& d3,
                                                         uint32_t address) {
  loadMatrices<false>(d0, d1, d2, d3, address);
}
inline void ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(uint32_t& d0, uint32_t& d1, uint32_t& d2, uint32_t& d3,
                                                               uint32_t address) {
  loadMatrices<true>(d0, d1, d2, d3, address);
}
inline void ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(float& d0, float& d1, float& d2, float& d3,
                                                                    uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                                    uint32_t b0, uint32_t b1) {
  multiply<2>(d0, d1, d2, d3, {{a0, a1, a2, a3}, {b0, b1}}, bf16ToFloat);
}
inline void ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(float& d0, float& d1, float& d2, float& d3,
                                                                  uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                                  uint32_t b0, uint32_t b1) {
  multiply<2>(d0, d1, d2, d3, {{a0, a1, a2, a3}, {b0, b1}}, fp16ToFloat);
}
inline void ptx_mma_sync_aligned_m16n8k8_row_col_f32_tf32_tf32_f32(float& d0, float& d1, float& d2, float& d3,
                                                                   uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                                   uint32_t b0, uint32_t b1) {
  multiply<1>(d0, d1, d2, d3, {{a0, a1, a2, a3}, {b0, b1}}, identity);
}

} // namespace emulator

//===----------------------------------------------------------------------===//
// Built-in functions of CUDA C++
//===----------------------------------------------------------------------===//

using std::max;
using std::min;
inline void __syncthreads() {
  emulator::block.syncAll();
}
inline void __threadfence() {}
inline float __uint_as_float(uint32_t bits) {
  return emulator::asFloat(bits);
}
inline uint32_t __float_as_uint(float value) {
  return emulator::asBits(value);
}
inline float __fdividef(float a, float b) {
  return a / b;
}
inline size_t __cvta_generic_to_shared(const void* pointer) {
  return size_t(static_cast<const char*>(pointer) - lathe::device::shared);
}
inline int atomicAdd(int* to, int value) {
  const int before = *to;
  *to += value;
  return before;
}
template <class T> T __shfl_xor_sync(unsigned, T value, unsigned mask) {
  return emulator::read<T>(emulator::block.exchange(value), (threadIdx.x % 32) ^ mask);
}
template <class T> T __shfl_up_sync(unsigned, T value, unsigned offset) {
  const unsigned lane = threadIdx.x % 32;
  return emulator::read<T>(emulator::block.exchange(value), lane < offset ? lane : lane - offset);
}
inline bool __any_sync(unsigned, bool predicate) {
  const auto* slots = emulator::block.exchange(predicate);
  bool any = false;
  for (unsigned lane = 0; lane < 32; ++lane) any |= emulator::read<bool>(slots, lane);
  return any;
}
