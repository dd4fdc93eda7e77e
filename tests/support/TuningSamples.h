//===- tests/support/TuningSamples.h - Tuning results ----------*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/cache/TuningDocument.h"

namespace lathe::test {

inline TuningSetting sampleSetting() {
  return {.device = "NVIDIA H200", .multiprocessors = 132, .driver = "13.0", .nvrtc = "13.0"};
}

inline PlanChoices sampleChoices() {
  const Config config{Family::Wgmma, 128, 256, 64, 4, 8, 1, 2, 1, 8};
  return {Strategy::Stored, 2, {config, config, config}};
}

/// Measurement `number` of `run`, of the whole plan.
inline TuningMeasurement sampleMeasurement(const std::string& run, int64_t number) {
  TuningMeasurement measurement;
  measurement.run = run;
  measurement.number = number;
  measurement.setting = sampleSetting();
  measurement.shape = {4, 1024};
  measurement.choices = sampleChoices();
  measurement.milliseconds = {18.25, 18.5};
  measurement.registers = 168;
  measurement.date = "2026-01-02T03:04:05Z";
  return measurement;
}

/// A plan for 4 x 1024 rows.
inline TunedPlan samplePlan(const std::string& run, const std::string& date = "2026-01-02T03:04:05Z") {
  TunedPlan plan;
  plan.run = run;
  plan.setting = sampleSetting();
  plan.shape = {4, 1024};
  plan.choices = sampleChoices();
  plan.median = 18.25;
  plan.p20 = 18;
  plan.p80 = 18.5;
  plan.untunedMedian = 19;
  plan.date = date;
  plan.latheVersion = "0.1.0";
  return plan;
}

} // namespace lathe::test
