//===- runtime/public/CApi.cpp - The C API over the C++ API ----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "lathe.h"

#include "generator/Workload.h"
#include "lathe/runtime.h"
#include "runtime/api/HostRun.h"
#include "runtime/api/Unwrap.h"

#include <cstdlib>
#include <cstring>
#include <new>

using namespace lathe;

struct lathe_runtime {
  Runtime runtime;
};
struct lathe_plan {
  Plan plan;
};

// The enumerations of both APIs share their values.
static_assert(static_cast<int>(ErrorCode::Workspace) == LATHE_WORKSPACE);
static_assert(static_cast<int>(ErrorCode::Compile) == LATHE_COMPILE);
static_assert(static_cast<int>(DType::FP32) == LATHE_FP32);
static_assert(static_cast<int>(Precision::TF32) == LATHE_TF32);
static_assert(static_cast<int>(Tune::Now) == LATHE_TUNE_NOW);
static_assert(sizeof(lathe_diagnostics) == sizeof(RunDiagnostics));

namespace {

std::string& lastError() {
  static thread_local std::string message;
  return message;
}

/// Runs `body`, which may throw, and turns what it throws into a status.
template <class Body> lathe_status guarded(Body body) noexcept {
  try {
    body();
    return LATHE_OK;
  } catch (const Exception& exception) {
    lastError() = exception.what();
    return static_cast<lathe_status>(exception.code());
  } catch (const std::bad_alloc&) {
    lastError() = "out of host memory";
  } catch (const std::exception& exception) {
    lastError() = exception.what();
  }
  return LATHE_INTERNAL;
}

void require(const void* pointer, const char* name) {
  if (!pointer) throw Exception(ErrorCode::InvalidArgument, std::string(name) + " is null");
}

/// Writes `value` to a struct of which the caller knows `size` bytes.
template <class Struct> void assign(Struct* to, size_t size, Struct value) {
  value.size = std::min(size, sizeof(Struct));
  std::memcpy(static_cast<void*>(to), &value, value.size);
}

/// The caller's struct as this library knows it: fields past the caller's `size` have their defaults.
template <class Struct> Struct upgraded(const Struct* given, void (*init)(Struct*), const char* name) {
  require(given, name);
  if (given->size < sizeof(size_t))
    throw Exception(ErrorCode::InvalidArgument,
                    std::string(name) + "->size is " + std::to_string(given->size) + "; initialise the struct first");
  Struct full;
  init(&full);
  std::memcpy(&full, given, std::min(given->size, sizeof(Struct)));
  full.size = sizeof(Struct);
  return full;
}

template <class Enum> Enum checkedEnum(int value, int last, const char* name) {
  if (value < 0 || value > last)
    throw Exception(ErrorCode::InvalidArgument, std::string(name) + " is " + std::to_string(value) +
                                                    "; it must be from 0 to " + std::to_string(last));
  return static_cast<Enum>(value);
}

Workload workloadOf(const lathe_workload* given) {
  const lathe_workload full = upgraded(given, lathe_workload_init, "workload");
  Workload workload;
  workload.hidden = full.hidden;
  workload.vocab = full.vocab;
  workload.dtype = checkedEnum<DType>(full.dtype, LATHE_FP32, "workload->dtype");
  workload.precision = checkedEnum<Precision>(full.precision, LATHE_TF32, "workload->precision");
  workload.bias = full.bias != 0;
  workload.logitScale = full.logit_scale != 0;
  workload.softcap = full.softcap != 0;
  workload.nll = full.nll != 0;
  workload.logitMeans = full.logit_means != 0;
  workload.gradInput = full.grad_input != 0;
  workload.gradWeight = full.grad_weight != 0;
  workload.gradBias = full.grad_bias != 0;
  workload.gradWeightDType = workload.gradWeight
                                 ? checkedEnum<DType>(full.grad_weight_dtype, LATHE_FP32, "workload->grad_weight_dtype")
                                 : workload.dtype;
  if (full.sequences != 0) workload.sequences = full.sequences;
  if (full.tokens != 0) workload.tokens = full.tokens;
  return workload;
}

void fill(const Workload& from, lathe_workload& to) {
  lathe_workload_init(&to);
  to.hidden = from.hidden;
  to.vocab = from.vocab;
  to.dtype = static_cast<lathe_dtype>(from.dtype);
  to.precision = static_cast<lathe_precision>(from.precision);
  to.bias = from.bias;
  to.logit_scale = from.logitScale;
  to.softcap = from.softcap;
  to.nll = from.nll;
  to.logit_means = from.logitMeans;
  to.grad_input = from.gradInput;
  to.grad_weight = from.gradWeight;
  to.grad_bias = from.gradBias;
  to.grad_weight_dtype = static_cast<lathe_dtype>(from.gradWeightDType);
  to.sequences = from.sequences.value_or(0);
  to.tokens = from.tokens.value_or(0);
}

Shape shapeOf(const lathe_shape* given) {
  const lathe_shape full = upgraded(given, lathe_shape_init, "shape");
  return {full.sequences, full.tokens};
}

RunArguments argumentsOf(const lathe_run_arguments* given) {
  const lathe_run_arguments full = upgraded(given, lathe_run_arguments_init, "arguments");
  RunArguments run;
  run.input = full.input;
  run.weight = full.weight;
  run.bias = full.bias;
  run.target = full.target;
  run.scalars = {full.beta,    full.gamma,       full.label_smoothing, full.alpha,
                 full.softcap, full.logit_scale, full.ignore_index};
  run.upstreamScale = full.upstream_scale;
  run.upstream = full.upstream;
  run.loss = full.loss;
  run.preferenceLoss = full.preference_loss;
  run.nll = full.nll;
  run.chosenLogps = full.chosen_logps;
  run.rejectedLogps = full.rejected_logps;
  run.chosenRewards = full.chosen_rewards;
  run.rejectedRewards = full.rejected_rewards;
  run.chosenLogitsMean = full.chosen_logits_mean;
  run.rejectedLogitsMean = full.rejected_logits_mean;
  run.perTokenLogps = full.per_token_logps;
  run.diagnostics = reinterpret_cast<RunDiagnostics*>(full.diagnostics);
  run.gradInput = full.grad_input;
  run.gradWeight = full.grad_weight;
  run.gradBias = full.grad_bias;
  run.accumulate = full.accumulate != 0;
  run.workspace = full.workspace;
  run.workspaceBytes = full.workspace_bytes;
  return run;
}

/// A copy for the caller, freed by lathe_string_free.
char* duplicated(const std::string& text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (!copy) throw std::bad_alloc();
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

} // namespace

const char* lathe_version(void) {
  return LATHE_VERSION;
}
const char* lathe_last_error(void) {
  return lastError().c_str();
}

void lathe_workload_init_sized(lathe_workload* workload, size_t size) {
  lathe_workload defaults{};
  defaults.nll = defaults.logit_means = defaults.grad_input = defaults.grad_weight = 1;
  assign(workload, size, defaults);
}

void lathe_shape_init_sized(lathe_shape* shape, size_t size) {
  assign(shape, size, {});
}

void lathe_runtime_options_init_sized(lathe_runtime_options* options, size_t size) {
  assign(options, size, {});
}

void lathe_plan_options_init_sized(lathe_plan_options* options, size_t size) {
  lathe_plan_options defaults{};
  defaults.device = -1;
  assign(options, size, defaults);
}

void lathe_run_arguments_init_sized(lathe_run_arguments* arguments, size_t size) {
  const Scalars scalars;
  lathe_run_arguments defaults{};
  defaults.beta = scalars.beta;
  defaults.gamma = scalars.gamma;
  defaults.label_smoothing = scalars.labelSmoothing;
  defaults.alpha = scalars.alpha;
  defaults.softcap = scalars.softcap;
  defaults.logit_scale = scalars.logitScale;
  defaults.ignore_index = scalars.ignoreIndex;
  defaults.upstream_scale = 1.0f;
  assign(arguments, size, defaults);
}

lathe_status lathe_workload_parse_sized(const char* json, lathe_workload* workload, size_t size) {
  return guarded([&] {
    require(json, "json");
    require(workload, "workload");
    lathe_workload parsed;
    fill(unwrap(parseWorkload(llvm::StringRef(json))), parsed);
    assign(workload, size, parsed);
  });
}

lathe_status lathe_workload_digest(const lathe_workload* workload, char digest[72]) {
  return guarded([&] {
    require(digest, "digest");
    const Workload value = workloadOf(workload);
    throwIfError(validate(value));
    const std::string text = workloadDigest(value).text();
    std::memcpy(digest, text.c_str(), text.size() + 1);
  });
}

lathe_status lathe_runtime_create(const lathe_runtime_options* options, lathe_runtime** runtime) {
  return guarded([&] {
    require(runtime, "runtime");
    RuntimeOptions chosen;
    if (options) {
      const lathe_runtime_options full = upgraded(options, lathe_runtime_options_init, "options");
      if (full.cache_dir) chosen.cacheDir = full.cache_dir;
      if (full.nvrtc_path) chosen.nvrtcPath = full.nvrtc_path;
      if (full.compile_threads) chosen.compileThreads = full.compile_threads;
    }
    *runtime = new lathe_runtime{Runtime(chosen)};
  });
}

void lathe_runtime_destroy(lathe_runtime* runtime) {
  delete runtime;
}

lathe_status lathe_plan_create(lathe_runtime* runtime, const lathe_workload* workload, const lathe_shape* shape,
                               const lathe_plan_options* options, lathe_plan** plan) {
  return guarded([&] {
    require(runtime, "runtime");
    require(plan, "plan");
    PlanOptions chosen;
    if (options) {
      const lathe_plan_options full = upgraded(options, lathe_plan_options_init, "options");
      if (full.workspace_limit) chosen.workspaceLimit = full.workspace_limit;
      if (full.chunk_pairs) chosen.chunkPairs = full.chunk_pairs;
      if (full.device >= 0) chosen.device = full.device;
      chosen.tune = checkedEnum<Tune>(full.tune, LATHE_TUNE_NOW, "options->tune");
      if (full.tune_seconds != 0) chosen.tuneSeconds = full.tune_seconds;
    }
    *plan = new lathe_plan{runtime->runtime.plan(workloadOf(workload), shapeOf(shape), chosen)};
  });
}

void lathe_plan_destroy(lathe_plan* plan) {
  delete plan;
}

int64_t lathe_plan_workspace_bytes(const lathe_plan* plan) {
  return plan ? plan->plan.workspaceBytes() : 0;
}

lathe_status lathe_plan_describe(const lathe_plan* plan, char** json) {
  return guarded([&] {
    require(plan, "plan");
    require(json, "json");
    *json = duplicated(plan->plan.describe());
  });
}

void lathe_string_free(char* string) {
  std::free(string);
}

lathe_status lathe_plan_forward(const lathe_plan* plan, const lathe_run_arguments* arguments, void* stream) {
  return guarded([&] {
    require(plan, "plan");
    plan->plan.forward(argumentsOf(arguments), stream);
  });
}

lathe_status lathe_plan_backward(const lathe_plan* plan, const lathe_run_arguments* arguments, void* stream) {
  return guarded([&] {
    require(plan, "plan");
    plan->plan.backward(argumentsOf(arguments), stream);
  });
}

lathe_status lathe_plan_run(const lathe_plan* plan, const lathe_run_arguments* arguments, void* stream) {
  return guarded([&] {
    require(plan, "plan");
    plan->plan.run(argumentsOf(arguments), stream);
  });
}

lathe_status lathe_run_on_host(const lathe_workload* workload, const lathe_shape* shape,
                               const lathe_run_arguments* arguments) {
  return guarded([&] { throwIfError(runOnHost(workloadOf(workload), shapeOf(shape), argumentsOf(arguments))); });
}
