//===- runtime/inspect/InspectionJson.h - Inspections as JSON ---------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "lathe/inspect.h"

#include "llvm/Support/JSON.h"

namespace lathe {

/// How much of a kernel goes into JSON.
enum class CodeInJson : uint8_t { Without, With };

/// The value of JSON text; null where it is empty or none.
llvm::json::Value parsedJson(llvm::StringRef json);

llvm::json::Value toJson(const TuningRecord& record);
llvm::json::Value toJson(const InstructionMix& mix);
llvm::json::Value toJson(const KernelResources& resources);
llvm::json::Value toJson(const StepInspection& step);
/// `With` has the sources, the PTX and each instruction with the lines that it comes from.
llvm::json::Value toJson(const KernelInspection& kernel, CodeInJson code);
llvm::json::Value toJson(const PlanInspection& plan, CodeInJson code);

} // namespace lathe
