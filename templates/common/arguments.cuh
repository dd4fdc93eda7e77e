//===- common/arguments.cuh - What the host hands to every kernel ---------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// The parameter of every kernel and the small records that live in the workspace. Compiled for the host as well, so
/// that both sides agree on the layout by construction.
///
/// Words used throughout. A *token* is a flat index into `[sequences, tokens]`. Sequences are processed pair by pair:
/// *slot* 2p is chosen sequence p, slot 2p + 1 is rejected sequence p. A *row* is the position of a valid token in slot
/// order; rows are what the matrix products work on. Behind the valid rows may follow *tail* rows, which only the mean
/// logit needs: the masked tokens themselves under a soft cap, else their means (four rows, see masked_mean.cuh).
///
//===----------------------------------------------------------------------===//
#pragma once

namespace lathe::device {

/// Tail rows where the mean logit is linear in the input: for each of chosen and rejected, high and low half.
inline constexpr int kMeanRows = 4;

/// Products that sum over rows may read this many rows behind the last, whose elements are then zeros: behind the
/// gathered rows always so many, behind the rows of E up to a multiple.
inline constexpr int kRowPadding = 128;

/// Facts of one run, at the start of the workspace. Written by row_map and loss.
struct RunState {
  int validRows;
  int maskedTokens;
  /// Masked tokens of the chosen and of the rejected sequences.
  int maskedOf[2];
  /// Rows behind the valid ones.
  int tailRows;
  int chosenValid;
  int emptySequences;
  int badTargets;
  /// Token of the first bad target, or -1.
  int firstBad;
  /// The largest magnitude of PairTables::slotCoefficient in the slots that the last loss step covered.
  float largestCoefficient;
  /// Blocks of the running loss step that are done; 0 between steps.
  int finishedBlocks;
  /// How far the clusters of a running product have come, and how many are done; see wgmma/pace.cuh. 0 between steps.
  int paceArrivals;
  int paceFinished;
};

/// What a caller may read after a run besides the loss. The layout is part of the C API.
struct Diagnostics {
  int validTokens;
  int emptySequences;
  int badTargets;
  int firstBadSequence;
  int firstBadToken;
};

/// The slots that one launch covers, and whether it covers the tail as well.
struct SlotRange {
  int begin;
  int end;
  int withTail;
};

/// Pointers that several kernels share.
struct RowTables {
  RunState* state;
  /// First row of each slot; one more entry than slots.
  int* slotStart;
  /// Token and target of each row; a bad target is stored as -1.
  int* rowToken;
  int* rowTarget;
  /// The masked tokens in slot order.
  int* maskedToken;
};

/// Partial results of the logits, one per row and column tile: element (tile, row) is at `tile * pitch + row`,
/// row counted from the launch's first.
struct TilePartials {
  /// The largest z, times log2(e): exponentials are powers of two throughout, see docs/kernels.md.
  float* maximum;
  /// Sum of 2^(z log2(e) - maximum).
  float* sum;
  /// Sum of z.
  float* logitSum;
  long long pitch;
};

/// E, then G, in panels of 128 bytes: element (row, v) is at `((v / kPanel) * rows + row) * kPanel + v % kPanel`.
struct Panels {
  void* data;
  long long rows;
};

/// A tensor map for TMA, as the driver encodes it.
struct alignas(128) TensorMap {
  unsigned char bytes[128];
};

/// Second parameter of the wgmma kernels: the tensors of the product.
struct TensorMaps {
  TensorMap a;
  TensorMap b;
  /// Where the tiles go, for steps that copy whole tiles out.
  TensorMap out;
};

struct RowMapArguments {
  const long long* target;
  RowTables tables;
  float* targetLogit;
  /// Null, or `[sequences, tokens]`: masked tokens get 0.
  float* perTokenLogps;
  long long ignoreIndex;
  int sequences;
  int tokens;
};

struct GatherRowsArguments {
  const void* input;
  void* rows;
  RowTables tables;
  int sequences;
  int tokens;
};

struct LogitsArguments {
  const void* rows;
  const void* weight;
  const void* bias;
  RowTables tables;
  SlotRange slots;
  TilePartials partials;
  float* targetLogit;
  /// `data` is null when only the loss is wanted.
  Panels exponentials;
  float logitScale;
  float softcap;
};

/// What the loss depends on besides the log-probabilities.
struct LossScalars {
  float beta;
  float gamma;
  float labelSmoothing;
  float alpha;
};

/// What each row adds to the loss.
struct RowResults {
  /// Times log2(e), as TilePartials::maximum.
  float* logsumexp;
  float* logp;
  float* logitSum;
  /// Null, or `[sequences, tokens]`.
  float* perTokenLogps;
};

/// Per-sequence and per-pair results, indexed by slot or pair.
struct PairTables {
  /// Mean and sum of the valid tokens' log-probabilities, sum of all logits of the valid rows.
  float* slotMean;
  double* slotSum;
  double* slotLogitSum;
  double* pairLoss;
  /// Derivative of the loss by the log-probability of any one valid token of the slot.
  float* slotCoefficient;
};

/// Where results go; every pointer may be null.
struct LossOutputs {
  float* loss;
  float* preferenceLoss;
  float* nll;
  float* chosenLogps;
  float* rejectedLogps;
  float* chosenRewards;
  float* rejectedRewards;
  float* chosenLogitsMean;
  float* rejectedLogitsMean;
  Diagnostics* diagnostics;
};

struct LossArguments {
  RowTables tables;
  SlotRange slots;
  TilePartials partials;
  const float* targetLogit;
  RowResults rows;
  PairTables pairs;
  LossScalars scalars;
  LossOutputs outputs;
  int pairCount;
  int tokens;
};

/// The gradient of the caller's objective by the loss: `scale`, times the value at `factor` unless that is null.
struct Upstream {
  const float* factor;
  float scale;
};

struct GradLogitsArguments {
  Panels panels;
  TilePartials partials;
  RowTables tables;
  SlotRange slots;
  Upstream upstream;
  const float* rowLogsumexp;
  const float* targetLogit;
  const float* slotCoefficient;
  /// Null, or where masked tokens get rows of zeros.
  void* gradInput;
  /// `[blocks along rows, padded vocab]`: column sums of G, unscaled; null without a bias gradient.
  float* biasPartials;
  int sequences;
  int tokens;
  float logitScale;
  float softcap;
};

struct GradBiasArguments {
  const float* biasPartials;
  void* gradBias;
  int partialCount;
  int accumulate;
};

struct GradInputArguments {
  Panels panels;
  const void* weight;
  void* gradInput;
  RowTables tables;
  SlotRange slots;
  Upstream upstream;
};

struct GradWeightArguments {
  Panels panels;
  const void* rows;
  void* gradWeight;
  RowTables tables;
  SlotRange slots;
  Upstream upstream;
  int accumulate;
};

} // namespace lathe::device
