//===- tuning/WorkerProtocol.cpp - What a tuner and its worker say ---------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tuning/WorkerProtocol.h"

#include "generator/Workload.h"

#include <cmath>

using namespace lathe;

namespace {

llvm::Error bad(llvm::StringRef field) {
  return makeError(ErrorCode::Corrupt, "a message between a tuner and its worker has no usable {0}", field);
}

/// The field `name` of `object`, parsed.
template <class T>
llvm::Error readPart(const llvm::json::Object& object, llvm::StringRef name,
                     llvm::Expected<T> (*parse)(const llvm::json::Value&), T& to) {
  const llvm::json::Value* json = object.get(name);
  if (!json) return bad(name);
  llvm::Expected<T> value = parse(*json);
  if (!value) return value.takeError();
  to = std::move(*value);
  return llvm::Error::success();
}

llvm::Error readInteger(const llvm::json::Object& object, llvm::StringRef name, int64_t& to) {
  const auto value = object.getInteger(name);
  if (!value) return bad(name);
  to = *value;
  return llvm::Error::success();
}

llvm::Error readNumber(const llvm::json::Object& object, llvm::StringRef name, double& to) {
  const auto value = object.getNumber(name);
  if (!value) return bad(name);
  to = *value;
  return llvm::Error::success();
}

} // namespace

llvm::json::Value lathe::toJson(const WorkerOpen& open) {
  const WorkingSet& set = open.set;
  llvm::json::Object object{{"op", "open"},
                            {"workload", toJson(set.workload)},
                            {"sequences", set.shape.sequences},
                            {"tokens", set.shape.tokens},
                            {"softcap", set.scalars.softcap},
                            {"logit_scale", set.scalars.logitScale},
                            {"seed", static_cast<int64_t>(set.seed)},
                            {"logit_std", set.logitStd},
                            {"masked_fraction", set.maskedFraction},
                            {"choices", toJson(open.first)}};
  if (set.device) object["device"] = *set.device;
  return object;
}

llvm::Expected<WorkerOpen> lathe::parseWorkerOpen(const llvm::json::Value& json) {
  const llvm::json::Object* object = json.getAsObject();
  if (!object) return bad("object");
  WorkerOpen open;
  WorkingSet& set = open.set;
  int64_t seed = 0;
  if (llvm::Error error = readPart(*object, "workload", workloadFromJson, set.workload)) return error;
  if (llvm::Error error = readInteger(*object, "sequences", set.shape.sequences)) return error;
  if (llvm::Error error = readInteger(*object, "tokens", set.shape.tokens)) return error;
  if (llvm::Error error = readNumber(*object, "softcap", set.scalars.softcap)) return error;
  if (llvm::Error error = readNumber(*object, "logit_scale", set.scalars.logitScale)) return error;
  if (llvm::Error error = readInteger(*object, "seed", seed)) return error;
  if (llvm::Error error = readNumber(*object, "logit_std", set.logitStd)) return error;
  if (llvm::Error error = readNumber(*object, "masked_fraction", set.maskedFraction)) return error;
  if (llvm::Error error = readPart(*object, "choices", parsePlanChoices, open.first)) return error;
  set.seed = static_cast<uint64_t>(seed);
  if (const auto device = object->getInteger("device")) set.device = static_cast<int>(*device);
  return open;
}

llvm::json::Value lathe::toJson(const WorkerReady& ready) {
  return llvm::json::Object{{"setting", toJson(ready.setting)}, {"driver_release", ready.driverRelease}};
}

llvm::Expected<WorkerReady> lathe::parseWorkerReady(const llvm::json::Value& json) {
  const llvm::json::Object* object = json.getAsObject();
  if (!object) return bad("object");
  WorkerReady ready;
  if (llvm::Error error = readPart(*object, "setting", parseTuningSetting, ready.setting)) return error;
  ready.driverRelease = object->getString("driver_release").value_or("").str();
  return ready;
}

llvm::json::Value lathe::toJson(const VisitRequest& request) {
  return llvm::json::Object{{"op", "visit"},
                            {"subject", toString(request.subject)},
                            {"choices", toJson(request.choices)},
                            {"repetitions", request.repetitions},
                            {"check", request.check}};
}

llvm::Expected<VisitRequest> lathe::parseVisitRequest(const llvm::json::Value& json) {
  const llvm::json::Object* object = json.getAsObject();
  if (!object) return bad("object");
  VisitRequest request;
  llvm::Expected<TuningSubject> subject = parseTuningSubject(object->getString("subject").value_or(""));
  if (!subject) return subject.takeError();
  request.subject = *subject;
  if (llvm::Error error = readPart(*object, "choices", parsePlanChoices, request.choices)) return error;
  int64_t repetitions = 0;
  if (llvm::Error error = readInteger(*object, "repetitions", repetitions)) return error;
  if (repetitions < 1 || repetitions > 100000) return bad("repetitions");
  request.repetitions = static_cast<int>(repetitions);
  request.check = object->getBoolean("check").value_or(false);
  return request;
}

llvm::json::Value lathe::toJson(const Visit& visit) {
  return llvm::json::Object{{"times_ms", llvm::json::Array(visit.milliseconds)},
                            {"failure", visit.failure},
                            {"registers", visit.registers},
                            {"local_bytes", visit.localBytes},
                            {"shared_bytes", visit.sharedBytes},
                            {"strain", visit.strain},
                            {"clock_mhz", visit.clock},
                            {"throttled", visit.throttled}};
}

llvm::Expected<Visit> lathe::parseVisit(const llvm::json::Value& json) {
  const llvm::json::Object* object = json.getAsObject();
  if (!object) return bad("object");
  Visit visit;
  const llvm::json::Array* times = object->getArray("times_ms");
  if (!times) return bad("times_ms");
  for (const llvm::json::Value& time : *times) {
    const auto value = time.getAsNumber();
    if (!value || !std::isfinite(*value) || *value < 0) return bad("times_ms");
    visit.milliseconds.push_back(*value);
  }
  visit.failure = object->getString("failure").value_or("").str();
  if (llvm::Error error = readInteger(*object, "registers", visit.registers)) return error;
  if (llvm::Error error = readInteger(*object, "local_bytes", visit.localBytes)) return error;
  if (llvm::Error error = readInteger(*object, "shared_bytes", visit.sharedBytes)) return error;
  if (llvm::Error error = readNumber(*object, "strain", visit.strain)) return error;
  if (llvm::Error error = readNumber(*object, "clock_mhz", visit.clock)) return error;
  visit.throttled = object->getBoolean("throttled").value_or(false);
  return visit;
}
