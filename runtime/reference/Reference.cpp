//===- runtime/reference/Reference.cpp - The loss on the host ---------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/reference/Reference.h"

#include "generator/Workload.h"
#include "runtime/io/HalfTypes.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Parallel.h"

#include <algorithm>
#include <cblas.h>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

using namespace lathe;

namespace {

template <class Real>
void gemm(CBLAS_TRANSPOSE transposeA, CBLAS_TRANSPOSE transposeB, int64_t m, int64_t n, int64_t k, const Real* a,
          const Real* b, Real beta, Real* c) {
  const auto lda = static_cast<blasint>(transposeA == CblasNoTrans ? k : m);
  const auto ldb = static_cast<blasint>(transposeB == CblasNoTrans ? n : k);
  const auto call = [&](auto* function) {
    function(CblasRowMajor, transposeA, transposeB, static_cast<blasint>(m), static_cast<blasint>(n),
             static_cast<blasint>(k), Real(1), a, lda, b, ldb, beta, c, static_cast<blasint>(n));
  };
  if constexpr (std::is_same_v<Real, double>)
    call(cblas_dgemm);
  else
    call(cblas_sgemm);
}

/// Converts `count` elements of `type` that begin at element `first`.
template <class Real> void convert(DType type, const void* source, int64_t first, int64_t count, Real* out) {
  const char* bytes = static_cast<const char*>(source) + first * sizeOf(type);
  if (type == DType::FP32) {
    for (int64_t i = 0; i < count; ++i) {
      float value;
      std::memcpy(&value, bytes + i * sizeof(value), sizeof(value));
      out[i] = value;
    }
    return;
  }
  const auto widen = type == DType::BF16 ? bf16ToFloat : fp16ToFloat;
  for (int64_t i = 0; i < count; ++i) {
    uint16_t value;
    std::memcpy(&value, bytes + i * sizeof(value), sizeof(value));
    out[i] = widen(value);
  }
}

/// Calls `body` with `[0, count)`, in parallel when there are enough elements to be worth waking threads.
template <class Body> void forEachIndex(int64_t count, int64_t elementsEach, Body body) {
  constexpr int64_t kWorthThreads = int64_t(1) << 14;
  if (count * elementsEach >= kWorthThreads) {
    llvm::parallelFor(0, count, body);
    return;
  }
  for (int64_t i = 0; i < count; ++i) body(i);
}

/// log(1 + exp(x)) without overflow.
double softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}

double sigmoid(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}

llvm::Error check(const Problem& problem) {
  if (llvm::Error error = validate(problem.workload)) return error;
  if (llvm::Error error = validate(problem.workload, problem.shape)) return error;
  if (llvm::Error error = validate(problem.workload, problem.scalars)) return error;
  const struct {
    const char* name;
    const void* pointer;
    bool used;
  } pointers[] = {
      {"input", problem.input, true},
      {"weight", problem.weight, true},
      {"bias", problem.bias, problem.workload.bias},
      {"target", problem.target, true},
  };
  for (const auto& entry : pointers)
    if (entry.used && !entry.pointer)
      return makeError(ErrorCode::InvalidArgument, "{0} is null; pass the tensor's address in host memory", entry.name);
  return llvm::Error::success();
}

/// What one pass over a row of logits gives.
struct RowSums {
  /// Sum of the logits, scaled and capped.
  double logits = 0;
  double logSumExp = 0;
};

/// The loss of one problem. `forward` comes before `pairLoss`, and that before `backward`.
template <class Real> class Evaluation {
public:
  explicit Evaluation(const Problem& problem);

  void forward();
  void pairLoss();
  void backward();
  LossResult take() { return std::move(result_); }

private:
  bool isIgnored(int64_t row) const { return problem_.target[row] == problem_.scalars.ignoreIndex; }
  bool isBad(int64_t row) const {
    return !isIgnored(row) && (problem_.target[row] < 0 || problem_.target[row] >= vocab_);
  }

  void countTargets();
  /// Calls `visit` with the rows of `all` block by block, after their inputs and raw logits (scale and cap not yet
  /// applied) are in `x_` and `z_`.
  template <class Visit> void forEachBlock(llvm::ArrayRef<int64_t> all, Visit visit);
  double finalLogit(Real raw) const;
  RowSums sumsOf(const Real* logits) const;
  /// Sets the target's log-probability of a row, and returns the sum of its logits.
  double forwardRow(int64_t row, const Real* logits);
  /// Replaces a row of raw logits by their gradient. The softmax is of these very logits: those of `forward` may differ
  /// in the last bit, as a matrix product depends on the rows beside, and then it would not sum to one.
  void backwardRow(int64_t row, Real* logits) const;
  void addGradients(llvm::ArrayRef<int64_t> rows);

  const Problem& problem_;
  const int64_t hidden_ = problem_.workload.hidden;
  const int64_t vocab_ = problem_.workload.vocab;
  const int64_t rows_ = problem_.shape.rows();
  const int64_t tokens_ = problem_.shape.tokens;
  const int64_t pairs_ = problem_.shape.pairs();

  std::vector<Real> weight_;
  std::vector<Real> bias_;
  std::vector<Real> x_;
  std::vector<Real> z_;
  std::vector<Real> gradRows_;
  std::vector<Real> gradWeight_;
  std::vector<int64_t> validPerSequence_;
  /// d loss / d log-probability of every row's target; 0 for rows that are not valid.
  std::vector<double> coefficients_;
  LossResult result_;
};

template <class Real>
Evaluation<Real>::Evaluation(const Problem& problem)
    : problem_(problem), weight_(vocab_ * hidden_), validPerSequence_(problem.shape.sequences), coefficients_(rows_) {
  const Workload& workload = problem.workload;
  forEachIndex(vocab_, hidden_,
               [&](size_t v) { convert(workload.dtype, problem.weight, v * hidden_, hidden_, &weight_[v * hidden_]); });
  if (workload.bias) {
    bias_.resize(vocab_);
    convert(workload.dtype, problem.bias, 0, vocab_, bias_.data());
  }
  result_.perTokenLogps.resize(rows_);
  countTargets();
}

template <class Real> void Evaluation<Real>::countTargets() {
  Diagnostics& diagnostics = result_.diagnostics;
  for (int64_t row = 0; row < rows_; ++row) {
    if (isIgnored(row)) continue;
    ++validPerSequence_[row / tokens_];
    ++diagnostics.validTokens;
    if (!isBad(row)) continue;
    if (diagnostics.badTargets++ > 0) continue;
    diagnostics.firstBadSequence = row / tokens_;
    diagnostics.firstBadToken = row % tokens_;
  }
  diagnostics.emptySequences = std::count(validPerSequence_.begin(), validPerSequence_.end(), 0);
}

template <class Real>
template <class Visit>
void Evaluation<Real>::forEachBlock(llvm::ArrayRef<int64_t> all, Visit visit) {
  const int64_t fitting = problem_.blockBytes / (vocab_ * static_cast<int64_t>(sizeof(Real)));
  const size_t blockRows = std::clamp<int64_t>(fitting, 1, rows_);
  for (size_t begin = 0; begin < all.size(); begin += blockRows) {
    const llvm::ArrayRef<int64_t> rows = all.slice(begin, std::min(blockRows, all.size() - begin));
    x_.resize(rows.size() * hidden_);
    z_.resize(rows.size() * vocab_);
    for (size_t i = 0; i < rows.size(); ++i) {
      convert(problem_.workload.dtype, problem_.input, rows[i] * hidden_, hidden_, &x_[i * hidden_]);
      if (problem_.workload.bias) std::copy(bias_.begin(), bias_.end(), z_.begin() + i * vocab_);
    }
    const Real beta = problem_.workload.bias ? 1 : 0;
    gemm<Real>(CblasNoTrans, CblasTrans, rows.size(), vocab_, hidden_, x_.data(), weight_.data(), beta, z_.data());
    visit(rows);
  }
}

template <class Real> double Evaluation<Real>::finalLogit(Real raw) const {
  double z = raw;
  if (problem_.workload.logitScale) z *= problem_.scalars.logitScale;
  if (problem_.workload.softcap) z = problem_.scalars.softcap * std::tanh(z / problem_.scalars.softcap);
  return z;
}

template <class Real> RowSums Evaluation<Real>::sumsOf(const Real* logits) const {
  double largest = -std::numeric_limits<double>::infinity();
  for (int64_t v = 0; v < vocab_; ++v) largest = std::max(largest, finalLogit(logits[v]));
  RowSums sums;
  double exponentials = 0;
  for (int64_t v = 0; v < vocab_; ++v) {
    const double z = finalLogit(logits[v]);
    sums.logits += z;
    exponentials += std::exp(z - largest);
  }
  sums.logSumExp = largest + std::log(exponentials);
  return sums;
}

template <class Real> double Evaluation<Real>::forwardRow(int64_t row, const Real* logits) {
  const RowSums sums = sumsOf(logits);
  if (isBad(row))
    result_.perTokenLogps[row] = std::numeric_limits<double>::quiet_NaN();
  else if (!isIgnored(row))
    result_.perTokenLogps[row] = finalLogit(logits[problem_.target[row]]) - sums.logSumExp;
  return sums.logits;
}

template <class Real> void Evaluation<Real>::forward() {
  const bool means = problem_.workload.logitMeans;
  std::vector<int64_t> needed;
  for (int64_t row = 0; row < rows_; ++row)
    if (means || !isIgnored(row)) needed.push_back(row);

  std::vector<double> sums(rows_);
  forEachBlock(needed, [&](llvm::ArrayRef<int64_t> rows) {
    forEachIndex(rows.size(), vocab_, [&](size_t i) { sums[rows[i]] = forwardRow(rows[i], &z_[i * vocab_]); });
  });
  if (!means) return;
  const double count = double(pairs_) * double(tokens_) * double(vocab_);
  for (int64_t row = 0; row < rows_; ++row)
    (row < rows_ / 2 ? result_.chosenLogitsMean : result_.rejectedLogitsMean) += sums[row] / count;
}

template <class Real> void Evaluation<Real>::pairLoss() {
  const Scalars& scalars = problem_.scalars;
  std::vector<double> means(problem_.shape.sequences);
  double chosenSum = 0;
  int64_t chosenCount = 0;
  for (int64_t sequence = 0; sequence < problem_.shape.sequences; ++sequence) {
    double sum = 0;
    for (int64_t token = 0; token < tokens_; ++token) sum += result_.perTokenLogps[sequence * tokens_ + token];
    means[sequence] = validPerSequence_[sequence] > 0 ? sum / double(validPerSequence_[sequence]) : 0;
    if (sequence >= pairs_) continue;
    chosenSum += sum;
    chosenCount += validPerSequence_[sequence];
  }

  const bool nll = problem_.workload.nll && chosenCount > 0;
  result_.nll = nll ? -chosenSum / double(chosenCount) : 0;
  const auto coefficientsOf = [&](int64_t sequence, double perMean, double perToken) {
    for (int64_t row = sequence * tokens_; row < (sequence + 1) * tokens_; ++row)
      if (!isIgnored(row))
        coefficients_[row] = problem_.upstreamScale * (perMean / double(validPerSequence_[sequence]) + perToken);
  };
  const double smoothing = scalars.labelSmoothing;
  for (int64_t pair = 0; pair < pairs_; ++pair) {
    const double d = scalars.beta * (means[pair] - means[pairs_ + pair]) - scalars.gamma;
    result_.preferenceLoss += ((1 - smoothing) * softplus(-d) + smoothing * softplus(d)) / double(pairs_);
    const double slope = (smoothing * sigmoid(d) - (1 - smoothing) * sigmoid(-d)) * scalars.beta / double(pairs_);
    coefficientsOf(pair, slope, nll ? -scalars.alpha / double(chosenCount) : 0);
    coefficientsOf(pairs_ + pair, -slope, 0);
  }
  result_.loss = result_.preferenceLoss + (problem_.workload.nll ? scalars.alpha * result_.nll : 0);
  if (result_.diagnostics.badTargets > 0) result_.loss = std::numeric_limits<double>::quiet_NaN();

  result_.chosenLogps.assign(means.begin(), means.begin() + pairs_);
  result_.rejectedLogps.assign(means.begin() + pairs_, means.end());
  for (const double mean : result_.chosenLogps) result_.chosenRewards.push_back(scalars.beta * mean);
  for (const double mean : result_.rejectedLogps) result_.rejectedRewards.push_back(scalars.beta * mean);
}

template <class Real> void Evaluation<Real>::backwardRow(int64_t row, Real* logits) const {
  const Workload& workload = problem_.workload;
  const double scale = workload.logitScale ? problem_.scalars.logitScale : 1;
  const double coefficient = coefficients_[row];
  const int64_t target = isBad(row) ? -1 : problem_.target[row];
  const double logSumExp = sumsOf(logits).logSumExp;
  for (int64_t v = 0; v < vocab_; ++v) {
    const double z = finalLogit(logits[v]);
    double slope = scale;
    if (workload.softcap) {
      const double ratio = z / problem_.scalars.softcap;
      slope *= 1 - ratio * ratio;
    }
    const double oneHot = v == target ? 1 : 0;
    logits[v] = static_cast<Real>(coefficient * (oneHot - std::exp(z - logSumExp)) * slope);
  }
}

template <class Real> void Evaluation<Real>::addGradients(llvm::ArrayRef<int64_t> rows) {
  const Workload& workload = problem_.workload;
  if (workload.gradInput) {
    gradRows_.resize(rows.size() * hidden_);
    gemm<Real>(CblasNoTrans, CblasNoTrans, rows.size(), hidden_, vocab_, z_.data(), weight_.data(), 0,
               gradRows_.data());
    for (size_t i = 0; i < rows.size(); ++i)
      std::copy_n(gradRows_.begin() + i * hidden_, hidden_, result_.gradInput.begin() + rows[i] * hidden_);
  }
  if (workload.gradWeight)
    gemm<Real>(CblasTrans, CblasNoTrans, vocab_, hidden_, rows.size(), z_.data(), x_.data(), 1, gradWeight_.data());
  if (!workload.gradBias) return;
  for (size_t i = 0; i < rows.size(); ++i)
    for (int64_t v = 0; v < vocab_; ++v) result_.gradBias[v] += z_[i * vocab_ + v];
}

template <class Real> void Evaluation<Real>::backward() {
  const Workload& workload = problem_.workload;
  if (workload.gradInput) result_.gradInput.resize(rows_ * hidden_);
  if (workload.gradWeight) gradWeight_.resize(vocab_ * hidden_);
  if (workload.gradBias) result_.gradBias.resize(vocab_);
  std::vector<int64_t> needed;
  for (int64_t row = 0; row < rows_; ++row)
    if (coefficients_[row] != 0) needed.push_back(row);

  forEachBlock(needed, [&](llvm::ArrayRef<int64_t> rows) {
    forEachIndex(rows.size(), vocab_, [&](size_t i) { backwardRow(rows[i], &z_[i * vocab_]); });
    addGradients(rows);
  });
  if constexpr (std::is_same_v<Real, double>)
    result_.gradWeight = std::move(gradWeight_);
  else
    result_.gradWeight.assign(gradWeight_.begin(), gradWeight_.end());
}

} // namespace

template <class Real> llvm::Expected<LossResult> lathe::computeReference(const Problem& problem) {
  if (llvm::Error error = check(problem)) return error;
  Evaluation<Real> evaluation(problem);
  evaluation.forward();
  evaluation.pairLoss();
  if (problem.workload.anyGradient()) evaluation.backward();
  return evaluation.take();
}

template llvm::Expected<LossResult> lathe::computeReference<double>(const Problem&);
template llvm::Expected<LossResult> lathe::computeReference<float>(const Problem&);
