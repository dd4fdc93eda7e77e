//===- cli/RunVerb.cpp - lathe run -----------------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/CaseRun.h"
#include "cli/Text.h"
#include "cli/Verbs.h"
#include "cli/WorkloadOptions.h"
#include "generator/Workload.h"
#include "tuning/Measure.h"

#include <cmath>

using namespace lathe;
using namespace lathe::cli;

namespace {

struct RunOptions {
  std::string caseFile;
  bool random = false;
  uint64_t seed = 0;
  double logitStd = 1;
  double maskedFraction = 0.25;
  WorkloadOptions workload;
  std::string device = "auto";
  PlanFlags plan;
  bool twoCalls = false;
  int repeat = 0;
  std::string out;
  bool json = false;
};

/// What a run gives besides its result.
struct Outcome {
  DeviceChoice device;
  LossResult result;
  /// On a GPU.
  std::optional<PlanGraph> graph;
  std::optional<PlanTiming> timing;
};

/// Pairs that the table shows.
constexpr size_t kShownPairs = 16;

llvm::Expected<Case> makeCase(const RunOptions& options) {
  if (!options.random && options.caseFile.empty())
    return makeError(ErrorCode::InvalidArgument,
                     "there is nothing to run; give a case file, or --random with a workload");
  if (options.random && !options.caseFile.empty())
    return makeError(ErrorCode::InvalidArgument, "both the case file {0} and --random were given; choose one",
                     options.caseFile);
  if (!options.random) {
    if (const std::string given = options.workload.firstGiven(); !given.empty())
      return makeError(ErrorCode::InvalidArgument, "{0} is for --random; a case file says all of that itself", given);
    return loadCase(options.caseFile);
  }
  llvm::Expected<WorkloadInput> input = options.workload.resolve();
  if (!input) return input.takeError();
  if (llvm::Error error = checkHostMemory(input->workload, input->shape)) return error;
  if (!(options.maskedFraction >= 0 && options.maskedFraction <= 1) || !std::isfinite(options.logitStd))
    return makeError(ErrorCode::InvalidArgument,
                     "--masked-fraction is {0} and --logit-std {1}; the first must be from 0 to 1, the second finite",
                     options.maskedFraction, options.logitStd);
  return makeRandomCase(input->workload, input->shape, input->scalars, options.seed, options.logitStd,
                        options.maskedFraction);
}

llvm::Expected<Outcome> runOnCpu(const RunOptions& options, const Case& value, DeviceChoice device,
                                 const Session& session) {
  if (options.repeat > 0)
    return makeError(ErrorCode::Unsupported, "--repeat measures a GPU, and this runs on the {0}", device.describe());
  const std::string given = options.twoCalls ? "--two-calls" : options.plan.firstGiven();
  if (!given.empty()) session.note(given + " has no effect on the CPU");
  llvm::Expected<LossResult> result = runReference<double>(value);
  if (!result) return result.takeError();
  return Outcome{std::move(device), std::move(*result), std::nullopt, std::nullopt};
}

llvm::Expected<Outcome> runOnGpu(const RunOptions& options, const Case& value, DeviceChoice device,
                                 Runtime::Implementation& runtime) {
  llvm::Expected<PlanRequest> request = requestFor(options.plan, value, *device.gpu);
  if (!request) return request.takeError();
  llvm::Expected<DeviceCase> uploaded = DeviceCase::upload(
      runtime, value, {.request = *request, .device = device.gpu->ordinal, .twoCalls = options.twoCalls});
  if (!uploaded) return uploaded.takeError();
  if (llvm::Error error = uploaded->run()) return error;
  llvm::Expected<LossResult> result = uploaded->download();
  if (!result) return result.takeError();
  Outcome outcome{std::move(device), std::move(*result), uploaded->plan().graph(), std::nullopt};
  if (options.repeat == 0) return outcome;
  llvm::Expected<PlanTiming> timing = measurePlan(*uploaded, options.twoCalls, options.repeat);
  if (!timing) return timing.takeError();
  outcome.timing = std::move(*timing);
  return outcome;
}

double normOf(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

/// The largest magnitude; NaN when there is one.
double largestOf(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values)
    largest = std::fabs(value) > largest || std::isnan(value) ? std::fabs(value) : largest;
  return largest;
}

struct NamedGradient {
  const char* name;
  std::string shape;
  const std::vector<double>& values;
};

std::vector<NamedGradient> gradientsOf(const Case& value, const LossResult& result) {
  const Workload& workload = value.workload;
  return {{"input", llvm::formatv("{0} x {1} x {2}", value.shape.sequences, value.shape.tokens, workload.hidden),
           result.gradInput},
          {"weight", llvm::formatv("{0} x {1}", workload.vocab, workload.hidden), result.gradWeight},
          {"bias", std::to_string(workload.vocab), result.gradBias}};
}

void printSummary(const Case& value, const Outcome& outcome, const Session& session) {
  const Workload& workload = value.workload;
  Properties properties;
  properties.add("device", outcome.device.describe());
  if (!outcome.device.reason.empty()) properties.add("because", outcome.device.reason);
  properties.add(
      "workload",
      llvm::formatv("{0} hidden {1} vocab {2}", toString(workload.dtype), workload.hidden, workload.vocab).str());
  properties.add("shape", llvm::formatv("{0} sequences of {1} tokens, {2} valid", value.shape.sequences,
                                        value.shape.tokens, outcome.result.diagnostics.validTokens)
                              .str());
  if (outcome.graph) {
    properties.add("strategy", toString(outcome.graph->choices.strategy));
    properties.add("workspace", bytesText(static_cast<double>(outcome.graph->workspaceBytes)));
  }
  session.print(properties);
}

void printLoss(const Workload& workload, const LossResult& result, const Session& session) {
  session.title("loss");
  Table table({{""}, {"", Table::Align::Right}});
  table.add({"loss", Cell(numberText(result.loss), Tone::Strong)});
  table.add({"preference loss", numberText(result.preferenceLoss)});
  if (workload.nll) table.add({"nll", numberText(result.nll)});
  if (workload.logitMeans) {
    table.add({"chosen logits mean", numberText(result.chosenLogitsMean)});
    table.add({"rejected logits mean", numberText(result.rejectedLogitsMean)});
  }
  session.print(table);
}

void printPairs(const LossResult& result, const Session& session) {
  session.title("pairs");
  using enum Table::Align;
  Table table({{"pair", Right},
               {"chosen logp", Right},
               {"rejected logp", Right},
               {"chosen reward", Right},
               {"rejected reward", Right}});
  const size_t shown = std::min(kShownPairs, result.chosenLogps.size());
  for (size_t i = 0; i < shown; ++i)
    table.add({std::to_string(i), numberText(result.chosenLogps[i]), numberText(result.rejectedLogps[i]),
               numberText(result.chosenRewards[i]), numberText(result.rejectedRewards[i])});
  session.print(table);
  if (shown < result.chosenLogps.size())
    session.out << "and " << result.chosenLogps.size() - shown << " more; --json and --out have all of them\n";
}

void printGradients(const Case& value, const LossResult& result, const Session& session) {
  Table table({{"gradient"}, {"shape"}, {"norm", Table::Align::Right}, {"largest", Table::Align::Right}});
  for (const NamedGradient& gradient : gradientsOf(value, result))
    if (!gradient.values.empty())
      table.add(
          {gradient.name, gradient.shape, numberText(normOf(gradient.values)), numberText(largestOf(gradient.values))});
  if (table.empty()) return;
  session.title("gradients");
  session.print(table);
}

void printDiagnostics(const Diagnostics& diagnostics, const Session& session) {
  if (diagnostics.emptySequences > 0)
    session.note(llvm::formatv("{0} sequences have no valid token and count as 0", diagnostics.emptySequences).str());
  if (diagnostics.badTargets > 0)
    session.note(llvm::formatv("{0} targets are outside the vocabulary, the first at sequence {1}, token {2}; the loss "
                               "is NaN",
                               diagnostics.badTargets, diagnostics.firstBadSequence, diagnostics.firstBadToken)
                     .str());
}

std::string rateText(double amount, double milliseconds) {
  return milliseconds > 0 ? numberText(std::round(amount / milliseconds) / 1000) : "";
}

void printTiming(const PlanTiming& timing, const Session& session) {
  session.title(llvm::formatv("times over {0} repetitions, L2 cache cold", timing.whole.repetitions).str());
  using enum Table::Align;
  Table table(
      {{"step"}, {"pairs"}, {"median", Right}, {"p20", Right}, {"p80", Right}, {"TFLOP/s", Right}, {"GB/s", Right}});
  const auto add = [&](Cell name, std::string pairs, const Timing& time, double flops, double bytes) {
    table.add({std::move(name), std::move(pairs), timeText(time.median), timeText(time.p20), timeText(time.p80),
               flops > 0 ? rateText(flops / 1e6, time.median) : "",
               bytes > 0 ? rateText(bytes / 1e3, time.median) : ""});
  };
  double flops = 0;
  for (size_t i = 0; i < timing.steps.size(); ++i) {
    const Step& step = timing.steps[i];
    flops += step.flops;
    add(toString(step.kind), llvm::formatv("{0}-{1}", step.pairBegin, step.pairEnd - 1), timing.stepTimings[i],
        step.flops, step.bytes);
  }
  add(Cell("whole plan", Tone::Strong), "", timing.whole, flops, 0);
  session.print(table);
}

llvm::json::Value jsonOf(const Timing& time) {
  return llvm::json::Object{{"median_ms", time.median}, {"p20_ms", time.p20}, {"p80_ms", time.p80}};
}

llvm::json::Value jsonOf(const PlanTiming& timing) {
  llvm::json::Array steps;
  for (size_t i = 0; i < timing.steps.size(); ++i) {
    const Step& step = timing.steps[i];
    steps.push_back(llvm::json::Object{{"kernel", toString(step.kind)},
                                       {"pairs", llvm::json::Array{step.pairBegin, step.pairEnd}},
                                       {"flops", step.flops},
                                       {"bytes", step.bytes},
                                       {"time", jsonOf(timing.stepTimings[i])}});
  }
  return llvm::json::Object{
      {"repetitions", timing.whole.repetitions}, {"whole", jsonOf(timing.whole)}, {"steps", std::move(steps)}};
}

llvm::json::Value jsonOf(const Case& value, const Outcome& outcome) {
  const LossResult& result = outcome.result;
  llvm::json::Object gradients;
  for (const NamedGradient& gradient : gradientsOf(value, result))
    if (!gradient.values.empty())
      gradients[gradient.name] = llvm::json::Object{{"norm", jsonNumber(normOf(gradient.values))},
                                                    {"largest", jsonNumber(largestOf(gradient.values))}};
  const Diagnostics& counts = result.diagnostics;
  llvm::json::Object object{
      {"device", outcome.device.name()},
      {"device_reason", outcome.device.reason},
      {"workload", toJson(value.workload)},
      {"shape", llvm::json::Object{{"sequences", value.shape.sequences}, {"tokens", value.shape.tokens}}},
      {"loss", jsonNumber(result.loss)},
      {"preference_loss", jsonNumber(result.preferenceLoss)},
      {"nll", jsonNumber(result.nll)},
      {"chosen_logits_mean", jsonNumber(result.chosenLogitsMean)},
      {"rejected_logits_mean", jsonNumber(result.rejectedLogitsMean)},
      {"chosen_logps", jsonNumbers(result.chosenLogps)},
      {"rejected_logps", jsonNumbers(result.rejectedLogps)},
      {"chosen_rewards", jsonNumbers(result.chosenRewards)},
      {"rejected_rewards", jsonNumbers(result.rejectedRewards)},
      {"gradients", std::move(gradients)},
      {"diagnostics", llvm::json::Object{{"valid_tokens", counts.validTokens},
                                         {"empty_sequences", counts.emptySequences},
                                         {"bad_targets", counts.badTargets},
                                         {"first_bad_sequence", counts.firstBadSequence},
                                         {"first_bad_token", counts.firstBadToken}}},
  };
  if (outcome.graph) {
    object["strategy"] = toString(outcome.graph->choices.strategy);
    object["workspace_bytes"] = outcome.graph->workspaceBytes;
  }
  if (outcome.timing) object["timing"] = jsonOf(*outcome.timing);
  return object;
}

void report(const Case& value, const Outcome& outcome, const Session& session) {
  printSummary(value, outcome, session);
  printLoss(value.workload, outcome.result, session);
  printPairs(outcome.result, session);
  printGradients(value, outcome.result, session);
  if (outcome.timing) printTiming(*outcome.timing, session);
}

llvm::Expected<ExitCode> runCase(const RunOptions& options, const Session& session) {
  llvm::Expected<Case> value = makeCase(options);
  if (!value) return value.takeError();
  const std::shared_ptr<Runtime::Implementation> runtime = makeRuntime(session.environment);
  llvm::Expected<DeviceChoice> device = chooseDevice(options.device, *runtime);
  if (!device) return device.takeError();
  llvm::Expected<Outcome> outcome = device->gpu ? runOnGpu(options, *value, std::move(*device), *runtime)
                                                : runOnCpu(options, *value, std::move(*device), session);
  if (!outcome) return outcome.takeError();
  if (!options.out.empty())
    if (llvm::Error error = saveResult(options.out, *value, outcome->result)) return error;
  printDiagnostics(outcome->result.diagnostics, session);
  if (options.json)
    session.print(jsonOf(*value, *outcome));
  else
    report(*value, *outcome, session);
  return ExitCode::Ok;
}

} // namespace

void lathe::cli::addRunVerb(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("run", "Compute the loss and the gradients of a case");
  const auto options = std::make_shared<RunOptions>();
  verb->add_option("case", options->caseFile, "A case: inputs in a safetensors file")->type_name("FILE");
  verb->add_option("--out", options->out, "Write the results to a safetensors file")
      ->type_name("FILE")
      ->group("Output");
  addJsonFlag(*verb, options->json);

  addDeviceOption(*verb, options->device);
  verb->add_flag("--two-calls", options->twoCalls, "The loss and the gradients as two calls, as autograd makes them");
  verb->add_option("--repeat", options->repeat, "Measure N more runs on the GPU: the whole plan and each step")
      ->type_name("N")
      ->check(CLI::Range(1, 1000000).description(""));
  options->plan.addTo(*verb);

  verb->add_flag("--random", options->random, "Run random numbers in place of a case")->group("Random case");
  verb->add_option("--seed", options->seed, "The same seed gives the same case (default 0)")->group("Random case");
  verb->add_option("--logit-std", options->logitStd, "Standard deviation of the logits (default 1)")
      ->group("Random case");
  verb->add_option("--masked-fraction", options->maskedFraction, "Tokens that do not count (default 0.25)")
      ->group("Random case");
  options->workload.addTo(*verb);
  verb->footer("Examples:\n"
               "  lathe run case.safetensors --out result.safetensors\n"
               "  lathe run case.safetensors --device cuda:1 --workspace-limit 2G\n"
               "  lathe run --random --model llama-3-8b --repeat 20");
  setAction(*verb, action, options, runCase);
}
