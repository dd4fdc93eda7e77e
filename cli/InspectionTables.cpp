//===- cli/InspectionTables.cpp - Inspections on a terminal -----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/InspectionTables.h"

#include "cli/Text.h"
#include "runtime/inspect/Occupancy.h"
#include "runtime/inspect/Roofline.h"
#include "runtime/inspect/Sass.h"

#include <cmath>

using namespace lathe;
using namespace lathe::cli;

namespace {

using enum Table::Align;

std::string optionalTime(const std::optional<double>& milliseconds) {
  return milliseconds ? timeText(*milliseconds) : "";
}

std::string countText(double count) {
  return std::to_string(std::llround(count));
}

std::string percentText(double part, double whole) {
  return whole > 0 ? llvm::formatv("{0:f1} %", 100 * part / whole).str() : "";
}

/// Bytes of shared memory, static and dynamic together.
double sharedBytes(const KernelResources& resources) {
  return static_cast<double>(resources.staticSharedBytes + resources.dynamicSharedBytes);
}

Cell spillCell(const KernelResources& resources) {
  const std::string text = std::to_string(resources.stackBytes);
  return {text, resources.stackBytes > 0 ? Tone::Bad : Tone::Plain};
}

std::string occupancyText(const Occupancy& occupancy) {
  return llvm::formatv("{0}/{1} warps", occupancy.warps, occupancy.maxWarps).str();
}

void printSummary(const PlanInspection& plan, const Session& session) {
  Properties properties;
  properties.add("workload", plan.workloadDigest);
  properties.add("", plan.workload);
  properties.add("shape", llvm::formatv("{0} sequences of {1} tokens", plan.sequences, plan.tokens).str());
  properties.add("target", llvm::formatv("{0}, {1} multiprocessors", plan.arch, plan.multiprocessors).str());
  properties.add("strategy", plan.strategy);
  properties.add("workspace", bytesText(static_cast<double>(plan.workspaceBytes)));
  session.print(properties);
}

void printSteps(const PlanInspection& plan, const Session& session) {
  session.title("steps, with the least time that the target allows");
  const bool measured =
      llvm::any_of(plan.steps, [](const StepInspection& step) { return step.measuredMilliseconds.has_value(); });
  Table table({{"step"},
               {"pairs"},
               {"work", Right},
               {"memory", Right},
               {"floor", Right},
               {"bound by"},
               {"predicted", Right},
               {measured ? "measured" : "", Right}});
  double floor = 0;
  for (const StepInspection& step : plan.steps) {
    floor += step.floorMilliseconds;
    table.add({step.step, llvm::formatv("{0}-{1}", step.pairBegin, step.pairEnd - 1).str(),
               step.flops > 0 ? flopsText(step.flops) : "", step.bytes > 0 ? bytesText(step.bytes) : "",
               step.floors.empty() ? "" : timeText(step.floorMilliseconds), toString(step.bound),
               optionalTime(step.predictedMilliseconds), optionalTime(step.measuredMilliseconds)});
  }
  table.add({Cell("total", Tone::Strong), "", "", "", timeText(floor)});
  session.print(table);
}

void printResources(const PlanInspection& plan, const Session& session) {
  session.title("kernels");
  Table table({{"kernel"},
               {"threads", Right},
               {"registers", Right},
               {"shared", Right},
               {"stack", Right},
               {"barriers", Right},
               {"occupancy", Right},
               {"limited by"},
               {"instructions", Right},
               {"hot loop", Right},
               {"config"}});
  for (const KernelInspection& kernel : plan.kernels) {
    const KernelResources& resources = kernel.resources;
    table.add({kernel.step, std::to_string(resources.threads), std::to_string(resources.registers),
               bytesText(sharedBytes(resources)), spillCell(resources), std::to_string(resources.barriers),
               occupancyText(resources.occupancy), toString(resources.occupancy.limiter),
               kernel.sass ? std::to_string(kernel.mix.total()) : "",
               kernel.hotLoop ? std::to_string(kernel.loops[*kernel.hotLoop].instructions()) : "", kernel.configText});
  }
  session.print(table);
}

/// Why there is no machine code, once.
void noteMissingCode(const PlanInspection& plan, const Session& session) {
  for (const KernelInspection& kernel : plan.kernels)
    if (!kernel.sass) return session.note("no machine code of " + kernel.step + ": " + kernel.sassProblem);
}

void printIdentity(const PlanInspection& plan, const KernelInspection& kernel, const Session& session) {
  Properties properties;
  properties.add("kernel", kernel.step + " for " + kernel.arch);
  if (!kernel.configText.empty()) properties.add("config", kernel.configText);
  properties.add("digest", kernel.kernelDigest);
  properties.add("source", kernel.sourceDigest);
  properties.add("workload", plan.workloadDigest);
  properties.add("", plan.workload);
  properties.add("NVRTC", plan.nvrtcVersion.empty() ? "not found" : plan.nvrtcVersion);
  properties.add("nvdisasm", plan.disassembler.empty() ? "not found" : plan.disassembler);
  session.print(properties);
}

void printOccupancy(const KernelResources& resources, const Session& session) {
  session.title("resources");
  const Occupancy& occupancy = resources.occupancy;
  Properties properties;
  properties.add("threads", std::to_string(resources.threads));
  properties.add("registers", std::to_string(resources.registers) + " a thread");
  properties.add("shared memory",
                 llvm::formatv("{0} static, {1} dynamic", bytesText(static_cast<double>(resources.staticSharedBytes)),
                               bytesText(static_cast<double>(resources.dynamicSharedBytes)))
                     .str());
  properties.add("stack", Cell(bytesText(static_cast<double>(resources.stackBytes)) + " a thread",
                               resources.stackBytes > 0 ? Tone::Bad : Tone::Plain));
  if (resources.spillInstructions)
    properties.add("spills", Cell(std::to_string(*resources.spillInstructions) + " instructions",
                                  *resources.spillInstructions > 0 ? Tone::Bad : Tone::Plain));
  properties.add("barriers", std::to_string(resources.barriers));
  properties.add("parameters", bytesText(static_cast<double>(resources.parameterBytes)));
  properties.add("code", bytesText(static_cast<double>(resources.codeBytes)));
  properties.add("occupancy", llvm::formatv("{0} blocks, {1} of {2} warps, limited by {3}", occupancy.blocks,
                                            occupancy.warps, occupancy.maxWarps, toString(occupancy.limiter))
                                  .str());
  properties.add("blocks by", llvm::formatv("registers {0}, shared memory {1}, threads {2}, architecture {3}",
                                            occupancy.blocksByRegisters, occupancy.blocksByShared,
                                            occupancy.blocksByThreads, occupancy.blocksByLimit)
                                  .str());
  session.print(properties);
}

void printMix(const KernelInspection& kernel, const Session& session) {
  session.title("instructions");
  const SassLoop* hot = kernel.hotLoop ? &kernel.loops[*kernel.hotLoop] : nullptr;
  Table table({{"class"}, {"kernel", Right}, {"", Right}, {"hot loop", Right}, {"", Right}});
  const auto add = [&](Cell name, int64_t all, int64_t inLoop) {
    const double total = static_cast<double>(kernel.mix.total());
    table.add({std::move(name), std::to_string(all), percentText(static_cast<double>(all), total),
               hot ? std::to_string(inLoop) : "",
               hot ? percentText(static_cast<double>(inLoop), static_cast<double>(hot->mix.total())) : ""});
  };
  for (size_t i = 0; i < kInstructionClassCount; ++i) {
    const auto kind = static_cast<InstructionClass>(i);
    if (kernel.mix[kind] > 0) add(toString(kind), kernel.mix[kind], hot ? hot->mix[kind] : 0);
  }
  add(Cell("total", Tone::Strong), kernel.mix.total(), hot ? hot->mix.total() : 0);
  session.print(table);
}

void printLoop(const KernelInspection& kernel, const Session& session) {
  if (!kernel.hotLoop) return;
  session.title("hot loop");
  const SassLoop& loop = kernel.loops[*kernel.hotLoop];
  const std::vector<SassInstruction>& instructions = kernel.sass->instructions;
  Properties properties;
  std::string where;
  for (const InstructionRange& range : loop.ranges)
    where += llvm::formatv("{0}{1:x-4}-{2:x-4}", where.empty() ? "" : ", ", instructions[range.begin].address,
                           instructions[range.end - 1].address)
                 .str();
  properties.add("addresses", where);
  properties.add("instructions", llvm::formatv("{0}, {1} loops around them", loop.instructions(), loop.depth).str());
  if (loop.flops > 0)
    properties.add("work", llvm::formatv("{0} and {1} of shared memory a warp and iteration", flopsText(loop.flops),
                                         bytesText(loop.sharedBytes))
                               .str());
  session.print(properties);
}

void printTile(const TileWork& tile, const Session& session) {
  session.title("tile");
  Properties properties;
  properties.add("tiles", std::to_string(tile.tiles));
  properties.add("work", flopsText(tile.flops));
  properties.add("from L2", bytesText(tile.bytes));
  if (tile.iterations > 0)
    properties.add("hot loop", llvm::formatv("{0} iterations, {1} instructions a warp", countText(tile.iterations),
                                             countText(tile.instructions))
                                   .str());
  session.print(properties);
}

/// `12.9 TFLOP`, `1.08 GB`
std::string amountText(const FloorTime& floor) {
  if (floor.bound == Bound::Compute) return flopsText(floor.amount);
  if (floor.bound == Bound::Mufu) return llvm::formatv("{0:e2} operations", floor.amount).str();
  return bytesText(floor.amount);
}

std::string rateText(const FloorTime& floor) {
  const double tera = floor.rate / 1e12;
  return llvm::formatv("{0:f2} {1}", tera,
                       floor.bound == Bound::Compute ? "TFLOP/s"
                       : floor.bound == Bound::Mufu  ? "Top/s"
                                                     : "TB/s")
      .str();
}

void printFloors(const PlanInspection& plan, const KernelInspection& kernel, const Session& session) {
  for (const StepInspection& step : plan.steps) {
    if (step.step != kernel.step) continue;
    session.title(llvm::formatv("floor of pairs {0}-{1}: {2}, bound by {3}", step.pairBegin, step.pairEnd - 1,
                                step.floors.empty() ? "" : timeText(step.floorMilliseconds), toString(step.bound))
                      .str());
    Table table({{"bound"}, {"amount", Right}, {"at", Right}, {"time", Right}});
    for (const FloorTime& floor : step.floors)
      table.add({toString(floor.bound), amountText(floor), rateText(floor), timeText(floor.milliseconds())});
    if (step.predictedMilliseconds)
      table.add({Cell("predicted", Tone::Strong), "", "", timeText(*step.predictedMilliseconds)});
    if (step.measuredMilliseconds)
      table.add({Cell("measured", Tone::Strong), "", "", timeText(*step.measuredMilliseconds)});
    session.print(table);
    return;
  }
}

} // namespace

void lathe::cli::printPlan(const PlanInspection& plan, const Session& session) {
  printSummary(plan, session);
  printSteps(plan, session);
  printResources(plan, session);
  noteMissingCode(plan, session);
}

void lathe::cli::printKernel(const PlanInspection& plan, const KernelInspection& kernel, const Session& session) {
  printIdentity(plan, kernel, session);
  printOccupancy(kernel.resources, session);
  if (kernel.sass) {
    printMix(kernel, session);
    printLoop(kernel, session);
  }
  if (kernel.tile) printTile(*kernel.tile, session);
  printFloors(plan, kernel, session);
  noteMissingCode(plan, session);
}
