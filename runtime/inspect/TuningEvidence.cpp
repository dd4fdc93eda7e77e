//===- runtime/inspect/TuningEvidence.cpp - What tuning left in a cache -----===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/inspect/TuningEvidence.h"

#include "generator/CanonicalJson.h"
#include "generator/Config.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <tuple>

using namespace lathe;

namespace {

using llvm::json::Object;

constexpr llvm::StringLiteral kProducts[] = {"logits", "grad_input", "grad_weight"};

std::string textOf(const Object& object, llvm::StringRef name) {
  return object.getString(name).value_or("").str();
}

/// The config of `product` in a record's choices, in words; empty when there is none.
std::string configOf(const Object& record, llvm::StringRef product) {
  const Object* choices = record.getObject("choices");
  const Object* configs = choices ? choices->getObject("configs") : nullptr;
  const llvm::json::Value* json = configs ? configs->get(product) : nullptr;
  if (!json) return "";
  llvm::Expected<Config> config = parseConfig(*json);
  if (config) return toString(*config);
  llvm::consumeError(config.takeError());
  return "";
}

TuningRecord recordOf(const Object& object) {
  TuningRecord record;
  record.run = textOf(object, "run");
  if (const Object* setting = object.getObject("setting")) {
    record.device = textOf(*setting, "device");
    record.driver = textOf(*setting, "driver");
    record.nvrtc = textOf(*setting, "nvrtc");
  }
  if (const Object* shape = object.getObject("shape")) {
    record.sequences = shape->getInteger("sequences").value_or(0);
    record.tokens = shape->getInteger("tokens").value_or(0);
  }
  record.medianMilliseconds = object.getNumber("median_ms").value_or(0);
  record.untunedMedianMilliseconds = object.getNumber("untuned_median_ms").value_or(0);
  record.date = textOf(object, "date");
  record.latheVersion = textOf(object, "lathe_version");
  for (const llvm::StringLiteral product : kProducts)
    if (std::string config = configOf(object, product); !config.empty())
      record.configs.push_back({product.str(), std::move(config)});
  return record;
}

/// The median of `times_ms`; none when there are none.
std::optional<double> medianOf(const Object& object) {
  const llvm::json::Array* times = object.getArray("times_ms");
  if (!times || times->empty()) return std::nullopt;
  std::vector<double> values;
  for (const llvm::json::Value& time : *times)
    if (const auto value = time.getAsNumber()) values.push_back(*value);
  if (values.empty()) return std::nullopt;
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void addMeasurement(const Object& object, TuningEvidence& evidence) {
  const std::string subject = textOf(object, "subject");
  const std::string config = configOf(object, subject);
  const std::optional<double> median = medianOf(object);
  if (config.empty() || !median || !textOf(object, "failure").empty()) return;
  const auto [known, isNew] = evidence.measured.try_emplace({subject, config}, *median);
  if (!isNew) known->second = std::min(known->second, *median);
}

template <class Visit> void forEachRecord(const Object& object, llvm::StringRef name, Visit visit) {
  if (const llvm::json::Array* array = object.getArray(name))
    for (const llvm::json::Value& value : *array)
      if (const Object* record = value.getAsObject()) visit(*record);
}

} // namespace

TuningEvidence lathe::readTuningEvidence(llvm::StringRef json) {
  TuningEvidence evidence;
  llvm::Expected<llvm::json::Value> value = parseJson(json);
  if (!value) {
    llvm::consumeError(value.takeError());
    return evidence;
  }
  const Object* object = value->getAsObject();
  if (!object) return evidence;
  forEachRecord(*object, "plans", [&](const Object& record) { evidence.plans.push_back(recordOf(record)); });
  forEachRecord(*object, "measurements", [&](const Object& record) { addMeasurement(record, evidence); });
  llvm::sort(evidence.plans, [](const TuningRecord& a, const TuningRecord& b) {
    return std::tie(a.date, a.run) < std::tie(b.date, b.run);
  });
  return evidence;
}
