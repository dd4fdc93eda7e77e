//===- common/rows.cuh - The rows that a launch covers --------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "common/arguments.cuh"
#include "common/types.cuh"

namespace lathe::device {

/// Rows `[begin, validEnd)` are valid tokens; `[validEnd, end)` is the tail.
struct RowRange {
  int begin;
  int validEnd;
  int end;

  __device__ __forceinline__ RowRange(const RowTables& tables, SlotRange slots)
      : begin(tables.slotStart[slots.begin]), validEnd(tables.slotStart[slots.end]), end(validEnd) {
    if (slots.withTail) end += tables.state->tailRows;
  }
  __device__ __forceinline__ int count() const { return end - begin; }
  __device__ __forceinline__ int validCount() const { return validEnd - begin; }
};

/// The slot of a sequence: pairs are neighbours.
__device__ __forceinline__ int slotOfSequence(int sequence, int sequences) {
  const int pairs = sequences / 2;
  return sequence < pairs ? 2 * sequence : 2 * (sequence - pairs) + 1;
}
__device__ __forceinline__ int sequenceOfSlot(int slot, int sequences) {
  return slot % 2 == 0 ? slot / 2 : sequences / 2 + slot / 2;
}

} // namespace lathe::device
