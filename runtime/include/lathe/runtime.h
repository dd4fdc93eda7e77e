//===- lathe/runtime.h - Plans and how to run them --------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// The C++ API. A `Runtime` makes `Plan`s; a plan computes the loss and its gradients on a stream:
///
/// \code
/// lathe::Runtime runtime;
/// lathe::Workload workload{.hidden = 4096, .vocab = 128256, .dtype = lathe::DType::BF16};
/// lathe::Plan plan = runtime.plan(workload, {.sequences = 4, .tokens = 1024});
/// // ... allocate plan.workspaceBytes() of device memory ...
/// plan.run(arguments, stream);
/// \endcode
///
/// Every function that can fail throws `lathe::Exception`.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "lathe/error.h"
#include "lathe/workload.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#define LATHE_API __attribute__((visibility("default")))

namespace lathe {

/// A `CUstream` or `cudaStream_t`; null is the legacy default stream.
using StreamHandle = void*;

/// Counts that a run leaves in device memory.
struct RunDiagnostics {
  int32_t validTokens;
  int32_t emptySequences;
  /// Targets outside [0, V) that are not the ignored index. When there are any, the loss is NaN.
  int32_t badTargets;
  /// Where the first of them is, or -1.
  int32_t firstBadSequence;
  int32_t firstBadToken;
};

/// Device pointers for one run. Tensors are dense and row-major. Input, weight, bias, gradients and workspace must be
/// aligned to 16 bytes (the workspace to 256), the others to their element. Pointers marked optional may be null.
struct RunArguments {
  /// `[sequences, tokens, H]` in the workload's dtype.
  const void* input = nullptr;
  /// `[V, H]` in the workload's dtype.
  const void* weight = nullptr;
  /// `[V]` in the workload's dtype; only with `Workload::bias`.
  const void* bias = nullptr;
  /// `[sequences, tokens]`.
  const int64_t* target = nullptr;

  Scalars scalars;
  /// The gradients are those of the loss times `upstreamScale`, times `*upstream` where that is given (one device
  /// float, read on the stream).
  float upstreamScale = 1.0f;
  const float* upstream = nullptr;

  /// All optional: results of the loss, fp32. `B` is the number of pairs.
  float* loss = nullptr;
  float* preferenceLoss = nullptr;
  float* nll = nullptr;
  /// `[B]`: mean log-probability of the valid tokens.
  float* chosenLogps = nullptr;
  float* rejectedLogps = nullptr;
  /// `[B]`: beta times the above.
  float* chosenRewards = nullptr;
  float* rejectedRewards = nullptr;
  float* chosenLogitsMean = nullptr;
  float* rejectedLogitsMean = nullptr;
  /// `[sequences, tokens]`; 0 at ignored tokens.
  float* perTokenLogps = nullptr;
  RunDiagnostics* diagnostics = nullptr;

  /// `[sequences, tokens, H]` in the workload's dtype; overwritten.
  void* gradInput = nullptr;
  /// `[V, H]` in `Workload::gradWeightDType`.
  void* gradWeight = nullptr;
  /// `[V]` in the workload's dtype.
  void* gradBias = nullptr;
  /// Adds to gradWeight and gradBias instead of overwriting them.
  bool accumulate = false;

  /// `Plan::workspaceBytes()` of scratch memory. `backward` needs it as `forward` left it.
  void* workspace = nullptr;
  int64_t workspaceBytes = 0;
};

/// When a plan is tuned; see docs/tuning.md. Results are kept in the cache, and later plans use them whatever they ask.
enum class Tune : uint8_t {
  /// The plan is made from what the cache knows, else from the cost model.
  Never,
  /// As Never, and meanwhile candidates are measured on the same GPU, in pauses between which the caller has it for
  /// itself at least 95 % of the time. A faster plan takes the place of this one between two calls; it needs no more
  /// workspace.
  Background,
  /// The plan is tuned before it is returned, unless that was done before.
  Now,
};

/// What a caller may ask of a plan.
struct PlanOptions {
  /// The most workspace that the plan may use, in bytes; none: no limit.
  std::optional<int64_t> workspaceLimit = std::nullopt;
  /// Pairs whose exponentials are kept at once. None: all where the limit allows, else as many as it does.
  std::optional<int64_t> chunkPairs = std::nullopt;
  /// Ordinal of the GPU; none: that of the calling thread's current context, else 0.
  std::optional<int> device = std::nullopt;
  Tune tune = Tune::Never;
  /// The most time that tuning takes, in seconds.
  double tuneSeconds = 60;

  friend bool operator==(const PlanOptions&, const PlanOptions&) = default;
};

/// The ordered kernels for one workload, shape and device, ready to launch. Copies share everything. Const functions
/// may be called from several threads at once, each with its own workspace.
class LATHE_API Plan {
public:
  const Workload& workload() const;
  const Shape& shape() const;
  /// Device memory that a run needs besides its inputs and outputs.
  int64_t workspaceBytes() const;
  /// Steps, kernels, configs, FLOPs, bytes and workspace as JSON.
  std::string describe() const;

  /// Each of the three enqueues its kernels on `stream` and returns: no allocation, no synchronisation; it can be
  /// captured in a CUDA graph. Arguments are checked before anything is enqueued; after that only a failure of the
  /// driver throws. The stream must belong to the context that the plan was made in, which is made current for the call
  /// if need be.

  /// The loss and, when the workload has gradients, what `backward` needs.
  void forward(const RunArguments& arguments, StreamHandle stream) const;
  /// The gradients, after `forward` with the same inputs, scalars and workspace.
  void backward(const RunArguments& arguments, StreamHandle stream) const;
  /// The loss and the gradients.
  void run(const RunArguments& arguments, StreamHandle stream) const;

  class Implementation;
  explicit Plan(std::shared_ptr<const Implementation> implementation);
  const Implementation& implementation() const { return *implementation_; }

private:
  std::shared_ptr<const Implementation> implementation_;
};

/// How a runtime finds things; what is absent comes from the environment (see docs/cache.md).
struct RuntimeOptions {
  std::optional<std::string> cacheDir = std::nullopt;
  std::optional<std::vector<std::string>> readOnlyCaches = std::nullopt;
  std::optional<std::string> nvrtcPath = std::nullopt;
  /// Threads that compile; none: all processors.
  std::optional<unsigned> compileThreads = std::nullopt;
};

/// Makes plans: generates, compiles (or finds in the cache) and loads their kernels. Safe to use from several threads.
/// A runtime must outlive neither its plans nor anything else: plans keep what they need.
class LATHE_API Runtime {
public:
  explicit Runtime(const RuntimeOptions& options = {});

  /// Makes a plan, or returns one made before for the same arguments (in microseconds).
  Plan plan(const Workload& workload, const Shape& shape, const PlanOptions& options = {});

  class Implementation;

private:
  std::shared_ptr<Implementation> implementation_;
};

} // namespace lathe
