//===- common/memory.cuh - Vector access to memory --------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "common/types.cuh"

namespace lathe::device {

/// An access of `kBytes` (2, 4, 8 or 16): what the alignment of a tensor's rows allows.
template <int kBytes> struct Access;
template <> struct Access<2> {
  using Type = u16;
};
template <> struct Access<4> {
  using Type = u32;
};
template <> struct Access<8> {
  using Type = unsigned long long;
};
template <> struct Access<16> {
  using Type = Vector16;
};

template <int kBytes> __device__ __forceinline__ void copyVector(void* to, const void* from) {
  using Type = typename Access<kBytes>::Type;
  *static_cast<Type*>(to) = *static_cast<const Type*>(from);
}

/// The widest access, up to 16 bytes, that rows of `kElements` elements of T allow.
template <class T, int kElements> __device__ constexpr int rowAccessBytes() {
  int bytes = 16;
  while (kElements * i64(sizeof(T)) % bytes != 0) bytes /= 2;
  return bytes;
}

/// The 16 bytes at `column` of a row of `kElements`, which need not be aligned; zeros past the row's end.
template <class T, int kElements> __device__ __forceinline__ Vector16 loadVector(const T* row, int column) {
  constexpr int kBytes = rowAccessBytes<T, kElements>();
  constexpr int kStep = kBytes / sizeof(T);
  Vector16 vector{};
#pragma unroll
  for (int i = 0; i < 16 / int(sizeof(T)); i += kStep)
    if (column + i < kElements) copyVector<kBytes>(reinterpret_cast<T*>(&vector) + i, row + column + i);
  return vector;
}

/// Copies a row of `kElements` with one warp and fills it with zeros up to `kPitch`.
template <class T, int kElements, int kPitch> __device__ __forceinline__ void copyRow(T* to, const T* from, int lane) {
  constexpr int kBytes = rowAccessBytes<T, kElements>();
  constexpr int kStep = kBytes / sizeof(T);
#pragma unroll 4
  for (int column = lane * kStep; column < kElements; column += 32 * kStep)
    copyVector<kBytes>(to + column, from + column);
  for (int column = kElements + lane; column < kPitch; column += 32) to[column] = fromFloat<T>(0.0f);
}

/// Fills a row of `kElements` with zeros with one warp.
template <class T, int kElements> __device__ __forceinline__ void zeroRow(T* row, int lane) {
  constexpr int kBytes = rowAccessBytes<T, kElements>();
  using Type = typename Access<kBytes>::Type;
  constexpr int kAccesses = kElements * i64(sizeof(T)) / kBytes;
  for (int i = lane; i < kAccesses; i += 32) reinterpret_cast<Type*>(row)[i] = Type{};
}

} // namespace lathe::device
