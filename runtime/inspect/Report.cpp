//===- runtime/inspect/Report.cpp - An inspection as a page -----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/inspect/Report.h"

#include "runtime/inspect/Html.h"
#include "runtime/inspect/InspectionJson.h"
#include "runtime/inspect/Occupancy.h"
#include "runtime/inspect/Plots.h"
#include "runtime/inspect/Quantities.h"
#include "runtime/inspect/ReportAssets.h"
#include "runtime/inspect/Roofline.h"
#include "runtime/inspect/Sass.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cmath>

using namespace lathe;

namespace {

/// Steps, configs and instructions that a page shows at most. A kernel of Lathe has some thousand instructions.
constexpr size_t kMostSteps = 60;
constexpr size_t kMostConfigs = 12;
constexpr size_t kMostInstructions = 30'000;

/// What a step takes: measured, else predicted, else at least.
double timeOf(const StepInspection& step) {
  return step.measuredMilliseconds.value_or(step.predictedMilliseconds.value_or(step.floorMilliseconds));
}

std::string timeKind(const StepInspection& step) {
  return step.measuredMilliseconds ? "measured" : step.predictedMilliseconds ? "predicted" : "at least";
}

std::string optionalTime(const std::optional<double>& milliseconds) {
  return milliseconds ? timeText(*milliseconds) : "";
}

/// `0–1`
std::string pairsText(const StepInspection& step) {
  return llvm::formatv("{0}–{1}", step.pairBegin, step.pairEnd - 1).str();
}

bool hasKernel(const PlanInspection& plan, const std::string& step) {
  return std::any_of(plan.kernels.begin(), plan.kernels.end(),
                     [&](const KernelInspection& kernel) { return kernel.step == step; });
}

void writeStep(llvm::raw_ostream& os, const PlanInspection& plan, const StepInspection& step, double longest) {
  const std::string name = escapeHtml(step.step);
  os << "<div class=\"step\"><b>";
  if (hasKernel(plan, step.step))
    os << "<a href=\"#code\" data-kernel=\"" << name << "\">" << name << "</a>";
  else
    os << name;
  os << "</b><small>" << escapeHtml(step.pass) << ", pairs " << pairsText(step) << "</small><small>bound by "
     << escapeHtml(toString(step.bound)) << "</small>";
  if (longest > 0)
    os << "<span class=\"share\" style=\"width:" << llvm::formatv("{0:f1}", 100 * timeOf(step) / longest)
       << "%\"></span>";
  os << "</div>";
}

/// The arrow to the next step: what this one moved, and what that took.
void writeEdge(llvm::raw_ostream& os, const StepInspection& step) {
  os << "<div class=\"edge\"><span>" << (step.bytes > 0 ? bytesText(step.bytes) : "") << "</span><span class=\"arrow\" "
     << "aria-hidden=\"true\"></span><span>" << (timeOf(step) > 0 ? timeText(timeOf(step)) : "") << "</span></div>";
}

std::string planSection(const PlanInspection& plan) {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "<p class=\"note\">Each step, and on the arrow behind it the bytes that it moves to and from memory and its "
        "time: measured, else predicted, else the least that the target allows.</p>\n<ol class=\"steps\">\n";
  double longest = 0;
  for (const StepInspection& step : plan.steps) longest = std::max(longest, timeOf(step));
  const size_t shown = std::min(plan.steps.size(), kMostSteps);
  for (size_t i = 0; i < shown; ++i) {
    os << "<li>";
    writeStep(os, plan, plan.steps[i], longest);
    writeEdge(os, plan.steps[i]);
    os << "</li>\n";
  }
  os << "<li><div class=\"step\"><b>results</b></div></li>\n</ol>\n";
  if (shown < plan.steps.size()) os << "<p class=\"note\">and " << plan.steps.size() - shown << " more steps</p>\n";
  return text;
}

std::string stepsTable(const PlanInspection& plan) {
  HtmlTable table("Steps: work, and the least time that the target allows", {{"step"},
                                                                             {"pairs"},
                                                                             {"grid"},
                                                                             {"work", true},
                                                                             {"memory", true},
                                                                             {"floor", true},
                                                                             {"bound by"},
                                                                             {"time", true},
                                                                             {""}});
  for (const StepInspection& step : llvm::ArrayRef(plan.steps).take_front(kMostSteps))
    table.add({step.step, pairsText(step),
               llvm::formatv("{0} × {1} × {2}", step.grid[0], step.grid[1], step.grid[2]).str(),
               step.flops > 0 ? flopsText(step.flops) : "", step.bytes > 0 ? bytesText(step.bytes) : "",
               step.floors.empty() ? "" : timeText(step.floorMilliseconds), toString(step.bound),
               timeOf(step) > 0 ? timeText(timeOf(step)) : "", timeOf(step) > 0 ? timeKind(step) : ""});
  return table.html();
}

std::string resourceTable(const PlanInspection& plan) {
  HtmlTable table("Resources of each kernel, as its cubin states them", {{"kernel"},
                                                                         {"threads", true},
                                                                         {"registers", true},
                                                                         {"shared", true},
                                                                         {"stack", true},
                                                                         {"spills", true},
                                                                         {"barriers", true},
                                                                         {"code", true},
                                                                         {"blocks", true},
                                                                         {"warps", true},
                                                                         {"limited by"},
                                                                         {"config"}});
  for (const KernelInspection& kernel : plan.kernels) {
    const KernelResources& resources = kernel.resources;
    HtmlTable::Cell name(kernel.step);
    name.kernel = kernel.step;
    const auto number = [](int64_t value) { return std::to_string(value); };
    table.add({std::move(name), number(resources.threads), number(resources.registers),
               bytesText(double(resources.staticSharedBytes + resources.dynamicSharedBytes)),
               HtmlTable::Cell(number(resources.stackBytes), resources.stackBytes > 0),
               HtmlTable::Cell(resources.spillInstructions ? number(*resources.spillInstructions) : "",
                               resources.spillInstructions.value_or(0) > 0),
               number(resources.barriers), bytesText(double(resources.codeBytes)), number(resources.occupancy.blocks),
               llvm::formatv("{0}/{1}", resources.occupancy.warps, resources.occupancy.maxWarps).str(),
               toString(resources.occupancy.limiter), kernel.configText});
  }
  return table.html();
}

std::string mixTable(const PlanInspection& plan) {
  std::vector<HtmlTable::Column> columns = {{"kernel"}, {"all", true}};
  for (size_t i = 0; i < kInstructionClassCount; ++i)
    columns.push_back({toString(static_cast<InstructionClass>(i)).str(), true});
  HtmlTable table("Instructions by class; of products also those of the hot loop, and what it does for one tile",
                  columns);
  const auto add = [&](std::string name, const InstructionMix& mix) {
    std::vector<HtmlTable::Cell> row = {std::move(name), std::to_string(mix.total())};
    for (size_t i = 0; i < kInstructionClassCount; ++i) {
      const int64_t count = mix[static_cast<InstructionClass>(i)];
      row.push_back(count > 0 ? std::to_string(count) : std::string());
    }
    table.add(std::move(row));
  };
  for (const KernelInspection& kernel : plan.kernels) {
    if (!kernel.sass) continue;
    add(kernel.step, kernel.mix);
    if (kernel.tile && kernel.hotLoop) add(kernel.step + ", hot loop", kernel.loops[*kernel.hotLoop].mix);
  }
  return table.html();
}

std::string tileTable(const PlanInspection& plan) {
  HtmlTable table("One tile of each product", {{"kernel"},
                                               {"tiles", true},
                                               {"work", true},
                                               {"from L2", true},
                                               {"hot loop iterations", true},
                                               {"hot loop instructions of a warp", true}});
  for (const KernelInspection& kernel : plan.kernels)
    if (kernel.tile)
      table.add({kernel.step, std::to_string(kernel.tile->tiles), flopsText(kernel.tile->flops),
                 bytesText(kernel.tile->bytes), std::to_string(std::llround(kernel.tile->iterations)),
                 std::to_string(std::llround(kernel.tile->instructions))});
  return table.html();
}

/// What a step needs of one part of the machine; empty where it needs none.
std::string floorText(const StepInspection& step, Bound bound) {
  for (const FloorTime& floor : step.floors)
    if (floor.bound == bound) return timeText(floor.milliseconds());
  return "";
}

std::string floorTable(const PlanInspection& plan) {
  constexpr Bound kBounds[] = {Bound::Compute, Bound::Memory, Bound::L2, Bound::SharedMemory, Bound::Mufu};
  std::vector<HtmlTable::Column> columns = {{"step"}, {"pairs"}};
  for (const Bound bound : kBounds) columns.push_back({toString(bound).str(), true});
  HtmlTable table("The least time that each part of the machine needs for a product", std::move(columns));
  for (const StepInspection& step : llvm::ArrayRef(plan.steps).take_front(kMostSteps)) {
    if (step.flops <= 0) continue;
    std::vector<HtmlTable::Cell> row = {step.step, pairsText(step)};
    for (const Bound bound : kBounds) row.push_back(floorText(step, bound));
    table.add(std::move(row));
  }
  return table.html();
}

std::string landscapeSection(const PlanInspection& plan) {
  std::string text;
  for (const Landscape& landscape : plan.landscapes) {
    text += "<h3>" + escapeHtml(landscape.step) + "</h3>\n" + landscapePlot(landscape);
    HtmlTable table("The fastest configs", {{"config"}, {"predicted", true}, {"measured", true}, {""}});
    for (const LandscapePoint& point : llvm::ArrayRef(landscape.points).take_front(kMostConfigs))
      table.add({point.config, timeText(point.predictedMilliseconds), optionalTime(point.measuredMilliseconds),
                 point.chosen ? "chosen" : ""});
    text += "<details><summary>The fastest configs</summary>\n" + table.html() + "</details>\n";
  }
  return text.empty() ? "<p class=\"note\">No product was inspected.</p>" : text;
}

std::string tuningTable(const PlanInspection& plan) {
  if (plan.tuning.empty()) return "<p class=\"note\">Not tuned: the cost model chose the configs.</p>\n";
  HtmlTable table(
      "Tuned plans in the cache",
      {{"device"}, {"shape"}, {"median", true}, {"untuned", true}, {"driver"}, {"NVRTC"}, {"by"}, {"when"}, {"run"}});
  for (const TuningRecord& record : plan.tuning)
    table.add({record.device, llvm::formatv("{0} × {1}", record.sequences, record.tokens).str(),
               timeText(record.medianMilliseconds), timeText(record.untunedMedianMilliseconds), record.driver,
               record.nvrtc, "lathe " + record.latheVersion, record.date, record.run});
  return table.html();
}

/// The command that shows the same again.
std::string commandOf(const PlanInspection& plan) {
  return llvm::formatv("printf '%s' '{0}' > workload.json\n"
                       "lathe inspect --workload workload.json --sequences {1} --tokens {2} --arch {3} --html "
                       "report.html",
                       plan.workload, plan.sequences, plan.tokens, plan.arch)
      .str();
}

std::string provenanceSection(const PlanInspection& plan) {
  std::string text;
  llvm::raw_string_ostream os(text);
  HtmlTable about("What was inspected, and with what", {{""}, {""}});
  about.add({"workload", plan.workload});
  about.add({"workload digest", plan.workloadDigest});
  about.add({"target", llvm::formatv("{0}, {1} multiprocessors", plan.arch, plan.multiprocessors).str()});
  about.add({"lathe", plan.latheVersion});
  about.add({"NVRTC", plan.nvrtcVersion.empty() ? "not found" : plan.nvrtcVersion});
  about.add({"disassembler", plan.disassembler.empty() ? "not found" : plan.disassembler});
  os << about.html() << tuningTable(plan);
  HtmlTable digests("Digests", {{"kernel"}, {"kernel digest"}, {"source digest"}, {"origin"}});
  for (const KernelInspection& kernel : plan.kernels)
    digests.add({kernel.step, kernel.kernelDigest, kernel.sourceDigest, kernel.origin});
  os << digests.html() << "<h3>To see this again</h3>\n<pre>" << escapeHtml(commandOf(plan)) << "</pre>\n";
  return text;
}

/// The kernels without the instructions that are too many for a page.
llvm::json::Value dataOf(const PlanInspection& plan) {
  llvm::json::Array kernels;
  for (const KernelInspection& kernel : plan.kernels) {
    const size_t count = kernel.sass ? kernel.sass->instructions.size() : 0;
    if (count <= kMostInstructions) {
      kernels.push_back(toJson(kernel, CodeInJson::With));
      continue;
    }
    KernelInspection part = kernel;
    part.sass->instructions.resize(kMostInstructions);
    std::erase_if(part.loops, [](const SassLoop& loop) { return loop.ranges.back().end > kMostInstructions; });
    part.hotLoop = findHotLoop(part.loops);
    llvm::json::Value value = toJson(part, CodeInJson::With);
    (*value.getAsObject())["dropped"] = static_cast<int64_t>(count - kMostInstructions);
    kernels.push_back(std::move(value));
  }
  return llvm::json::Object{{"kernels", std::move(kernels)}};
}

std::string leadOf(const PlanInspection& plan) {
  double floor = 0, time = 0;
  for (const StepInspection& step : plan.steps) {
    floor += step.floorMilliseconds;
    time += timeOf(step);
  }
  return escapeHtml(llvm::formatv("{0} sequences of {1} tokens on {2}: {3} expected, at least {4}; {5} of workspace, "
                                  "strategy {6}",
                                  plan.sequences, plan.tokens, plan.arch, timeText(time), timeText(floor),
                                  bytesText(double(plan.workspaceBytes)), plan.strategy)
                        .str());
}

/// Puts `values` into the places `@name@` of `page`, which is walked once: values are not looked into.
std::string filled(llvm::StringRef page, const std::vector<std::pair<llvm::StringRef, std::string>>& values) {
  std::string result;
  while (!page.empty()) {
    const auto [before, rest] = page.split('@');
    result += before;
    const auto [name, after] = rest.split('@');
    const auto found =
        std::find_if(values.begin(), values.end(), [&](const auto& value) { return value.first == name; });
    if (found != values.end()) result += found->second;
    page = after;
  }
  return result;
}

} // namespace

std::string lathe::renderReport(const PlanInspection& plan) {
  const std::string title = escapeHtml("Lathe: kernels of " + plan.workloadDigest.substr(0, 19) + " for " + plan.arch);
  const std::string missing =
      !plan.kernels.empty() && !plan.kernels.front().sass
          ? "<p class=\"note\">No machine code: " + escapeHtml(plan.kernels.front().sassProblem) + "</p>\n"
          : "";
  const std::string roofline = rooflinePlot(plan);
  return filled(reportAsset("report.html"),
                {{"title", title},
                 {"style", reportAsset("report.css").str()},
                 {"lead", leadOf(plan)},
                 {"plan", planSection(plan) + stepsTable(plan)},
                 {"kernels", missing + resourceTable(plan) + mixTable(plan) + tileTable(plan)},
                 {"roofline",
                  (roofline.empty() ? "<p class=\"note\">The plan has no product.</p>" : roofline) + floorTable(plan)},
                 {"landscape", landscapeSection(plan)},
                 {"provenance", provenanceSection(plan)},
                 {"data", escapeJsonForScript(llvm::formatv("{0}", dataOf(plan)).str())},
                 {"script", reportAsset("report.js").str()}});
}
