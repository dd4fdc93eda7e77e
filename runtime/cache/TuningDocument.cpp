//===- runtime/cache/TuningDocument.cpp - What tuning found out -------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/cache/TuningDocument.h"

#include "generator/CanonicalJson.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>
#include <set>
#include <tuple>

using namespace lathe;

namespace {

constexpr llvm::StringLiteral kFormat = "lathe.tuning/1";
/// In the order of TuningSubject.
constexpr llvm::StringLiteral kSubjects[] = {"logits", "grad_input", "grad_weight", "plan"};
/// More repetitions than any visit has.
constexpr size_t kMostTimes = 100000;

/// Reads the fields of a record; remembers the first that is missing or wrong.
class Reader {
public:
  Reader(const llvm::json::Value& json, llvm::StringRef what) : object_(json.getAsObject()), what_(what) {
    if (!object_) wrong_ = "it is no object";
  }

  std::string text(llvm::StringRef name) {
    const auto value = object_ ? object_->getString(name) : std::nullopt;
    if (!value) note(name, "a string");
    return value ? value->str() : "";
  }
  int64_t integer(llvm::StringRef name, int64_t least) {
    const auto value = object_ ? object_->getInteger(name) : std::nullopt;
    if (!value || *value < least) note(name, "an integer of at least " + std::to_string(least));
    return value.value_or(least);
  }
  double number(llvm::StringRef name) {
    const auto value = object_ ? object_->getNumber(name) : std::nullopt;
    if (!value || !std::isfinite(*value)) note(name, "a finite number");
    return value.value_or(0);
  }
  std::vector<double> times(llvm::StringRef name) {
    std::vector<double> values;
    const llvm::json::Array* array = object_ ? object_->getArray(name) : nullptr;
    if (!array || array->size() > kMostTimes) {
      note(name, "an array of times");
      return values;
    }
    for (const llvm::json::Value& element : *array) {
      const auto value = element.getAsNumber();
      if (!value || !std::isfinite(*value) || *value < 0) note(name, "an array of times");
      values.push_back(value.value_or(0));
    }
    return values;
  }
  /// What `parse` makes of the field `name`.
  template <class T> T part(llvm::StringRef name, llvm::Expected<T> (*parse)(const llvm::json::Value&)) {
    const llvm::json::Value* json = object_ ? object_->get(name) : nullptr;
    if (!json) {
      note(name, "an object");
      return {};
    }
    llvm::Expected<T> value = parse(*json);
    if (value) return std::move(*value);
    note(name, takeSummary(value.takeError()).message);
    return {};
  }

  llvm::Error error() const {
    if (wrong_.empty()) return llvm::Error::success();
    return makeError(ErrorCode::Corrupt, "{0}: {1}", what_, wrong_);
  }

private:
  void note(llvm::StringRef name, const llvm::Twine& wanted) {
    if (wrong_.empty()) wrong_ = (name + " is not as it must be: " + wanted).str();
  }

  const llvm::json::Object* object_;
  llvm::StringRef what_;
  std::string wrong_;
};

template <class T> llvm::Expected<T> finished(const Reader& reader, T value) {
  if (llvm::Error error = reader.error()) return error;
  return value;
}

llvm::Expected<Shape> parseShape(const llvm::json::Value& json) {
  Reader reader(json, "shape");
  const Shape shape{reader.integer("sequences", 2), reader.integer("tokens", 1)};
  if (llvm::Error error = reader.error()) return error;
  if (shape.sequences > INT32_MAX || shape.tokens > INT32_MAX / shape.sequences)
    return makeError(ErrorCode::Corrupt, "shape: {0} sequences of {1} tokens are too many", shape.sequences,
                     shape.tokens);
  return shape;
}

llvm::Expected<GemmConfigs> parseConfigs(const llvm::json::Value& json) {
  Reader reader(json, "configs");
  GemmConfigs configs{reader.part("logits", parseConfig), reader.part("grad_input", parseConfig),
                      reader.part("grad_weight", parseConfig)};
  return finished(reader, configs);
}

llvm::Expected<TunedPlan> parseTunedPlan(const llvm::json::Value& json) {
  Reader reader(json, "tuned plan");
  TunedPlan plan;
  plan.run = reader.text("run");
  plan.setting = reader.part("setting", parseTuningSetting);
  plan.shape = reader.part("shape", parseShape);
  plan.choices = reader.part("choices", parsePlanChoices);
  plan.median = reader.number("median_ms");
  plan.p20 = reader.number("p20_ms");
  plan.p80 = reader.number("p80_ms");
  plan.untunedMedian = reader.number("untuned_median_ms");
  plan.date = reader.text("date");
  plan.latheVersion = reader.text("lathe_version");
  return finished(reader, std::move(plan));
}

llvm::json::Value toJson(const Shape& shape) {
  return llvm::json::Object{{"sequences", shape.sequences}, {"tokens", shape.tokens}};
}

/// Whether both are answers to the same question.
bool answerTheSame(const TunedPlan& a, const TunedPlan& b) {
  return a.setting == b.setting && rowBucket(a.shape.rows()) == rowBucket(b.shape.rows());
}

/// The newer of two plans comes last; the rest makes the order independent of where they came from.
auto age(const TunedPlan& plan) {
  return std::tie(plan.date, plan.run);
}

auto orderOf(const TuningMeasurement& measurement) {
  return std::tie(measurement.date, measurement.run, measurement.number);
}

/// Appends the records of the array `name` that can be read.
template <class T>
void readRecords(const llvm::json::Object& object, llvm::StringRef name,
                 llvm::Expected<T> (*parse)(const llvm::json::Value&), std::vector<T>& to) {
  const llvm::json::Array* array = object.getArray(name);
  if (!array) return;
  for (const llvm::json::Value& json : *array) {
    llvm::Expected<T> record = parse(json);
    if (record)
      to.push_back(std::move(*record));
    else
      llvm::consumeError(record.takeError());
  }
}

template <class T> void writeRecords(llvm::raw_ostream& os, llvm::StringRef name, const std::vector<T>& records) {
  os << "\"" << name << "\": [";
  const char* separator = "\n";
  for (const T& record : records) {
    os << separator << llvm::formatv("{0}", lathe::toJson(record));
    separator = ",\n";
  }
  os << "\n]";
}

} // namespace

llvm::StringRef lathe::toString(TuningSubject subject) {
  return kSubjects[static_cast<size_t>(subject)];
}

llvm::Expected<TuningSubject> lathe::parseTuningSubject(llvm::StringRef name) {
  for (size_t i = 0; i < std::size(kSubjects); ++i)
    if (name == kSubjects[i]) return static_cast<TuningSubject>(i);
  return makeError(ErrorCode::InvalidArgument,
                   "\"{0}\" is not what can be tuned; it must be logits, grad_input, grad_weight or plan", name);
}

int64_t lathe::rowBucket(int64_t rows) {
  return static_cast<int64_t>(llvm::PowerOf2Ceil(static_cast<uint64_t>(rows)));
}

llvm::json::Value lathe::toJson(const PlanChoices& choices) {
  return llvm::json::Object{{"strategy", toString(choices.strategy)},
                            {"chunk_pairs", choices.chunkPairs},
                            {"configs", llvm::json::Object{{"logits", toJson(choices.configs.logits)},
                                                           {"grad_input", toJson(choices.configs.gradInput)},
                                                           {"grad_weight", toJson(choices.configs.gradWeight)}}}};
}

llvm::Expected<PlanChoices> lathe::parsePlanChoices(const llvm::json::Value& json) {
  Reader reader(json, "plan choices");
  PlanChoices choices;
  choices.chunkPairs = reader.integer("chunk_pairs", 1);
  choices.configs = reader.part("configs", parseConfigs);
  const std::string name = reader.text("strategy");
  if (llvm::Error error = reader.error()) return error;
  llvm::Expected<Strategy> strategy = parseStrategy(name);
  if (!strategy) return strategy.takeError();
  choices.strategy = *strategy;
  return choices;
}

llvm::json::Value lathe::toJson(const TuningSetting& setting) {
  return llvm::json::Object{{"device", setting.device},
                            {"multiprocessors", setting.multiprocessors},
                            {"driver", setting.driver},
                            {"nvrtc", setting.nvrtc}};
}

llvm::json::Value lathe::toJson(const TuningMeasurement& measurement) {
  llvm::json::Object object{{"run", measurement.run},
                            {"number", measurement.number},
                            {"setting", toJson(measurement.setting)},
                            {"shape", ::toJson(measurement.shape)},
                            {"subject", toString(measurement.subject)},
                            {"choices", toJson(measurement.choices)},
                            {"times_ms", llvm::json::Array(measurement.milliseconds)},
                            {"registers", measurement.registers},
                            {"local_bytes", measurement.localBytes},
                            {"shared_bytes", measurement.sharedBytes},
                            {"strain", measurement.strain},
                            {"date", measurement.date}};
  if (!measurement.failure.empty()) object["failure"] = measurement.failure;
  return object;
}

llvm::Expected<TuningSetting> lathe::parseTuningSetting(const llvm::json::Value& json) {
  Reader reader(json, "tuning setting");
  TuningSetting setting{reader.text("device"), reader.integer("multiprocessors", 1), reader.text("driver"),
                        reader.text("nvrtc")};
  return finished(reader, std::move(setting));
}

llvm::json::Value lathe::toJson(const TunedPlan& plan) {
  return llvm::json::Object{{"run", plan.run},
                            {"setting", toJson(plan.setting)},
                            {"rows", rowBucket(plan.shape.rows())},
                            {"shape", ::toJson(plan.shape)},
                            {"choices", toJson(plan.choices)},
                            {"median_ms", plan.median},
                            {"p20_ms", plan.p20},
                            {"p80_ms", plan.p80},
                            {"untuned_median_ms", plan.untunedMedian},
                            {"date", plan.date},
                            {"lathe_version", plan.latheVersion}};
}

llvm::Expected<TuningMeasurement> lathe::parseTuningMeasurement(const llvm::json::Value& json) {
  Reader reader(json, "measurement");
  TuningMeasurement measurement;
  measurement.run = reader.text("run");
  measurement.number = reader.integer("number", 0);
  measurement.setting = reader.part("setting", parseTuningSetting);
  measurement.shape = reader.part("shape", parseShape);
  const std::string subject = reader.text("subject");
  measurement.choices = reader.part("choices", parsePlanChoices);
  measurement.milliseconds = reader.times("times_ms");
  measurement.registers = reader.integer("registers", 0);
  measurement.localBytes = reader.integer("local_bytes", 0);
  measurement.sharedBytes = reader.integer("shared_bytes", 0);
  measurement.strain = reader.number("strain");
  measurement.date = reader.text("date");
  if (llvm::Error error = reader.error()) return error;
  llvm::Expected<TuningSubject> parsed = parseTuningSubject(subject);
  if (!parsed) return parsed.takeError();
  measurement.subject = *parsed;
  measurement.failure = json.getAsObject()->getString("failure").value_or("").str();
  return measurement;
}

llvm::Expected<TuningDocument> TuningDocument::parse(llvm::StringRef text) {
  llvm::Expected<llvm::json::Value> json = parseJson(text);
  if (!json) return makeError(ErrorCode::Corrupt, "tuning results: {0}", takeSummary(json.takeError()).message);
  const llvm::json::Object* object = json->getAsObject();
  if (!object || object->getString("format") != kFormat)
    return makeError(ErrorCode::Corrupt, "tuning results: the format is not {0}; remove the file and tune again",
                     kFormat);
  TuningDocument document;
  readRecords(*object, "plans", parseTunedPlan, document.plans);
  readRecords(*object, "measurements", parseTuningMeasurement, document.measurements);
  return document;
}

std::string TuningDocument::text() const {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "{\"format\": \"" << kFormat << "\",\n";
  writeRecords(os, "plans", plans);
  os << ",\n";
  writeRecords(os, "measurements", measurements);
  os << "}\n";
  return text;
}

void TuningDocument::join(const TuningDocument& other) {
  for (const TunedPlan& plan : other.plans) {
    const auto same = llvm::find_if(plans, [&](const TunedPlan& own) { return answerTheSame(own, plan); });
    if (same == plans.end())
      plans.push_back(plan);
    else if (age(*same) < age(plan))
      *same = plan;
  }
  llvm::sort(plans, [](const TunedPlan& a, const TunedPlan& b) { return age(a) < age(b); });

  std::set<std::pair<std::string, int64_t>> known;
  for (const TuningMeasurement& own : measurements) known.emplace(own.run, own.number);
  for (const TuningMeasurement& measurement : other.measurements)
    if (known.emplace(measurement.run, measurement.number).second) measurements.push_back(measurement);
  llvm::sort(measurements,
             [](const TuningMeasurement& a, const TuningMeasurement& b) { return orderOf(a) < orderOf(b); });
  if (measurements.size() > kMostMeasurements)
    measurements.erase(measurements.begin(), measurements.end() - kMostMeasurements);
}

std::optional<TunedChoice> lathe::findTuned(const TuningDocument& document, const TuningSetting& here, int64_t rows) {
  std::optional<TunedChoice> best;
  for (const TunedPlan& plan : document.plans) {
    const TuningSetting& there = plan.setting;
    if (there.device != here.device || there.multiprocessors != here.multiprocessors) continue;
    if (rowBucket(plan.shape.rows()) != rowBucket(rows)) continue;
    const bool stale = there.driver != here.driver || (!here.nvrtc.empty() && there.nvrtc != here.nvrtc);
    const bool better = !best || (best->stale && !stale) || (best->stale == stale && age(best->plan) < age(plan));
    if (better) best = TunedChoice{plan, stale};
  }
  return best;
}
