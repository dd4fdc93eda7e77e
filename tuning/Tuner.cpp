//===- tuning/Tuner.cpp - Tuning a plan -------------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tuning/Tuner.h"

#include "runtime/cache/KernelRecord.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Process.h"

using namespace lathe;

namespace {

/// Visits through the measurements of earlier runs, and keeps every new one.
class Ledger {
public:
  Ledger(const TuningProblem& problem, TuningSetting setting, Measurer& measurer, const TuningFile* file)
      : problem_(problem), setting_(std::move(setting)), measurer_(measurer), file_(file), run_(newRun()) {}

  /// Takes up what `document` has of this problem in this setting. Plans that ended make what was measured before them
  /// history.
  void takeUp(const TuningDocument& document) {
    std::string ended;
    for (const TunedPlan& plan : document.plans)
      if (plan.setting == setting_ && plan.shape == problem_.shape) ended = std::max(ended, plan.date);
    for (const TuningMeasurement& measurement : document.measurements) {
      if (measurement.setting != setting_ || measurement.shape != problem_.shape) continue;
      if (!measurement.failure.empty())
        failures_.push_back(measurement);
      else if (measurement.date > ended)
        earlier_.push_back(measurement);
    }
  }

  llvm::Expected<Visit> visit(const VisitRequest& request) {
    ++visits_;
    if (std::optional<Visit> known = recall(request)) {
      ++resumed_;
      return *known;
    }
    llvm::Expected<Visit> seen = measurer_.visit(request);
    if (!seen) return seen.takeError();
    throttled_ += seen->throttled;
    if (llvm::Error error = keep(request, *seen)) return error;
    return seen;
  }

  /// Joins what was measured and `plan` into plan.json.
  llvm::Error finish(const TunedPlan& plan) const {
    if (!file_) return llvm::Error::success();
    TuningDocument document;
    document.plans = {plan};
    return file_->fold(document);
  }

  const std::string& run() const { return run_; }
  int64_t visits() const { return visits_; }
  int64_t resumed() const { return resumed_; }
  int64_t throttled() const { return throttled_; }

private:
  static std::string newRun() {
    return llvm::formatv("{0:x-8}{1:x-8}", llvm::sys::Process::GetRandomNumber(),
                         llvm::sys::Process::GetRandomNumber());
  }

  static Visit visitOf(const TuningMeasurement& measurement) {
    Visit visit;
    visit.milliseconds = measurement.milliseconds;
    visit.failure = measurement.failure;
    visit.registers = measurement.registers;
    visit.localBytes = measurement.localBytes;
    visit.sharedBytes = measurement.sharedBytes;
    visit.strain = measurement.strain;
    return visit;
  }

  /// A failure of this candidate, or its first measurement that was not taken up yet.
  std::optional<Visit> recall(const VisitRequest& request) {
    for (const TuningMeasurement& failure : failures_)
      if (failure.choices == request.choices) return visitOf(failure);
    const auto found = llvm::find_if(earlier_, [&](const TuningMeasurement& measurement) {
      return measurement.subject == request.subject && measurement.choices == request.choices &&
             (!request.check || measurement.strain >= 0);
    });
    if (found == earlier_.end()) return std::nullopt;
    const Visit visit = visitOf(*found);
    earlier_.erase(found);
    return visit;
  }

  llvm::Error keep(const VisitRequest& request, const Visit& seen) {
    TuningMeasurement measurement;
    measurement.run = run_;
    measurement.number = number_++;
    measurement.setting = setting_;
    measurement.shape = problem_.shape;
    measurement.subject = request.subject;
    measurement.choices = request.choices;
    measurement.milliseconds = seen.milliseconds;
    measurement.failure = seen.failure;
    measurement.registers = seen.registers;
    measurement.localBytes = seen.localBytes;
    measurement.sharedBytes = seen.sharedBytes;
    measurement.strain = seen.strain;
    measurement.date = utcNow();
    if (!seen.failure.empty()) failures_.push_back(measurement);
    return file_ ? file_->append(measurement) : llvm::Error::success();
  }

  const TuningProblem& problem_;
  const TuningSetting setting_;
  Measurer& measurer_;
  const TuningFile* file_;
  const std::string run_;
  /// Oldest first.
  std::vector<TuningMeasurement> earlier_;
  std::vector<TuningMeasurement> failures_;
  int64_t number_ = 0;
  int64_t visits_ = 0;
  int64_t resumed_ = 0;
  int64_t throttled_ = 0;
};

/// One tuning run.
class Tuner {
public:
  Tuner(const TuningProblem& problem, const TuningSetting& setting, Measurer& measurer, const TuningFile* file,
        const TunerOptions& options, const SearchListener& listener, const std::function<double()>& now)
      : problem_(problem), setting_(setting), measurer_(measurer), options_(options), listener_(listener), now_(now),
        begin_(now()), visitsLeft_(options.visits.value_or(INT64_MAX)), ledger_(problem, setting, measurer, file) {}

  void takeUp(const TuningDocument& document) { ledger_.takeUp(document); }

  llvm::Expected<TunerReport> run(const PlanChoices& untuned) {
    const std::vector<Gemm> products = productsOf(problem_.workload);
    std::vector<std::vector<PlanChoices>> candidates;
    for (const Gemm gemm : products) candidates.push_back(productCandidates(gemm, untuned, problem_, options_.width));
    prepareAll(products, candidates);

    GemmConfigs best = untuned.configs;
    for (size_t i = 0; i < products.size(); ++i) {
      // The searches that are still to come, that of the plan counted twice, have equal shares of the time.
      llvm::Expected<std::vector<Standing>> standings =
          search(subjectOf(products[i]), candidates[i], static_cast<double>(products.size() - i) + 2);
      if (!standings) return standings.takeError();
      llvm::Expected<std::optional<Config>> winner = checkedWinner(products[i], *standings);
      if (!winner) return winner.takeError();
      if (*winner) best = withConfig(best, products[i], **winner);
    }
    llvm::Expected<std::vector<Standing>> plans = searchPlans(untuned, best);
    if (!plans) return plans.takeError();
    return finish(untuned, *plans);
  }

private:
  void prepareAll(llvm::ArrayRef<Gemm> products, llvm::ArrayRef<std::vector<PlanChoices>> candidates) {
    std::vector<VisitRequest> requests;
    for (size_t i = 0; i < products.size(); ++i)
      for (const PlanChoices& choices : candidates[i])
        requests.push_back({subjectOf(products[i]), choices, options_.search.repetitions, false});
    measurer_.prepare(requests);
  }

  llvm::Expected<std::vector<Standing>> search(TuningSubject subject, llvm::ArrayRef<PlanChoices> candidates,
                                               double sharesLeft) {
    SearchOptions options = options_.search;
    options.check = subject == TuningSubject::Plan;
    const double end = begin_ + options_.budgetSeconds;
    const double now = now_();
    const SearchLimits limits{now + std::max(0.0, end - now) / sharesLeft, now_, &visitsLeft_};
    const VisitFunction visit = [&](const VisitRequest& request) { return ledger_.visit(request); };
    llvm::Expected<std::vector<Standing>> standings =
        findFastest(subject, candidates, options, limits, visit, listener_);
    if (standings) report_.subjects.push_back({subject, *standings});
    return standings;
  }

  /// The config of the fastest whose outputs are right; none when the search had no finalist.
  llvm::Expected<std::optional<Config>> checkedWinner(Gemm gemm, llvm::ArrayRef<Standing> standings) {
    for (const Standing& standing : standings) {
      if (!standing.failure.empty() || !standing.finalist) break;
      llvm::Expected<Visit> seen =
          ledger_.visit({TuningSubject::Plan, standing.choices, options_.search.repetitions, true});
      if (!seen) return seen.takeError();
      if (seen->failure.empty()) return standing.choices.configs.of(gemm);
    }
    return std::nullopt;
  }

  llvm::Expected<std::vector<Standing>> searchPlans(const PlanChoices& untuned, const GemmConfigs& best) {
    std::vector<PlanChoices> candidates{untuned};
    const auto add = [&](const PlanChoices& choices) {
      if (!llvm::is_contained(candidates, choices)) candidates.push_back(choices);
    };
    for (const PlanChoices& choices : strategyCandidates(best, problem_)) add(choices);
    // The fastest products together are not always the fastest plan.
    for (const SubjectReport& report : report_.subjects) addRunnersUp(report, untuned, best, add);
    std::vector<VisitRequest> requests;
    for (const PlanChoices& choices : candidates)
      requests.push_back({TuningSubject::Plan, choices, options_.search.repetitions, true});
    measurer_.prepare(requests);
    return search(TuningSubject::Plan, candidates, 1);
  }

  /// Adds plans with the second of a product, and with the untuned config of one.
  template <class Add>
  void addRunnersUp(const SubjectReport& report, const PlanChoices& untuned, const GemmConfigs& best, Add add) const {
    for (const Gemm gemm : productsOf(problem_.workload)) {
      if (subjectOf(gemm) != report.subject) continue;
      const auto with = [&](const Config& config) {
        const PlanChoices choices{untuned.strategy, untuned.chunkPairs, withConfig(best, gemm, config)};
        llvm::Expected<PlanGraph> graph = layOutPlan(problem_.workload, problem_.shape, problem_.target, choices);
        if (!graph)
          llvm::consumeError(graph.takeError());
        else if (!problem_.workspaceLimit || graph->workspaceBytes <= *problem_.workspaceLimit)
          add(choices);
      };
      if (report.standings.size() > 1 && report.standings[1].failure.empty())
        with(report.standings[1].choices.configs.of(gemm));
      with(untuned.configs.of(gemm));
    }
  }

  llvm::Expected<TunerReport> finish(const PlanChoices& untuned, llvm::ArrayRef<Standing> plans) {
    if (plans.empty() || plans.front().timing.repetitions == 0)
      return makeError(ErrorCode::Unsupported, "no plan could be measured; the untuned one: {0}",
                       plans.empty() ? "it was not reached" : plans.front().failure);
    const Standing& winner = plans.front();
    const auto own = llvm::find_if(plans, [&](const Standing& standing) { return standing.choices == untuned; });
    TunedPlan& plan = report_.plan;
    plan.run = ledger_.run();
    plan.setting = setting_;
    plan.shape = problem_.shape;
    plan.choices = winner.choices;
    plan.median = winner.timing.median;
    plan.p20 = winner.timing.p20;
    plan.p80 = winner.timing.p80;
    plan.untunedMedian = own == plans.end() ? 0 : own->timing.median;
    plan.date = utcNow();
    plan.latheVersion = LATHE_VERSION;
    if (llvm::Error error = ledger_.finish(plan)) return error;
    report_.visits = ledger_.visits();
    report_.resumed = ledger_.resumed();
    report_.throttled = ledger_.throttled();
    report_.seconds = now_() - begin_;
    return std::move(report_);
  }

  const TuningProblem& problem_;
  const TuningSetting& setting_;
  Measurer& measurer_;
  const TunerOptions& options_;
  const SearchListener& listener_;
  const std::function<double()>& now_;
  const double begin_;
  int64_t visitsLeft_;
  Ledger ledger_;
  TunerReport report_;
};

} // namespace

llvm::Expected<TunerReport> lathe::tune(const TuningProblem& problem, const TuningSetting& setting, Measurer& measurer,
                                        const TuningFile* file, const TunerOptions& options,
                                        const SearchListener& listener, const std::function<double()>& now) {
  llvm::Expected<PlanChoices> untuned = untunedChoices(problem);
  if (!untuned) return untuned.takeError();
  Tuner tuner(problem, setting, measurer, file, options, listener, now);
  if (!file) return tuner.run(*untuned);
  llvm::Expected<TuningDocument> document = file->read();
  // A damaged file is set aside when the results are written.
  if (!document) {
    llvm::consumeError(document.takeError());
    return tuner.run(*untuned);
  }
  const std::optional<TunedChoice> known = findTuned(*document, setting, problem.shape.rows());
  if (known && !known->stale && !options.again) {
    TunerReport report;
    report.plan = known->plan;
    report.known = true;
    return report;
  }
  tuner.takeUp(*document);
  return tuner.run(*untuned);
}
