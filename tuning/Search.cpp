//===- tuning/Search.cpp - Finding the fastest of many ---------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tuning/Search.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>

using namespace lathe;

namespace {

/// Two standard errors: one lead in twenty or so is luck.
constexpr double kBeyondNoise = 2;
/// No clock is better than this.
constexpr double kLeastError = 0.0005;
/// Rounds from which the scatter of the rounds themselves can be told.
constexpr size_t kTellingRounds = 3;

/// A candidate in the race.
struct Runner {
  PlanChoices choices;
  /// Logarithm of the median time of each round, and what the scatter within a round says of its error.
  std::vector<double> rounds;
  double roundError = 0;
  std::vector<double> times;
  std::string failure;

  /// The mean over the rounds. Only runners with the same rounds can be compared.
  double score() const {
    double sum = 0;
    for (const double round : rounds) sum += round;
    return sum / static_cast<double>(rounds.size());
  }

  void add(const Visit& visit) {
    const Timing timing = summarize(visit.milliseconds);
    rounds.push_back(std::log(std::max(timing.median, 1e-9)));
    const double spread = timing.median > 0 ? (timing.p80 - timing.p20) / timing.median / 2 : 0;
    roundError = std::max(roundError, spread / std::sqrt(static_cast<double>(timing.repetitions)));
    llvm::append_range(times, visit.milliseconds);
  }
};

/// By how much `a` is behind `b`, as a share of the time, and the standard error of that.
struct Lead {
  double mean = 0;
  double error = 0;

  bool isBeyondNoise() const { return mean > kBeyondNoise * error; }
};

Lead leadOf(const Runner& b, const Runner& a) {
  const size_t count = std::min(a.rounds.size(), b.rounds.size());
  Lead lead;
  for (size_t i = 0; i < count; ++i) lead.mean += (a.rounds[i] - b.rounds[i]) / static_cast<double>(count);
  if (count < kTellingRounds) {
    const double both = std::sqrt(a.roundError * a.roundError + b.roundError * b.roundError);
    lead.error = std::max(kLeastError, both / std::sqrt(static_cast<double>(count)));
    return lead;
  }
  double squares = 0;
  for (size_t i = 0; i < count; ++i) {
    const double off = a.rounds[i] - b.rounds[i] - lead.mean;
    squares += off * off;
  }
  const double variance = squares / static_cast<double>(count - 1);
  lead.error = std::max(kLeastError, std::sqrt(variance / static_cast<double>(count)));
  return lead;
}

class Race {
public:
  Race(TuningSubject subject, llvm::ArrayRef<PlanChoices> candidates, const SearchOptions& options,
       const SearchLimits& limits, const VisitFunction& visit, const SearchListener& listener)
      : subject_(subject), options_(options), limits_(limits), visit_(visit), listener_(listener) {
    for (const PlanChoices& choices : candidates) left_.push_back({choices, {}, 0, {}, ""});
  }

  llvm::Error run() {
    for (int round = 0; round < options_.mostRounds && !left_.empty(); ++round) {
      llvm::Expected<bool> whole = runRound(round);
      if (!whole) return whole.takeError();
      if (!*whole) break;
      dropSlower();
      if (isDecided()) break;
    }
    return llvm::Error::success();
  }

  std::vector<Standing> standings() {
    std::vector<Standing> result;
    // A round that was cut short leaves runners with a round more: their last one does not count.
    size_t common = left_.empty() ? 0 : left_.front().rounds.size();
    for (const Runner& runner : left_) common = std::min(common, runner.rounds.size());
    std::vector<Runner> finalists, others;
    for (Runner& runner : left_) {
      if (common > 0) runner.rounds.resize(common);
      (runner.rounds.empty() ? others : finalists).push_back(std::move(runner));
    }
    sortByScore(finalists);
    for (const Runner& runner : finalists) result.push_back(standingOf(runner, /*finalist=*/true));
    llvm::stable_sort(dropped_, [](const Runner& a, const Runner& b) {
      return summarize(a.times).median < summarize(b.times).median;
    });
    for (const Runner& runner : dropped_) result.push_back(standingOf(runner, false));
    for (const Runner& runner : failed_) result.push_back(standingOf(runner, false));
    return result;
  }

private:
  static void sortByScore(std::vector<Runner>& runners) {
    llvm::stable_sort(runners, [](const Runner& a, const Runner& b) { return a.score() < b.score(); });
  }

  static Standing standingOf(const Runner& runner, bool finalist) {
    return {runner.choices, summarize(runner.times), runner.failure, static_cast<int>(runner.rounds.size()), finalist};
  }

  /// Visits everyone who is left; false when a limit was reached first.
  llvm::Expected<bool> runRound(int round) {
    const size_t count = left_.size();
    bool whole = true;
    for (size_t i = 0; i < count; ++i) {
      const bool mandatory = round == 0 && i == 0;
      if (!mandatory && limits_.reached()) {
        whole = false;
        break;
      }
      // The first round goes by rank, so that a short budget is spent on the likeliest.
      Runner& runner = left_[(i + static_cast<size_t>(round)) % count];
      llvm::Expected<Visit> seen =
          visit_({subject_, runner.choices, options_.repetitions, options_.check && round == 0});
      if (!seen) return seen.takeError();
      if (limits_.visitsLeft) --*limits_.visitsLeft;
      runner.failure = seen->failure;
      if (seen->failure.empty() && !seen->milliseconds.empty()) {
        runner.add(*seen);
        const double median = summarize(seen->milliseconds).median;
        best_ = best_ == 0 ? median : std::min(best_, median);
      } else if (runner.failure.empty()) {
        runner.failure = "it gave no times";
      }
      listener_({subject_, round, count, i + 1, &runner.choices, &*seen, best_});
    }
    removeFailed();
    return whole;
  }

  void removeFailed() {
    std::vector<Runner> kept;
    for (Runner& runner : left_) (runner.failure.empty() ? kept : failed_).push_back(std::move(runner));
    left_ = std::move(kept);
  }

  void dropSlower() {
    if (left_.empty()) return;
    sortByScore(left_);
    const size_t half = (left_.size() + 1) / 2;
    std::vector<Runner> kept;
    for (size_t i = 0; i < left_.size(); ++i) {
      const bool slower = i >= half && leadOf(left_.front(), left_[i]).isBeyondNoise();
      (slower ? dropped_ : kept).push_back(left_[i]);
    }
    left_ = std::move(kept);
  }

  /// Whether another round could change nothing that matters.
  bool isDecided() const {
    if (left_.size() < 2) return true;
    if (left_.front().rounds.size() < kTellingRounds) return false;
    return llvm::all_of(llvm::ArrayRef(left_).drop_front(), [&](const Runner& runner) {
      const Lead lead = leadOf(left_.front(), runner);
      return lead.isBeyondNoise() || kBeyondNoise * lead.error < options_.precision;
    });
  }

  TuningSubject subject_;
  const SearchOptions& options_;
  const SearchLimits& limits_;
  const VisitFunction& visit_;
  const SearchListener& listener_;
  /// By score from the second round on.
  std::vector<Runner> left_;
  std::vector<Runner> dropped_;
  std::vector<Runner> failed_;
  double best_ = 0;
};

} // namespace

llvm::Expected<std::vector<Standing>> lathe::findFastest(TuningSubject subject, llvm::ArrayRef<PlanChoices> candidates,
                                                         const SearchOptions& options, const SearchLimits& limits,
                                                         const VisitFunction& visit, const SearchListener& listener) {
  Race race(subject, candidates, options, limits, visit, listener);
  if (llvm::Error error = race.run()) return error;
  return race.standings();
}
