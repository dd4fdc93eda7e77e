//===- runtime/launch/StepBinder.h - From a step to its parameter -----------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "generator/PlanGraph.h"
#include "lathe/runtime.h"
#include "templates/common/arguments.cuh"

namespace lathe {

/// Where each region of a plan's workspace begins, in bytes; -1 for regions that the plan does not have.
struct WorkspaceOffsets {
  explicit WorkspaceOffsets(const PlanGraph& plan);

  int64_t state, slotStart, rowToken, rowTarget, maskedToken, targetLogit, rowLogsumexp, rowLogp, rowLogitSum, slotMean,
      slotSum, slotLogitSum, pairLoss, slotCoefficient, rows, tileMaximum, tileSum, tileLogitSum, exponentials,
      biasPartials;
};

/// Builds the parameter of each kernel for one run.
class StepBinder {
public:
  StepBinder(const PlanGraph& plan, const WorkspaceOffsets& offsets, const RunArguments& run)
      : plan_(plan), offsets_(offsets), run_(run) {}

  /// Calls `launch(parameter)` with the parameter struct of `step`'s kernel.
  template <class Launch> auto bind(const Step& step, Launch launch) const {
    switch (step.kind) {
    case KernelKind::RowMap:
      return launch(rowMap());
    case KernelKind::GatherRows:
      return launch(gatherRows());
    case KernelKind::Logits:
      return launch(logits(step));
    case KernelKind::Loss:
      return launch(loss(step));
    case KernelKind::GradLogits:
      return launch(gradLogits(step));
    case KernelKind::GradBias:
      return launch(gradBias());
    case KernelKind::GradInput:
      return launch(gradInput(step));
    case KernelKind::GradWeight:
      return launch(gradWeight(step));
    }
    llvm_unreachable("unknown kernel");
  }

  /// The tensors of a product whose kernel is of the wgmma family, as TMA needs them.
  struct TensorSource {
    const void* base;
    DType dtype;
    /// Elements of a row, rows, bytes from row to row.
    int64_t columns;
    int64_t rows;
    int64_t pitchBytes;
    /// Rows of the box that one copy moves; it is 128 bytes wide.
    int64_t boxRows;
  };
  struct TensorSources {
    TensorSource a;
    TensorSource b;
    /// Where the step copies whole tiles out.
    std::optional<TensorSource> out;
  };
  TensorSources tensorSources(const Step& step) const;

private:
  device::RowMapArguments rowMap() const;
  device::GatherRowsArguments gatherRows() const;
  device::LogitsArguments logits(const Step& step) const;
  device::LossArguments loss(const Step& step) const;
  device::GradLogitsArguments gradLogits(const Step& step) const;
  device::GradBiasArguments gradBias() const;
  device::GradInputArguments gradInput(const Step& step) const;
  device::GradWeightArguments gradWeight(const Step& step) const;

  /// The workspace at `offset`; null where the plan has no such region.
  template <class T> T* at(int64_t offset) const {
    return offset < 0 ? nullptr : reinterpret_cast<T*>(static_cast<char*>(run_.workspace) + offset);
  }
  TensorSource rowsSource(int64_t boxRows) const;
  TensorSource weightSource(int64_t boxRows) const;
  TensorSource panelsSource(int64_t boxRows) const;
  TensorSource gradWeightSource(int64_t boxRows) const;
  device::RowTables tables() const;
  device::PairTables pairs() const;
  device::TilePartials partials() const;
  device::Panels panels() const;
  device::RowResults rowResults() const;
  device::LossScalars scalars() const;
  device::LossOutputs outputs() const;
  device::Upstream upstream() const { return {run_.upstream, run_.upstreamScale}; }
  device::SlotRange slots(const Step& step) const;
  /// Blocks of grad_logits along the rows of `pairs` pairs.
  int64_t gradLogitsBlocks(int64_t pairs) const;

  const PlanGraph& plan_;
  const WorkspaceOffsets& offsets_;
  const RunArguments& run_;
};

} // namespace lathe
