//===- tests/support/SimulatedDevice.h - A device to search on --*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// A Measurer whose times are known: every config has a true time, which noise and drift hide as on a real device. Some
/// configs may fault, hang or compute something wrong. The same seed gives the same numbers; time passes on a clock of
/// its own.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "tuning/Candidates.h"
#include "tuning/Measurer.h"

#include <cmath>
#include <random>

namespace lathe::test {

class SimulatedDevice : public Measurer {
public:
  explicit SimulatedDevice(uint64_t seed) : seed_(seed), random_(seed) {}

  /// Standard deviation of a time, as a share of it, and by how much all times grow in 100 s.
  double noise = 0.005;
  double drift = 0;
  /// One candidate in so many faults, hangs, or is wrong; 0: none. The untuned choice of a test may be spared.
  unsigned faulty = 0, hanging = 0, wrong = 0;
  std::optional<GemmConfigs> spared;
  /// What a hanging candidate costs, in seconds.
  double timeout = 10;
  /// Whether the whole device is lost from the visit with this number on.
  int64_t lostAt = INT64_MAX;

  int64_t visits = 0;
  int64_t hangs = 0;
  double seconds = 0;
  size_t prepared = 0;

  void prepare(llvm::ArrayRef<VisitRequest> candidates) override { prepared += candidates.size(); }

  llvm::Expected<Visit> visit(const VisitRequest& request) override {
    if (visits++ >= lostAt) return makeError(ErrorCode::Driver, "the device is lost");
    Visit visit;
    if (isOneIn(faulty, request.choices, 1)) visit.failure = "the device reported an illegal address";
    if (isOneIn(hanging, request.choices, 2)) {
      visit.failure = "it did not end within 10 s";
      seconds += timeout;
      ++hangs;
    }
    if (request.check) visit.strain = isOneIn(wrong, request.choices, 3) ? 40 : 0.1;
    if (visit.strain > 1) visit.failure = "grad_input is wrong: error 0.4";
    if (!visit.failure.empty()) return visit;
    std::normal_distribution<double> scatter(0, noise);
    for (int i = 0; i < request.repetitions; ++i) {
      const double time = trueTime(request.subject, request.choices) * (1 + drift * seconds / 100);
      visit.milliseconds.push_back(time * std::exp(scatter(random_)));
      // A run is of the whole plan, whatever is timed.
      seconds += trueTime(TuningSubject::Plan, request.choices) / 1000;
    }
    seconds += 0.01;
    return visit;
  }

  /// Milliseconds without noise.
  double trueTime(TuningSubject subject, const PlanChoices& choices) const {
    double total = 0;
    for (const Gemm gemm : {Gemm::Logits, Gemm::GradInput, Gemm::GradWeight}) {
      const double time = 6 * (1 + 0.5 * share(choices.configs.of(gemm), static_cast<uint64_t>(gemm)));
      if (subject == subjectOf(gemm)) return time;
      total += time;
    }
    return total + (choices.strategy == Strategy::Chunked ? 0.5 : 0.2);
  }

private:
  static uint64_t hashOf(const Config& config, uint64_t salt) {
    const uint64_t all[] = {salt,
                            uint64_t(config.family),
                            uint64_t(config.blockM),
                            uint64_t(config.blockN),
                            uint64_t(config.stages),
                            uint64_t(config.warpsM),
                            uint64_t(config.clusterM),
                            uint64_t(config.groupM)};
    uint64_t hash = 1469598103934665603u;
    for (uint64_t value : all)
      for (int i = 0; i < 8; ++i, value >>= 8) hash = (hash ^ (value & 255)) * 1099511628211u;
    return hash ^ (hash >> 29);
  }
  double share(const Config& config, uint64_t salt) const {
    return double(hashOf(config, seed_ + salt) % 10007) / 10007;
  }

  bool isOneIn(unsigned count, const PlanChoices& choices, uint64_t salt) const {
    if (count == 0 || spared == choices.configs) return false;
    for (const Gemm gemm : {Gemm::Logits, Gemm::GradInput, Gemm::GradWeight}) {
      const Config& config = choices.configs.of(gemm);
      if (spared && spared->of(gemm) == config) continue;
      if (hashOf(config, seed_ + salt * 1000 + static_cast<uint64_t>(gemm)) % count == 0) return true;
    }
    return false;
  }

  const uint64_t seed_;
  std::mt19937_64 random_;
};

} // namespace lathe::test
