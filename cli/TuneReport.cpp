//===- cli/TuneReport.cpp - What tuning shows ------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/TuneReport.h"

#include "cli/Text.h"
#include "generator/Workload.h"
#include "tuning/SvgPlot.h"

#include "llvm/ADT/STLExtras.h"

#include <map>

using namespace lathe;
using namespace lathe::cli;

namespace {

/// Standings of a subject that the table shows.
constexpr size_t kShown = 5;
constexpr int kBarWidth = 24;

/// What tells a candidate of `subject` from the others.
std::string describe(TuningSubject subject, const PlanChoices& choices) {
  switch (subject) {
  case TuningSubject::Logits:
    return toString(choices.configs.logits);
  case TuningSubject::GradInput:
    return toString(choices.configs.gradInput);
  case TuningSubject::GradWeight:
    return toString(choices.configs.gradWeight);
  case TuningSubject::Plan:
    return choices.strategy == Strategy::Stored
               ? std::string("stored")
               : llvm::formatv("chunked, {0} pairs at a time", choices.chunkPairs).str();
  }
  llvm_unreachable("unknown subject");
}

llvm::json::Value jsonOf(const Timing& timing) {
  return llvm::json::Object{{"median_ms", timing.median}, {"p20_ms", timing.p20},
                            {"p80_ms", timing.p80},       {"low_ms", timing.low},
                            {"high_ms", timing.high},     {"repetitions", timing.repetitions}};
}

llvm::json::Value jsonOf(const Standing& standing) {
  llvm::json::Object object{
      {"choices", toJson(standing.choices)}, {"rounds", standing.rounds}, {"finalist", standing.finalist}};
  if (standing.timing.repetitions > 0) object["time"] = jsonOf(standing.timing);
  if (!standing.failure.empty()) object["failure"] = standing.failure;
  return object;
}

/// `3.4 % faster than untuned`
std::string gainText(const TunedPlan& plan) {
  if (plan.untunedMedian <= 0) return "the untuned plan was not measured";
  const double gain = (plan.untunedMedian / plan.median - 1) * 100;
  return llvm::formatv("{0:f1} % faster than untuned ({1})", gain, timeText(plan.untunedMedian));
}

std::string sizeText(const Shape& shape) {
  return llvm::formatv("{0} x {1}", shape.sequences, shape.tokens);
}

} // namespace

double TuneReporter::secondsSinceBegin() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

void TuneReporter::emit(llvm::json::Object event) const {
  session_.out << llvm::formatv("{0}", llvm::json::Value(std::move(event))) << '\n';
  session_.out.flush();
}

void TuneReporter::begin(const WorkItem& item, size_t index, size_t count) {
  begin_ = std::chrono::steady_clock::now();
  where_ = count > 1 ? llvm::formatv("[{0}/{1}] ", index + 1, count).str() : "";
  if (json_)
    emit(llvm::json::Object{{"event", "begin"},
                            {"name", item.name},
                            {"workload", workloadDigest(item.workload).text()},
                            {"sequences", item.shape.sequences},
                            {"tokens", item.shape.tokens},
                            {"item", static_cast<int64_t>(index)},
                            {"items", static_cast<int64_t>(count)}});
  else
    session_.err << where_ << "tuning " << item.name << ", " << sizeText(item.shape) << " tokens\n";
}

void TuneReporter::progress(const SearchProgress& progress) {
  if (json_) {
    const Timing timing = summarize(progress.visit->milliseconds);
    llvm::json::Object event{{"event", "visit"},
                             {"subject", toString(progress.subject)},
                             {"round", progress.round},
                             {"left", static_cast<int64_t>(progress.left)},
                             {"choices", toJson(*progress.choices)},
                             {"seconds", secondsSinceBegin()},
                             {"clock_mhz", progress.visit->clock},
                             {"throttled", progress.visit->throttled}};
    if (timing.repetitions > 0) event["time"] = jsonOf(timing);
    if (!progress.visit->failure.empty()) event["failure"] = progress.visit->failure;
    emit(std::move(event));
  } else if (session_.progress) {
    drawBar(progress);
  } else if (progress.visited == progress.left) {
    session_.err << where_ << toString(progress.subject) << ", round " << progress.round + 1 << ": " << progress.left
                 << " candidates, best " << timeText(progress.best) << ", "
                 << llvm::formatv("{0:f0} s\n", secondsSinceBegin());
  }
}

void TuneReporter::drawBar(const SearchProgress& progress) {
  const double spent = std::min(1.0, budget_ > 0 ? secondsSinceBegin() / budget_ : 1.0);
  const int filled = static_cast<int>(spent * kBarWidth);
  const std::string bar =
      std::string(static_cast<size_t>(filled), '#') + std::string(static_cast<size_t>(kBarWidth - filled), '.');
  session_.err << '\r' << where_ << '[' << bar << "] " << toString(progress.subject) << " round " << progress.round + 1
               << ", " << progress.visited << '/' << progress.left << ", best " << timeText(progress.best)
               << ", at most " << llvm::formatv("{0:f0} s left", std::max(0.0, budget_ - secondsSinceBegin()))
               << "\x1b[K";
  session_.err.flush();
  barShown_ = true;
}

void TuneReporter::clearBar() {
  if (barShown_) session_.err << "\r\x1b[K";
  barShown_ = false;
}

void TuneReporter::fail(const WorkItem& item, llvm::StringRef message) {
  clearBar();
  if (json_) emit(llvm::json::Object{{"event", "error"}, {"name", item.name}, {"message", message}});
  session_.err << where_ << "lathe: " << item.name << ", " << sizeText(item.shape) << ": " << message << '\n';
}

void TuneReporter::end(const WorkItem& item, const TunerReport& report) {
  clearBar();
  if (!json_) {
    printReport(report);
    return;
  }
  llvm::json::Array subjects;
  for (const SubjectReport& subject : report.subjects) {
    llvm::json::Array standings;
    for (const Standing& standing : subject.standings) standings.push_back(jsonOf(standing));
    subjects.push_back(llvm::json::Object{{"subject", toString(subject.subject)}, {"standings", std::move(standings)}});
  }
  emit(llvm::json::Object{{"event", "end"},
                          {"name", item.name},
                          {"known", report.known},
                          {"visits", report.visits},
                          {"resumed", report.resumed},
                          {"throttled", report.throttled},
                          {"seconds", report.seconds},
                          {"plan", toJson(report.plan)},
                          {"subjects", std::move(subjects)}});
}

void TuneReporter::printReport(const TunerReport& report) const {
  const TunedPlan& plan = report.plan;
  if (report.known) {
    session_.out << where_ << "tuned on " << plan.date << ": " << timeText(plan.median) << ", " << gainText(plan)
                 << "; --again tunes anew\n";
    return;
  }
  using enum Table::Align;
  Table table({{"step"}, {"candidate"}, {"median", Right}, {"p20", Right}, {"p80", Right}, {"rounds", Right}, {""}});
  for (const SubjectReport& subject : report.subjects) {
    size_t shown = 0;
    for (const Standing& standing : subject.standings) {
      if (!standing.failure.empty() || shown == kShown) break;
      const bool won = subject.subject == TuningSubject::Plan && standing.choices == plan.choices;
      table.add({shown == 0 ? toString(subject.subject) : llvm::StringRef(),
                 describe(subject.subject, standing.choices), timeText(standing.timing.median),
                 timeText(standing.timing.p20), timeText(standing.timing.p80), std::to_string(standing.rounds),
                 won ? Cell("chosen", Tone::Good) : Cell("")});
      ++shown;
    }
  }
  session_.print(table);
  for (const SubjectReport& subject : report.subjects)
    for (const Standing& standing : subject.standings)
      if (!standing.failure.empty())
        session_.note(llvm::formatv("dropped {0} {1}: {2}", toString(subject.subject),
                                    describe(subject.subject, standing.choices), standing.failure)
                          .str());
  if (report.throttled > 0)
    session_.note(llvm::formatv("{0} of {1} measurements were made while the device was slowed down by heat or its "
                                "supply; cool it and tune again for the best",
                                report.throttled, report.visits)
                      .str());
  session_.out << where_ << timeText(plan.median) << ", " << gainText(plan) << "; " << report.visits << " visits in "
               << llvm::formatv("{0:f1} s", report.seconds);
  if (report.resumed > 0) session_.out << ", " << report.resumed << " of them from an earlier run";
  session_.out << '\n';
}

std::string lathe::cli::landscapeSvg(const TuningProblem& problem, const TunerReport& report) {
  Plot plot{"Candidates on " + report.plan.setting.device + ", " + sizeText(problem.shape) + " tokens",
            "predicted milliseconds",
            "measured milliseconds",
            {}};
  const int64_t rows = rowBucket(problem.shape.rows());
  for (const Gemm gemm : productsOf(problem.workload)) {
    PlotSeries series{toString(gemm).str(), {}, /*line=*/false};
    for (const SubjectReport& subject : report.subjects) {
      if (subject.subject != subjectOf(gemm)) continue;
      for (const Standing& standing : subject.standings) {
        if (standing.timing.repetitions == 0) continue;
        const Config& config = standing.choices.configs.of(gemm);
        const double predicted = predictSeconds(config, gemm, problem.workload, problem.target, rows) * 1e3;
        series.points.push_back({predicted, standing.timing.median, standing.timing.p20, standing.timing.p80});
      }
    }
    plot.series.push_back(std::move(series));
  }
  return toSvg(plot);
}

//===-- explain -----------------------------------------------------------===//

namespace {

/// Median of what was measured of `config` for `gemm`, in milliseconds, or why it failed; empty when it was not
/// visited.
std::string measuredText(const TuningDocument& known, const TuningProblem& problem, Gemm gemm, const Config& config) {
  std::vector<double> times;
  for (const TuningMeasurement& measurement : known.measurements) {
    if (measurement.subject != subjectOf(gemm) || measurement.shape != problem.shape ||
        measurement.choices.configs.of(gemm) != config)
      continue;
    if (!measurement.failure.empty()) return measurement.failure;
    llvm::append_range(times, measurement.milliseconds);
  }
  return times.empty() ? "" : timeText(summarize(std::move(times)).median);
}

void explainText(Gemm gemm, const TuningProblem& problem, const TuningDocument& known, const Session& session) {
  session.title(toString(gemm));
  using enum Table::Align;
  Table table({{"rank", Right}, {"config"}, {"threads", Right}, {"shared", Right}, {"predicted", Right}, {"measured"}});
  std::map<std::string, int> illegal;
  int rank = 0;
  for (const RankedConfig& point : rankConfigs(gemm, problem)) {
    if (!point.illegal.empty()) {
      ++illegal[llvm::StringRef(point.illegal).split("cannot run ").second.split(": ").second.str()];
      continue;
    }
    table.add({std::to_string(++rank), toString(point.config), std::to_string(point.config.threads()),
               bytesText(sharedBytes(point.config, gemm, problem.workload)), timeText(point.seconds * 1e3),
               measuredText(known, problem, gemm, point.config)});
  }
  session.print(table);
  if (illegal.empty()) return;
  session.out << '\n';
  Table reasons({{"ruled out", Right}, {"because"}});
  for (const auto& [reason, count] : illegal) reasons.add({std::to_string(count), reason});
  session.print(reasons);
}

llvm::json::Value explainJson(Gemm gemm, const TuningProblem& problem, const TuningDocument& known) {
  llvm::json::Array points;
  for (const RankedConfig& point : rankConfigs(gemm, problem)) {
    llvm::json::Object object{{"config", toJson(point.config)}};
    if (point.illegal.empty()) {
      object["predicted_ms"] = point.seconds * 1e3;
      object["threads"] = point.config.threads();
      object["shared_bytes"] = sharedBytes(point.config, gemm, problem.workload);
      if (const std::string text = measuredText(known, problem, gemm, point.config); !text.empty())
        object["measured"] = text;
    } else {
      object["illegal"] = point.illegal;
    }
    points.push_back(std::move(object));
  }
  return points;
}

} // namespace

void lathe::cli::explain(const TuningProblem& problem, const TuningDocument& known, bool json, const Session& session) {
  if (!json) {
    for (const Gemm gemm : productsOf(problem.workload)) explainText(gemm, problem, known, session);
    return;
  }
  llvm::json::Object object{{"target", toJson(problem.target)}, {"rows", rowBucket(problem.shape.rows())}};
  for (const Gemm gemm : productsOf(problem.workload)) object[toString(gemm)] = explainJson(gemm, problem, known);
  session.print(std::move(object));
}
