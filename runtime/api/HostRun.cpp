//===- runtime/api/HostRun.cpp - A run on the CPU ---------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/api/HostRun.h"

#include "generator/Workload.h"
#include "runtime/io/HalfTypes.h"
#include "runtime/reference/Reference.h"

#include <cstring>

using namespace lathe;

namespace {

void store(float* to, double value) {
  if (to) *to = static_cast<float>(value);
}

void storeAll(float* to, const std::vector<double>& values) {
  if (to) std::transform(values.begin(), values.end(), to, [](double value) { return static_cast<float>(value); });
}

void storeElement(void* to, DType type, size_t index, double value) {
  const float rounded = static_cast<float>(value);
  if (type == DType::FP32) {
    static_cast<float*>(to)[index] = rounded;
    return;
  }
  const uint16_t bits = type == DType::BF16 ? floatToBf16(rounded) : floatToFp16(rounded);
  std::memcpy(static_cast<char*>(to) + 2 * index, &bits, 2);
}

void storeGradient(void* to, DType type, const std::vector<double>& values, bool accumulate) {
  if (!to) return;
  for (size_t i = 0; i < values.size(); ++i)
    storeElement(to, type, i, accumulate ? elementAt(to, type, int64_t(i)) + values[i] : values[i]);
}

RunDiagnostics diagnosticsOf(const Diagnostics& from) {
  return {static_cast<int32_t>(from.validTokens), static_cast<int32_t>(from.emptySequences),
          static_cast<int32_t>(from.badTargets), static_cast<int32_t>(from.firstBadSequence),
          static_cast<int32_t>(from.firstBadToken)};
}

} // namespace

llvm::Error lathe::runOnHost(const Workload& workload, const Shape& shape, const RunArguments& run) {
  if (!run.input || !run.weight || !run.target || (workload.bias && !run.bias))
    return makeError(ErrorCode::InvalidArgument, "{0} is null; every run needs it",
                     !run.input    ? "input"
                     : !run.weight ? "weight"
                     : !run.target ? "target"
                                   : "bias");
  // Only what is asked for is computed.
  Workload wanted = workload;
  wanted.gradInput = workload.gradInput && run.gradInput;
  wanted.gradWeight = workload.gradWeight && run.gradWeight;
  wanted.gradBias = workload.gradBias && run.gradBias;
  if (!wanted.gradWeight) wanted.gradWeightDType = wanted.dtype;

  const Problem problem{.workload = wanted,
                        .shape = shape,
                        .scalars = run.scalars,
                        .input = run.input,
                        .weight = run.weight,
                        .bias = run.bias,
                        .target = run.target,
                        .upstreamScale = double(run.upstreamScale) * (run.upstream ? *run.upstream : 1.0f)};
  llvm::Expected<LossResult> result = computeReference<double>(problem);
  if (!result) return result.takeError();
  store(run.loss, result->loss);
  store(run.preferenceLoss, result->preferenceLoss);
  store(run.nll, result->nll);
  store(run.chosenLogitsMean, result->chosenLogitsMean);
  store(run.rejectedLogitsMean, result->rejectedLogitsMean);
  storeAll(run.chosenLogps, result->chosenLogps);
  storeAll(run.rejectedLogps, result->rejectedLogps);
  storeAll(run.chosenRewards, result->chosenRewards);
  storeAll(run.rejectedRewards, result->rejectedRewards);
  storeAll(run.perTokenLogps, result->perTokenLogps);
  if (run.diagnostics) *run.diagnostics = diagnosticsOf(result->diagnostics);
  storeGradient(run.gradInput, workload.dtype, result->gradInput, false);
  storeGradient(run.gradWeight, workload.gradWeightDType, result->gradWeight, run.accumulate);
  storeGradient(run.gradBias, workload.dtype, result->gradBias, run.accumulate);
  return llvm::Error::success();
}
