//===- tuning/SampledReference.cpp - A reference for large problems --------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tuning/SampledReference.h"

#include "runtime/io/HalfTypes.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Parallel.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

using namespace lathe;

namespace {

/// Vocabulary entries whose weights one task turns to float.
constexpr int64_t kBlock = 256;

void readRow(const std::string& bytes, DType type, int64_t row, int64_t width, float* to) {
  for (int64_t i = 0; i < width; ++i) to[i] = elementAt(bytes.data(), type, row * width + i);
}

/// In eight sums that do not wait for each other.
double dot(const float* a, const float* b, int64_t count) {
  constexpr int64_t kLanes = 8;
  double sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += double(a[i + lane]) * double(b[i + lane]);
  double sum = 0;
  for (const double part : sums) sum += part;
  for (; i < count; ++i) sum += double(a[i]) * double(b[i]);
  return sum;
}

double softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}
double sigmoid(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}

/// `count` numbers spread evenly over [0, extent), the ends included.
std::vector<int64_t> spread(int64_t extent, int64_t count) {
  std::vector<int64_t> chosen;
  count = std::min(count, extent);
  for (int64_t i = 0; i < count; ++i) chosen.push_back(count == 1 ? 0 : i * (extent - 1) / (count - 1));
  return chosen;
}

} // namespace

SampledReference::SampledReference(const Case& value, const ReferenceSample& sample)
    : case_(value), hidden_(value.workload.hidden), vocab_(value.workload.vocab), tokens_(value.shape.tokens),
      pairs_(value.shape.pairs()), input_(value.shape.rows() * hidden_), validPerSequence_(value.shape.sequences) {
  llvm::parallelFor(0, value.shape.rows(), [&](size_t row) {
    readRow(value.input, value.workload.dtype, int64_t(row), hidden_, &input_[int64_t(row) * hidden_]);
  });
  for (int64_t row = 0; row < value.shape.rows(); ++row) validPerSequence_[row / tokens_] += isValid(row);
  chooseRows(sample.rows);
  chooseEntries(sample.entries);
  computeRows();
  computeEntries();
  if (value.workload.logitMeans && !value.workload.softcap) computeLogitMeans();
}

bool SampledReference::isValid(int64_t row) const {
  return case_.target[row] != case_.scalars.ignoreIndex;
}

double SampledReference::finalLogit(double raw) const {
  if (case_.workload.logitScale) raw *= case_.scalars.logitScale;
  return case_.workload.softcap ? case_.scalars.softcap * std::tanh(raw / case_.scalars.softcap) : raw;
}

double SampledReference::slopeAt(double finalLogit) const {
  const double scale = case_.workload.logitScale ? case_.scalars.logitScale : 1;
  if (!case_.workload.softcap) return scale;
  const double ratio = finalLogit / case_.scalars.softcap;
  return scale * (1 - ratio * ratio);
}

double SampledReference::biasOf(int64_t entry) const {
  return case_.workload.bias ? elementAt(case_.bias.data(), case_.workload.dtype, entry) : 0;
}

void SampledReference::chooseRows(int64_t count) {
  std::vector<int64_t> valid, masked;
  for (int64_t row = 0; row < case_.shape.rows(); ++row) (isValid(row) ? valid : masked).push_back(row);
  for (const int64_t i : spread(int64_t(valid.size()), count)) rows_.push_back(valid[i]);
  for (const int64_t i : spread(int64_t(masked.size()), 2)) rows_.push_back(masked[i]);
}

void SampledReference::chooseEntries(int64_t count) {
  entries_ = spread(vocab_, count);
  // Entries that are targets have a gradient of another kind.
  for (const int64_t row : rows_)
    if (isValid(row) && !llvm::is_contained(entries_, case_.target[row])) entries_.push_back(case_.target[row]);
}

void SampledReference::computeRows() {
  const int64_t count = int64_t(rows_.size());
  std::vector<double> logits(count * vocab_);
  const auto forEachBlock = [&](auto body) {
    llvm::parallelFor(0, (vocab_ + kBlock - 1) / kBlock, [&](size_t block) {
      std::vector<float> weight(hidden_);
      const int64_t begin = int64_t(block) * kBlock;
      for (int64_t v = begin; v < std::min(begin + kBlock, vocab_); ++v) {
        readRow(case_.weight, case_.workload.dtype, v, hidden_, weight.data());
        body(block, v, weight.data());
      }
    });
  };
  forEachBlock([&](size_t, int64_t v, const float* weight) {
    for (int64_t i = 0; i < count; ++i)
      logits[i * vocab_ + v] = finalLogit(dot(&input_[rows_[i] * hidden_], weight, hidden_) + biasOf(v));
  });

  std::vector<double> logSumExp(count);
  rowLogps_.assign(count, 0);
  for (int64_t i = 0; i < count; ++i) {
    const auto row = llvm::ArrayRef(logits).slice(i * vocab_, vocab_);
    const double largest = *std::max_element(row.begin(), row.end());
    double sum = 0;
    for (const double z : row) sum += std::exp(z - largest);
    logSumExp[i] = largest + std::log(sum);
    if (isValid(rows_[i])) rowLogps_[i] = row[case_.target[rows_[i]]] - logSumExp[i];
  }
  if (!case_.workload.gradInput) return;

  // Each task adds up its own part; the parts are added in order.
  const int64_t blocks = (vocab_ + kBlock - 1) / kBlock;
  std::vector<std::vector<double>> parts(blocks);
  forEachBlock([&](size_t block, int64_t v, const float* weight) {
    std::vector<double>& part = parts[block];
    part.resize(count * hidden_);
    for (int64_t i = 0; i < count; ++i) {
      if (!isValid(rows_[i])) continue;
      const double z = logits[i * vocab_ + v];
      const double oneHot = v == case_.target[rows_[i]] ? 1 : 0;
      const double g = (oneHot - std::exp(z - logSumExp[i])) * slopeAt(z);
      for (int64_t h = 0; h < hidden_; ++h) part[i * hidden_ + h] += g * weight[h];
    }
  });
  rowGradients_.assign(count * hidden_, 0);
  for (const std::vector<double>& part : parts)
    for (size_t i = 0; i < part.size(); ++i) rowGradients_[i] += part[i];
}

void SampledReference::computeEntries() {
  const int64_t count = case_.shape.rows();
  entryLogits_.resize(entries_.size() * count);
  targetLogits_.resize(count);
  llvm::parallelFor(0, entries_.size(), [&](size_t i) {
    std::vector<float> weight(hidden_);
    readRow(case_.weight, case_.workload.dtype, entries_[i], hidden_, weight.data());
    for (int64_t row = 0; row < count; ++row)
      entryLogits_[i * count + row] =
          finalLogit(dot(&input_[row * hidden_], weight.data(), hidden_) + biasOf(entries_[i]));
  });
  llvm::parallelFor(0, count, [&](size_t row) {
    if (!isValid(int64_t(row))) return;
    std::vector<float> weight(hidden_);
    const int64_t target = case_.target[row];
    readRow(case_.weight, case_.workload.dtype, target, hidden_, weight.data());
    targetLogits_[row] = finalLogit(dot(&input_[int64_t(row) * hidden_], weight.data(), hidden_) + biasOf(target));
  });
}

void SampledReference::computeLogitMeans() {
  std::vector<double> weightSum(hidden_);
  double biasSum = 0;
  std::vector<float> weight(hidden_);
  const int64_t blocks = (vocab_ + kBlock - 1) / kBlock;
  std::vector<std::vector<double>> parts(blocks, std::vector<double>(hidden_));
  llvm::parallelFor(0, blocks, [&](size_t block) {
    for (int64_t v = int64_t(block) * kBlock; v < std::min<int64_t>((block + 1) * kBlock, vocab_); ++v)
      for (int64_t h = 0; h < hidden_; ++h)
        parts[block][h] += elementAt(case_.weight.data(), case_.workload.dtype, v * hidden_ + h);
  });
  for (const std::vector<double>& part : parts)
    for (int64_t h = 0; h < hidden_; ++h) weightSum[h] += part[h];
  for (int64_t v = 0; v < vocab_; ++v) biasSum += biasOf(v);
  const double count = double(pairs_) * double(tokens_) * double(vocab_);
  const double scale = case_.workload.logitScale ? case_.scalars.logitScale : 1;
  for (int64_t row = 0; row < case_.shape.rows(); ++row) {
    double sum = biasSum;
    for (int64_t h = 0; h < hidden_; ++h) sum += double(input_[row * hidden_ + h]) * weightSum[h];
    (row < case_.shape.rows() / 2 ? chosenLogitsMean_ : rejectedLogitsMean_) += scale * sum / count;
  }
}

void SampledReference::pairLoss(llvm::ArrayRef<double> logps, LossResult& want,
                                std::vector<double>& coefficients) const {
  const Scalars& scalars = case_.scalars;
  std::vector<double> means(case_.shape.sequences);
  double chosenSum = 0;
  int64_t chosenCount = 0;
  for (int64_t sequence = 0; sequence < case_.shape.sequences; ++sequence) {
    double sum = 0;
    for (int64_t token = 0; token < tokens_; ++token) sum += logps[sequence * tokens_ + token];
    means[sequence] = validPerSequence_[sequence] > 0 ? sum / double(validPerSequence_[sequence]) : 0;
    if (sequence >= pairs_) continue;
    chosenSum += sum;
    chosenCount += validPerSequence_[sequence];
  }
  const bool nll = case_.workload.nll && chosenCount > 0;
  want.nll = nll ? -chosenSum / double(chosenCount) : 0;
  coefficients.assign(case_.shape.rows(), 0);
  const auto setCoefficients = [&](int64_t sequence, double perMean, double perToken) {
    for (int64_t row = sequence * tokens_; row < (sequence + 1) * tokens_; ++row)
      if (isValid(row)) coefficients[row] = perMean / double(validPerSequence_[sequence]) + perToken;
  };
  for (int64_t pair = 0; pair < pairs_; ++pair) {
    const double d = scalars.beta * (means[pair] - means[pairs_ + pair]) - scalars.gamma;
    const double smoothing = scalars.labelSmoothing;
    want.preferenceLoss += ((1 - smoothing) * softplus(-d) + smoothing * softplus(d)) / double(pairs_);
    const double slope = (smoothing * sigmoid(d) - (1 - smoothing) * sigmoid(-d)) * scalars.beta / double(pairs_);
    setCoefficients(pair, slope, nll ? -scalars.alpha / double(chosenCount) : 0);
    setCoefficients(pairs_ + pair, -slope, 0);
    want.chosenLogps.push_back(means[pair]);
    want.rejectedLogps.push_back(means[pairs_ + pair]);
    want.chosenRewards.push_back(scalars.beta * means[pair]);
    want.rejectedRewards.push_back(scalars.beta * means[pairs_ + pair]);
  }
  want.loss = want.preferenceLoss + (case_.workload.nll ? scalars.alpha * want.nll : 0);
}

void SampledReference::gradients(llvm::ArrayRef<double> logps, llvm::ArrayRef<double> coefficients,
                                 LossResult& want) const {
  const Workload& workload = case_.workload;
  const int64_t count = case_.shape.rows();
  if (workload.gradInput) {
    want.gradInput = rowGradients_;
    for (size_t i = 0; i < want.gradInput.size(); ++i) want.gradInput[i] *= coefficients[rows_[i / hidden_]];
  }
  if (workload.gradWeight) want.gradWeight.assign(entries_.size() * hidden_, 0);
  if (workload.gradBias) want.gradBias.assign(entries_.size(), 0);
  if (!workload.gradWeight && !workload.gradBias) return;
  llvm::parallelFor(0, entries_.size(), [&](size_t i) {
    for (int64_t row = 0; row < count; ++row) {
      if (coefficients[row] == 0) continue;
      const double z = entryLogits_[i * count + row];
      const double oneHot = entries_[i] == case_.target[row] ? 1 : 0;
      const double probability = std::exp(z - (targetLogits_[row] - logps[row]));
      const double g = coefficients[row] * (oneHot - probability) * slopeAt(z);
      if (workload.gradBias) want.gradBias[i] += g;
      if (!workload.gradWeight) continue;
      for (int64_t h = 0; h < hidden_; ++h) want.gradWeight[i * hidden_ + h] += g * input_[row * hidden_ + h];
    }
  });
}

LossResult SampledReference::expected(const LossResult& got) const {
  LossResult want;
  want.perTokenLogps = passedLogps_.empty() ? got.perTokenLogps : passedLogps_;
  for (size_t i = 0; i < rows_.size(); ++i) want.perTokenLogps[rows_[i]] = rowLogps_[i];
  std::vector<double> coefficients;
  pairLoss(got.perTokenLogps, want, coefficients);
  // With a soft cap the means would take every logit.
  const bool means = case_.workload.logitMeans && !case_.workload.softcap;
  want.chosenLogitsMean = means ? chosenLogitsMean_ : got.chosenLogitsMean;
  want.rejectedLogitsMean = means ? rejectedLogitsMean_ : got.rejectedLogitsMean;
  if (case_.workload.anyGradient()) gradients(got.perTokenLogps, coefficients, want);
  return want;
}

std::vector<Comparison> SampledReference::compare(const LossResult& got) {
  const std::vector<Comparison> comparisons = lathe::compare(got, expected(got), case_.workload);
  const bool passed = llvm::all_of(comparisons, [](const Comparison& comparison) { return comparison.ok; });
  if (passed && passedLogps_.empty()) passedLogps_ = got.perTokenLogps;
  return comparisons;
}
