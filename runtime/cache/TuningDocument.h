//===- runtime/cache/TuningDocument.h - What tuning found out ---------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// The content of a `plan.json`: for one workload and architecture the plans that tuning chose, and every measurement
/// that led to them. Text from anywhere is safe to read. A record that this version cannot read is left out, so that
/// one strange record does not cost the others.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/PlanGraph.h"

#include "llvm/Support/JSON.h"

#include <optional>
#include <string>
#include <vector>

namespace lathe {

/// The machine and the tools that something was measured with. Times of different settings are never compared.
struct TuningSetting {
  /// As the driver names it: `NVIDIA H200`.
  std::string device;
  int64_t multiprocessors = 0;
  /// Version of CUDA that the driver is for: `13.0`.
  std::string driver;
  /// Version of NVRTC; empty where there is none.
  std::string nvrtc;

  friend bool operator==(const TuningSetting&, const TuningSetting&) = default;
};

/// What was timed: the steps that one product's config decides, or the whole plan.
enum class TuningSubject : uint8_t { Logits, GradInput, GradWeight, Plan };
llvm::StringRef toString(TuningSubject subject);
llvm::Expected<TuningSubject> parseTuningSubject(llvm::StringRef name);

/// One visit to one candidate.
struct TuningMeasurement {
  /// Names the tuning run: 16 hexadecimal digits. `run` and `number` together name the measurement.
  std::string run;
  int64_t number = 0;
  TuningSetting setting;
  Shape shape;
  TuningSubject subject = TuningSubject::Plan;
  PlanChoices choices;
  /// One for every repetition; empty when the candidate failed.
  std::vector<double> milliseconds;
  /// Why the candidate cannot win: that it spills, faults, hangs or computes something wrong. Empty when it did not
  /// fail.
  std::string failure;
  /// Resources of the subject's product kernel as its cubin states them; 0 where unknown.
  int64_t registers = 0;
  int64_t localBytes = 0;
  int64_t sharedBytes = 0;
  /// Largest error of the outputs as a share of what is tolerated; negative when they were not checked.
  double strain = -1;
  /// UTC, ISO 8601.
  std::string date;
};

/// A plan that won.
struct TunedPlan {
  std::string run;
  TuningSetting setting;
  Shape shape;
  PlanChoices choices;
  /// Median and the fifths of the whole plan's time, in milliseconds.
  double median = 0;
  double p20 = 0;
  double p80 = 0;
  /// Median of the plan that would be used without tuning, measured in turn with it.
  double untunedMedian = 0;
  std::string date;
  std::string latheVersion;
};

/// Plans are tuned for a whole range of row counts: up to this power of two.
int64_t rowBucket(int64_t rows);

/// Everything known of one workload and architecture.
struct TuningDocument {
  std::vector<TunedPlan> plans;
  std::vector<TuningMeasurement> measurements;

  /// Reads what `text` wrote. ErrorCode::Corrupt when it is something else altogether.
  static llvm::Expected<TuningDocument> parse(llvm::StringRef text);
  /// JSON with one record a line.
  std::string text() const;

  /// Adds what `other` has and this lacks. Of plans for the same setting and bucket the newest stays; of very many
  /// measurements the newest `kMostMeasurements`. The order of joins does not matter.
  void join(const TuningDocument& other);
};

inline constexpr size_t kMostMeasurements = 8000;

llvm::json::Value toJson(const PlanChoices& choices);
llvm::Expected<PlanChoices> parsePlanChoices(const llvm::json::Value& json);
llvm::json::Value toJson(const TuningSetting& setting);
llvm::Expected<TuningSetting> parseTuningSetting(const llvm::json::Value& json);
llvm::json::Value toJson(const TunedPlan& plan);
llvm::json::Value toJson(const TuningMeasurement& measurement);
/// Reads one line of a journal.
llvm::Expected<TuningMeasurement> parseTuningMeasurement(const llvm::json::Value& json);

/// A tuned plan, and whether it was tuned with another driver or NVRTC than those of here.
struct TunedChoice {
  TunedPlan plan;
  bool stale = false;
};

/// The plan that was tuned on the device of `here` for the bucket of `rows`: with its driver and NVRTC if there is one,
/// else the newest. None when there is no plan for that device and bucket. Where `here` has no NVRTC, that of the plan
/// does not matter.
std::optional<TunedChoice> findTuned(const TuningDocument& document, const TuningSetting& here, int64_t rows);

} // namespace lathe
