//===- cli/VerifyVerb.cpp - lathe verify -----------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/CaseRun.h"
#include "cli/Text.h"
#include "cli/Verbs.h"
#include "runtime/api/DeviceRun.h"
#include "runtime/reference/Compare.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Path.h"

#include <cmath>

using namespace lathe;
using namespace lathe::cli;

namespace {

struct VerifyOptions {
  std::vector<std::string> cases;
  std::string device = "auto";
  PlanFlags plan;
  bool twoCalls = false;
  bool all = false;
  bool json = false;
};

/// A result held against one set of right values.
struct Check {
  std::string caseFile;
  /// `reference` or `expected`.
  const char* against;
  std::vector<Comparison> comparisons;

  bool ok() const {
    return llvm::all_of(comparisons, [](const Comparison& comparison) { return comparison.ok; });
  }
};

llvm::Expected<LossResult> compute(const VerifyOptions& options, const Case& value, const DeviceChoice& device,
                                   Runtime::Implementation& runtime) {
  // In single precision: the reference itself would have nothing to be measured by.
  if (!device.gpu) return runReference<float>(value);
  llvm::Expected<PlanRequest> request = requestFor(options.plan, value, *device.gpu);
  if (!request) return request.takeError();
  return runOnDevice(runtime, value,
                     {.request = *request, .device = device.gpu->ordinal, .twoCalls = options.twoCalls});
}

llvm::Error verifyCase(const VerifyOptions& options, const std::string& file, const DeviceChoice& device,
                       Runtime::Implementation& runtime, std::vector<Check>& checks) {
  llvm::Expected<Case> value = loadCase(file);
  if (!value) return value.takeError();
  llvm::Expected<LossResult> result = compute(options, *value, device, runtime);
  if (!result) return result.takeError();
  llvm::Expected<LossResult> reference = runReference<double>(*value);
  if (!reference) return reference.takeError();
  checks.push_back({file, "reference", compare(*result, *reference, value->workload)});
  if (value->expected) checks.push_back({file, "expected", compare(*result, *value->expected, value->workload)});
  return llvm::Error::success();
}

/// How near to its tolerance a comparison is; a NaN is the worst.
double strain(const Comparison& comparison) {
  return std::isnan(comparison.error) ? std::numeric_limits<double>::infinity()
                                      : comparison.error / comparison.tolerance;
}

void addRow(Table& table, const Check& check, const Comparison& comparison) {
  const Tone tone = comparison.ok ? Tone::Good : Tone::Bad;
  table.add({llvm::sys::path::stem(check.caseFile), check.against, comparison.name, errorText(comparison.error),
             errorText(comparison.tolerance), Cell(comparison.ok ? "ok" : "FAILED", tone)});
}

void addRows(Table& table, const Check& check, bool all) {
  if (check.comparisons.empty()) return;
  if (!all) {
    addRow(table, check, *llvm::max_element(check.comparisons, [](const Comparison& a, const Comparison& b) {
             return strain(a) < strain(b);
           }));
    return;
  }
  for (const Comparison& comparison : check.comparisons) addRow(table, check, comparison);
}

void report(const VerifyOptions& options, const DeviceChoice& device, const std::vector<Check>& checks,
            const Session& session) {
  Properties properties;
  properties.add("device", device.describe() + (device.gpu ? "" : ", single precision"));
  if (!device.reason.empty()) properties.add("because", device.reason);
  session.print(properties);
  session.title(options.all ? "errors" : "largest errors");
  using enum Table::Align;
  Table table({{"case"}, {"against"}, {"value"}, {"error", Right}, {"tolerance", Right}, {""}});
  for (const Check& check : checks) addRows(table, check, options.all);
  session.print(table);
}

llvm::json::Value jsonOf(const DeviceChoice& device, const std::vector<Check>& checks) {
  llvm::json::Array array;
  for (const Check& check : checks) {
    llvm::json::Array values;
    for (const Comparison& comparison : check.comparisons)
      values.push_back(llvm::json::Object{{"name", comparison.name},
                                          {"error", jsonNumber(comparison.error)},
                                          {"tolerance", comparison.tolerance},
                                          {"ok", comparison.ok}});
    array.push_back(llvm::json::Object{
        {"case", check.caseFile}, {"against", check.against}, {"ok", check.ok()}, {"values", std::move(values)}});
  }
  return llvm::json::Object{{"device", device.name()}, {"device_reason", device.reason}, {"checks", std::move(array)}};
}

llvm::Expected<ExitCode> verifyCases(const VerifyOptions& options, const Session& session) {
  const std::shared_ptr<Runtime::Implementation> runtime = makeRuntime(session.environment);
  llvm::Expected<DeviceChoice> device = chooseDevice(options.device, *runtime);
  if (!device) return device.takeError();
  if (const std::string given = options.plan.firstGiven(); !device->gpu && !given.empty())
    return makeError(ErrorCode::InvalidArgument, "{0} steers a plan on a GPU, and this runs on the {1}", given,
                     device->describe());

  std::vector<Check> checks;
  llvm::Error errors = llvm::Error::success();
  for (const std::string& file : options.cases)
    errors = llvm::joinErrors(std::move(errors), verifyCase(options, file, *device, *runtime, checks));
  if (options.json)
    session.print(jsonOf(*device, checks));
  else if (!checks.empty())
    report(options, *device, checks, session);
  if (errors) return errors;
  return llvm::all_of(checks, [](const Check& check) { return check.ok(); }) ? ExitCode::Ok : ExitCode::CheckFailed;
}

} // namespace

void lathe::cli::addVerifyVerb(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("verify", "Compare the results of cases with a float64 reference");
  const auto options = std::make_shared<VerifyOptions>();
  verb->add_option("cases", options->cases, "Cases: inputs, and right results if known, in safetensors files")
      ->type_name("FILE")
      ->required();
  verb->add_flag("--all", options->all, "Show every value, not only the worst of each case")->group("Output");
  addJsonFlag(*verb, options->json);
  addDeviceOption(*verb, options->device);
  verb->add_flag("--two-calls", options->twoCalls, "The loss and the gradients as two calls");
  options->plan.addTo(*verb);
  verb->footer("The exit code is 1 when an error is past its tolerance.\n\n"
               "Examples:\n"
               "  lathe verify tests/data/*.safetensors\n"
               "  lathe verify case.safetensors --device cuda:0 --family mma_sync --all");
  setAction(*verb, action, options, verifyCases);
}
