//===- runtime/inspect/InspectionJson.cpp - Inspections as JSON -------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/inspect/InspectionJson.h"

#include "generator/CanonicalJson.h"
#include "runtime/inspect/Occupancy.h"
#include "runtime/inspect/Roofline.h"
#include "runtime/inspect/Sass.h"

using namespace lathe;

namespace {

using llvm::json::Array;
using llvm::json::Object;
using llvm::json::Value;

/// JSON text must be UTF-8; disassemblies of foreign cubins may be anything.
std::string utf8(llvm::StringRef text) {
  return llvm::json::isUTF8(text) ? text.str() : llvm::json::fixUTF8(text);
}

template <class T> Value orNull(const std::optional<T>& value) {
  if (value) return *value;
  return nullptr;
}

Value toJson(const Occupancy& occupancy) {
  return Object{{"blocks", occupancy.blocks},
                {"warps", occupancy.warps},
                {"max_warps", occupancy.maxWarps},
                {"fraction", occupancy.fraction()},
                {"limiter", toString(occupancy.limiter)},
                {"blocks_by_registers", occupancy.blocksByRegisters},
                {"blocks_by_shared_memory", occupancy.blocksByShared},
                {"blocks_by_threads", occupancy.blocksByThreads},
                {"blocks_by_limit", occupancy.blocksByLimit}};
}

Value toJson(const SassLoop& loop, const SassListing& listing) {
  Array ranges;
  for (const InstructionRange& range : loop.ranges)
    ranges.push_back(Array{listing.instructions[range.begin].address, listing.instructions[range.end - 1].address});
  return Object{{"addresses", std::move(ranges)},
                {"instructions", static_cast<int64_t>(loop.instructions())},
                {"depth", loop.depth},
                {"flops_per_warp", loop.flops},
                {"shared_bytes_per_warp", loop.sharedBytes},
                {"mix", lathe::toJson(loop.mix)}};
}

Value toJson(const TileWork& tile) {
  return Object{{"tiles", tile.tiles},
                {"flops", tile.flops},
                {"bytes", tile.bytes},
                {"hot_loop_iterations", tile.iterations},
                {"hot_loop_instructions_per_warp", tile.instructions}};
}

Array toJson(const std::vector<SourceFile>& files) {
  Array array;
  for (const SourceFile& file : files) array.push_back(Object{{"name", file.name}, {"text", utf8(file.text)}});
  return array;
}

/// Instructions as short arrays (address, text, class, stack, PTX line, branch target), for there are thousands.
Value toJson(const SassListing& listing) {
  Array instructions;
  for (const SassInstruction& instruction : listing.instructions)
    instructions.push_back(Array{instruction.address, utf8(instruction.text), lathe::toString(instruction.kind),
                                 instruction.stack, instruction.ptxLine, orNull(instruction.target)});
  Array stacks;
  for (const std::vector<SourcePlace>& stack : listing.stacks) {
    Array places;
    for (const SourcePlace& place : stack) places.push_back(Array{utf8(place.file), place.line});
    stacks.push_back(std::move(places));
  }
  return Object{{"fields", Array{"address", "text", "class", "stack", "ptx_line", "target"}},
                {"instructions", std::move(instructions)},
                {"stacks", std::move(stacks)}};
}

Value toJson(const HardwareRates& rates) {
  return Object{{"clock_hz", rates.clockHz},
                {"tensor_flops", rates.tensorFlops},
                {"fma_flops", rates.fmaFlops},
                {"memory_bytes", rates.memoryBytes},
                {"l2_bytes", rates.l2Bytes},
                {"shared_bytes", rates.sharedBytes},
                {"mufu_operations", rates.mufuOperations}};
}

Value toJson(const Landscape& landscape) {
  Array points;
  for (const LandscapePoint& point : landscape.points)
    points.push_back(Object{{"config", point.config},
                            {"predicted_ms", point.predictedMilliseconds},
                            {"measured_ms", orNull(point.measuredMilliseconds)},
                            {"chosen", point.chosen}});
  return Object{{"kernel", landscape.step}, {"points", std::move(points)}};
}

} // namespace

Value lathe::parsedJson(llvm::StringRef json) {
  if (json.empty()) return nullptr;
  llvm::Expected<Value> value = parseJson(json);
  if (value) return std::move(*value);
  llvm::consumeError(value.takeError());
  return nullptr;
}

Value lathe::toJson(const TuningRecord& record) {
  Object configs;
  for (const auto& [step, config] : record.configs) configs[utf8(step)] = utf8(config);
  return Object{{"run", utf8(record.run)},
                {"device", utf8(record.device)},
                {"driver", utf8(record.driver)},
                {"nvrtc", utf8(record.nvrtc)},
                {"shape", Object{{"sequences", record.sequences}, {"tokens", record.tokens}}},
                {"median_ms", record.medianMilliseconds},
                {"untuned_median_ms", record.untunedMedianMilliseconds},
                {"date", utf8(record.date)},
                {"lathe_version", utf8(record.latheVersion)},
                {"configs", std::move(configs)}};
}

Value lathe::toJson(const InstructionMix& mix) {
  Object object{{"total", mix.total()}};
  for (size_t i = 0; i < kInstructionClassCount; ++i) {
    const auto kind = static_cast<InstructionClass>(i);
    object[toString(kind)] = mix[kind];
  }
  return object;
}

Value lathe::toJson(const KernelResources& resources) {
  return Object{{"threads", resources.threads},
                {"registers", resources.registers},
                {"static_shared_bytes", resources.staticSharedBytes},
                {"dynamic_shared_bytes", resources.dynamicSharedBytes},
                {"stack_bytes", resources.stackBytes},
                {"spill_instructions", orNull(resources.spillInstructions)},
                {"barriers", resources.barriers},
                {"parameter_bytes", resources.parameterBytes},
                {"code_bytes", resources.codeBytes},
                {"occupancy", ::toJson(resources.occupancy)}};
}

Value lathe::toJson(const StepInspection& step) {
  Array floors;
  for (const FloorTime& floor : step.floors)
    floors.push_back(Object{{"bound", toString(floor.bound)},
                            {"amount", floor.amount},
                            {"per_second", floor.rate},
                            {"ms", floor.milliseconds()}});
  return Object{{"kernel", step.step},
                {"pass", step.pass},
                {"pairs", Array{step.pairBegin, step.pairEnd}},
                {"grid", Array{step.grid[0], step.grid[1], step.grid[2]}},
                {"flops", step.flops},
                {"bytes", step.bytes},
                {"floors", std::move(floors)},
                {"floor_ms", step.floorMilliseconds},
                {"bound", toString(step.bound)},
                {"predicted_ms", orNull(step.predictedMilliseconds)},
                {"measured_ms", orNull(step.measuredMilliseconds)}};
}

Value lathe::toJson(const KernelInspection& kernel, CodeInJson code) {
  Object object{{"kernel", kernel.step},
                {"entry", kernel.entry},
                {"arch", kernel.arch},
                {"kernel_digest", kernel.kernelDigest},
                {"source_digest", kernel.sourceDigest},
                {"origin", kernel.origin},
                {"compile_milliseconds", kernel.compileMilliseconds},
                {"resources", toJson(kernel.resources)},
                {"config", parsedJson(kernel.configJson)}};
  if (kernel.tile) object["tile"] = ::toJson(*kernel.tile);
  if (kernel.sass) {
    object["mix"] = toJson(kernel.mix);
    Array loops;
    for (const SassLoop& loop : kernel.loops) loops.push_back(::toJson(loop, *kernel.sass));
    object["loops"] = std::move(loops);
    object["hot_loop"] = kernel.hotLoop ? Value(static_cast<int64_t>(*kernel.hotLoop)) : Value(nullptr);
  } else {
    object["sass_problem"] = utf8(kernel.sassProblem);
  }
  if (code == CodeInJson::Without) return object;
  object["sources"] = ::toJson(kernel.sources);
  object["ptx"] = utf8(kernel.ptx);
  if (kernel.sass) object["sass"] = ::toJson(*kernel.sass);
  return object;
}

Value lathe::toJson(const PlanInspection& plan, CodeInJson code) {
  Array steps, kernels, landscapes, tuning;
  for (const StepInspection& step : plan.steps) steps.push_back(toJson(step));
  for (const KernelInspection& kernel : plan.kernels) kernels.push_back(toJson(kernel, code));
  for (const Landscape& landscape : plan.landscapes) landscapes.push_back(::toJson(landscape));
  for (const TuningRecord& record : plan.tuning) tuning.push_back(toJson(record));
  return Object{{"workload", parsedJson(plan.workload)},
                {"workload_digest", plan.workloadDigest},
                {"shape", Object{{"sequences", plan.sequences}, {"tokens", plan.tokens}}},
                {"arch", plan.arch},
                {"multiprocessors", plan.multiprocessors},
                {"rates", ::toJson(plan.rates)},
                {"strategy", plan.strategy},
                {"workspace_bytes", plan.workspaceBytes},
                {"steps", std::move(steps)},
                {"kernels", std::move(kernels)},
                {"landscapes", std::move(landscapes)},
                {"tuning", std::move(tuning)},
                {"lathe_version", plan.latheVersion},
                {"nvrtc_version", plan.nvrtcVersion},
                {"disassembler", plan.disassembler}};
}
