//===- cli/PlanVerb.cpp - lathe plan ---------------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/Device.h"
#include "cli/PlanInputs.h"
#include "cli/Text.h"
#include "cli/Verbs.h"
#include "generator/Workload.h"
#include "runtime/api/PlanDescription.h"
#include "tuning/Measure.h"

using namespace lathe;
using namespace lathe::cli;

namespace {

struct ShowPlanOptions {
  WorkloadOptions workload;
  std::string arch;
  PlanFlags plan;
  bool twoCalls = false;
  bool json = false;
};

void printSummary(const PlanGraph& graph, const Session& session) {
  const Workload& workload = graph.workload;
  Properties properties;
  properties.add("workload", workloadDigest(workload).text());
  properties.add("", canonicalJson(workload));
  properties.add("shape",
                 llvm::formatv("{0} sequences of {1} tokens", graph.shape.sequences, graph.shape.tokens).str());
  properties.add("target",
                 llvm::formatv("{0}, {1} multiprocessors", graph.target.arch(), graph.target.multiprocessors).str());
  properties.add(
      "strategy",
      llvm::formatv("{0}, {1} pairs at a time", toString(graph.choices.strategy), graph.choices.chunkPairs).str());
  properties.add("workspace", bytesText(static_cast<double>(graph.workspaceBytes)));
  session.print(properties);
}

void printSteps(const PlanGraph& graph, const std::vector<Step>& steps, const Session& session) {
  session.title("steps");
  using enum Table::Align;
  Table table({{"step"}, {"pass"}, {"pairs"}, {"grid", Right}, {"work", Right}, {"memory", Right}, {"config"}});
  double flops = 0;
  double bytes = 0;
  for (const Step& step : steps) {
    flops += step.flops;
    bytes += step.bytes;
    const std::optional<Gemm> gemm = productOf(step.kind);
    table.add({toString(step.kind), step.pass == Pass::Forward ? "forward" : "backward",
               llvm::formatv("{0}-{1}", step.pairBegin, step.pairEnd - 1).str(),
               llvm::formatv("{0} x {1} x {2}", step.grid[0], step.grid[1], step.grid[2]).str(),
               step.flops > 0 ? flopsText(step.flops) : "", bytesText(step.bytes),
               gemm ? toString(graph.choices.configs.of(*gemm)) : ""});
  }
  table.add({Cell("total", Tone::Strong), "", "", "", flopsText(flops), bytesText(bytes)});
  session.print(table);
}

void printWorkspace(const PlanGraph& graph, const Session& session) {
  session.title("workspace");
  Table table({{"region"}, {"offset", Table::Align::Right}, {"size", Table::Align::Right}});
  for (const WorkspaceRegion& region : graph.regions)
    table.add({region.name, std::to_string(region.offset), bytesText(static_cast<double>(region.bytes))});
  session.print(table);
}

llvm::Expected<ExitCode> showPlan(const ShowPlanOptions& options, const Session& session) {
  llvm::Expected<PlanInputs> inputs = resolvePlanInputs(options.workload, options.arch, options.plan, session);
  if (!inputs) return inputs.takeError();
  llvm::Expected<PlanGraph> graph = inputs->plan();
  if (!graph) return graph.takeError();
  if (options.json) {
    session.print(toJson(*graph, {}));
    return ExitCode::Ok;
  }
  printSummary(*graph, session);
  printSteps(*graph, stepsOfRun(*graph, options.twoCalls), session);
  printWorkspace(*graph, session);
  return ExitCode::Ok;
}

} // namespace

void lathe::cli::addPlanVerb(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("plan", "Show the steps, kernels and workspace for a workload");
  const auto options = std::make_shared<ShowPlanOptions>();
  addJsonFlag(*verb, options->json);
  addArchOption(*verb, options->arch);
  options->plan.addTo(*verb);
  verb->add_flag("--two-calls", options->twoCalls, "The loss and the gradients as two calls")->group("Plan");
  options->workload.addTo(*verb);
  verb->footer("Needs no GPU when --arch is given.\n\n"
               "Examples:\n"
               "  lathe plan --model llama-3-8b --arch sm_90a\n"
               "  lathe plan --model gemma-2-9b --arch sm_80 --sequences 8 --workspace-limit 1G");
  setAction(*verb, action, options, showPlan);
}
