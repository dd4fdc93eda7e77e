//===- lathe/workload.h - What to compute ----------------------*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// The value types that describe a computation: `Workload` (compiled in), `Shape` and `Scalars` (chosen per run).
///
//===----------------------------------------------------------------------===//
#pragma once

#include <cstdint>
#include <optional>

namespace lathe {

/// Element type of a tensor.
enum class DType : uint8_t { BF16, FP16, FP32 };

/// Arithmetic of the matrix products when the tensors are fp32. Ignored (and `IEEE`) for 16-bit tensors.
enum class Precision : uint8_t { IEEE, TF32 };

/// Bytes of one element of `type`.
constexpr int64_t sizeOf(DType type) {
  return type == DType::FP32 ? 4 : 2;
}

/// What to compute: everything that is compiled into the kernels.
///
/// The op is the fused linear + SimPO loss over `2B` sequences of `T` tokens, the first `B` chosen and the last `B`
/// rejected. Inputs are row-major and dense: input `[2B, T, H]`, weight `[V, H]`, bias `[V]`, target `[2B, T]` (int64).
/// Values that a run may change without recompiling are in `Shape` and `Scalars`.
struct Workload {
  /// H, the width of the hidden states; at least 1.
  int64_t hidden = 0;
  /// V, the number of vocabulary entries; 2 to 2^31 - 1025.
  int64_t vocab = 0;
  /// Element type of input, weight, bias and of their gradients (but see `gradWeightDType`).
  DType dtype = DType::BF16;
  Precision precision = Precision::IEEE;

  /// Adds `bias[v]` to every logit.
  bool bias = false;
  /// Multiplies every logit by `Scalars::logitScale`.
  bool logitScale = false;
  /// Replaces every logit z by c*tanh(z/c), c = `Scalars::softcap`; applied after the scale.
  bool softcap = false;
  /// Adds alpha * nll of the chosen sequences to the loss.
  bool nll = true;
  /// Computes the mean logit of the chosen and of the rejected sequences, over all T*V logits, ignored tokens included.
  bool logitMeans = true;

  bool gradInput = true;
  bool gradWeight = true;
  /// Needs `bias`.
  bool gradBias = false;
  /// Element type of the weight's gradient: `dtype`, or FP32 (as for a `main_grad` buffer).
  DType gradWeightDType = DType::BF16;

  /// When set, compiled in; a plan for any other number of sequences (tokens) is refused.
  std::optional<int64_t> sequences = std::nullopt;
  std::optional<int64_t> tokens = std::nullopt;

  bool anyGradient() const { return gradInput || gradWeight || gradBias; }

  friend bool operator==(const Workload&, const Workload&) = default;
};

/// The run-time part of the problem's size.
struct Shape {
  /// 2B: even, at least 2.
  int64_t sequences = 0;
  /// T: at least 1.
  int64_t tokens = 0;

  /// Tokens of all sequences together.
  int64_t rows() const { return sequences * tokens; }
  int64_t pairs() const { return sequences / 2; }

  friend bool operator==(const Shape&, const Shape&) = default;
};

/// Values that may change from run to run without recompiling.
struct Scalars {
  double beta = 0.1;
  double gamma = 0.5;
  double labelSmoothing = 0.0;
  /// Weight of the nll term; unused when the workload has no nll.
  double alpha = 1.0;
  /// c of the soft cap; positive when the workload has one, else unused.
  double softcap = 0.0;
  /// Unused unless the workload has a logit scale.
  double logitScale = 1.0;
  int64_t ignoreIndex = -100;

  friend bool operator==(const Scalars&, const Scalars&) = default;
};

} // namespace lathe
