//===- runtime/io/RandomCase.cpp - Random problems --------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/io/Case.h"
#include "runtime/io/HalfTypes.h"

#include "llvm/Support/Parallel.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

using namespace lathe;

namespace {

/// A splitmix64 sequence.
class Random {
public:
  /// Streams of one seed do not overlap in practice: the start is scrambled from both numbers.
  Random(uint64_t seed, uint64_t stream) : state_(mix(mix(seed) + stream)) {}

  uint64_t next() { return mix(state_ += kStep); }
  /// Uniform in (0, 1].
  double uniform() { return double((next() >> 11) + 1) * 0x1p-53; }
  /// Uniform in [0, count), for counts far below 2^64.
  int64_t below(int64_t count) { return static_cast<int64_t>(next() % static_cast<uint64_t>(count)); }

private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15;

  static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }

  uint64_t state_;
};

/// One stream of numbers for every use.
enum Use : uint64_t { kInput = 1, kWeight, kBias, kTarget, kMask };
uint64_t streamOf(Use use, uint64_t part) {
  return (uint64_t(use) << 48) + part;
}

void store(DType dtype, float value, char* to) {
  if (dtype == DType::FP32) {
    std::memcpy(to, &value, sizeof(value));
    return;
  }
  const uint16_t bits = dtype == DType::BF16 ? floatToBf16(value) : floatToFp16(value);
  std::memcpy(to, &bits, sizeof(bits));
}

/// `count` normal numbers, made in parts so that the result does not depend on the number of threads.
std::string normals(DType dtype, int64_t count, double deviation, uint64_t seed, Use use) {
  constexpr int64_t kPart = int64_t(1) << 16;
  const int64_t width = sizeOf(dtype);
  std::string bytes(count * width, '\0');
  llvm::parallelFor(0, (count + kPart - 1) / kPart, [&](size_t part) {
    Random random(seed, streamOf(use, part));
    const int64_t begin = int64_t(part) * kPart;
    const int64_t end = std::min(begin + kPart, count);
    for (int64_t i = begin; i < end; i += 2) {
      // Box and Muller: two uniform numbers give two independent normal ones.
      const double radius = deviation * std::sqrt(-2 * std::log(random.uniform()));
      const double angle = 2 * std::numbers::pi * random.uniform();
      store(dtype, float(radius * std::cos(angle)), &bytes[i * width]);
      if (i + 1 < end) store(dtype, float(radius * std::sin(angle)), &bytes[(i + 1) * width]);
    }
  });
  return bytes;
}

/// The tokens `[begin, end)` of a sequence that are not masked.
struct ValidRange {
  int64_t begin;
  int64_t end;
};

ValidRange validRange(int64_t tokens, double maskedFraction, Random& random) {
  if (maskedFraction >= 1) return {0, 0};
  // Lengths vary by a quarter, the prompt's share of the masked tokens from a third to two thirds.
  const double share = std::max(maskedFraction, 0.0) * (0.75 + 0.5 * random.uniform());
  const int64_t masked = std::min<int64_t>(std::llround(share * double(tokens)), tokens - 1);
  const int64_t prompt = std::llround(double(masked) * (1 + random.uniform()) / 3);
  return {prompt, tokens - (masked - prompt)};
}

std::vector<int64_t> randomTargets(const Workload& workload, const Shape& shape, int64_t ignoreIndex, uint64_t seed,
                                   double maskedFraction) {
  std::vector<int64_t> target(shape.rows(), ignoreIndex);
  Random random(seed, streamOf(kTarget, 0));
  Random mask(seed, streamOf(kMask, 0));
  for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    const ValidRange valid = validRange(shape.tokens, maskedFraction, mask);
    for (int64_t token = valid.begin; token < valid.end; ++token) {
      const int64_t drawn = random.below(workload.vocab);
      target[sequence * shape.tokens + token] = drawn == ignoreIndex ? (drawn + 1) % workload.vocab : drawn;
    }
  }
  return target;
}

} // namespace

Case lathe::makeRandomCase(const Workload& workload, const Shape& shape, const Scalars& scalars, uint64_t seed,
                           double logitStd, double maskedFraction) {
  Case result;
  result.workload = workload;
  result.shape = shape;
  result.scalars = scalars;
  const double weightStd = logitStd / std::sqrt(double(workload.hidden));
  result.input = normals(workload.dtype, shape.rows() * workload.hidden, 1, seed, kInput);
  result.weight = normals(workload.dtype, workload.vocab * workload.hidden, weightStd, seed, kWeight);
  if (workload.bias) result.bias = normals(workload.dtype, workload.vocab, logitStd / 4, seed, kBias);
  result.target = randomTargets(workload, shape, scalars.ignoreIndex, seed, maskedFraction);
  return result;
}
