//===- tuning/SampledReference.h - A reference for large problems ----------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/io/Case.h"
#include "runtime/reference/Compare.h"

#include "llvm/ADT/ArrayRef.h"

namespace lathe {

/// How much of a case is computed on the host.
struct ReferenceSample {
  int64_t rows = 6;
  int64_t entries = 48;
};

/// The right results of a case, in double precision, for a sample of rows and vocabulary entries: what takes the full
/// reference minutes at the size that is tuned takes this a second.
///
/// Held against it are: the log-probabilities of the sampled rows; every scalar and mean, as the formulas give it from
/// the log-probabilities of all rows that the device reports; and the sampled rows of each gradient, which depend on
/// all rows. The log-probabilities of the other rows are held against those of the first result that passed.
class SampledReference {
public:
  /// `value` must be valid and must outlive this.
  SampledReference(const Case& value, const ReferenceSample& sample);

  /// The rows of `gradInput`, and the entries of the vocabulary, that `compare` wants.
  llvm::ArrayRef<int64_t> rows() const { return rows_; }
  llvm::ArrayRef<int64_t> entries() const { return entries_; }

  /// Compares what `DeviceCase::downloadParts(rows(), entries())` gave.
  std::vector<Comparison> compare(const LossResult& got);

private:
  bool isValid(int64_t row) const;
  double finalLogit(double raw) const;
  /// The derivative of the final logit by the raw one.
  double slopeAt(double finalLogit) const;
  double biasOf(int64_t entry) const;

  void chooseRows(int64_t count);
  void chooseEntries(int64_t count);
  /// Logits of the sampled rows over the whole vocabulary: log-probabilities, and the gradient of the input but for the
  /// row's coefficient.
  void computeRows();
  /// Logits of all rows for the sampled entries and the targets.
  void computeEntries();
  void computeLogitMeans();
  /// What `got` should have been.
  LossResult expected(const LossResult& got) const;
  /// Loss, means and rewards from the log-probabilities; fills the coefficient of every row.
  void pairLoss(llvm::ArrayRef<double> logps, LossResult& want, std::vector<double>& coefficients) const;
  void gradients(llvm::ArrayRef<double> logps, llvm::ArrayRef<double> coefficients, LossResult& want) const;

  const Case& case_;
  const int64_t hidden_, vocab_, tokens_, pairs_;
  std::vector<float> input_;
  std::vector<int64_t> rows_;
  std::vector<int64_t> entries_;
  std::vector<int64_t> validPerSequence_;
  /// By sampled row.
  std::vector<double> rowLogps_;
  std::vector<double> rowGradients_;
  /// Raw logits, `[entries, rows]`, and of each row's target.
  std::vector<double> entryLogits_;
  std::vector<double> targetLogits_;
  double chosenLogitsMean_ = 0;
  double rejectedLogitsMean_ = 0;
  /// Log-probabilities of the first result that passed.
  std::vector<double> passedLogps_;
};

} // namespace lathe
