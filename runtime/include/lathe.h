/*===- lathe.h - The C API of Lathe --------------------------------------===*\
|*
|* Part of Lathe, under the Apache License, version 2.0. See LICENSE.
|*
|*===----------------------------------------------------------------------===*|
|*
|* Plans and runs the fused linear + SimPO loss. Everything is as in the C++ API (lathe/runtime.h, lathe/workload.h);
|* this header states what differs.
|*
|* - Functions return a status. After any other than LATHE_OK, lathe_last_error() describes the failure.
|* - Every struct begins with `size`, which lathe_*_init() sets along with the defaults. A caller built against an older
|*   header passes a smaller size; fields it does not know keep their defaults. Fields are only ever added at the end.
|* - Handles are opaque. They may be used from several threads at once; destroying one that is in use is an error of the
|*   caller. Destroying null does nothing.
|*
\*===----------------------------------------------------------------------===*/
#ifndef LATHE_H
#define LATHE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LATHE_C_API __attribute__((visibility("default")))

typedef enum lathe_status {
  LATHE_OK = 0,
  LATHE_INTERNAL = 1,
  LATHE_INVALID_ARGUMENT = 2,
  LATHE_INVALID_WORKLOAD = 3,
  LATHE_UNSUPPORTED = 4,
  LATHE_IO = 5,
  LATHE_CORRUPT = 6,
  LATHE_MISSING_LIBRARY = 7,
  LATHE_COMPILE = 8,
  LATHE_DRIVER = 9,
  LATHE_WORKSPACE = 10
} lathe_status;

typedef enum lathe_dtype { LATHE_BF16 = 0, LATHE_FP16 = 1, LATHE_FP32 = 2 } lathe_dtype;
typedef enum lathe_precision { LATHE_IEEE = 0, LATHE_TF32 = 1 } lathe_precision;

typedef enum lathe_tune { LATHE_TUNE_NEVER = 0, LATHE_TUNE_BACKGROUND = 1, LATHE_TUNE_NOW = 2 } lathe_tune;

typedef struct lathe_runtime lathe_runtime;
typedef struct lathe_plan lathe_plan;

/** What to compute: everything that is compiled into the kernels. Flags are 0 or 1. */
typedef struct lathe_workload {
  size_t size;
  int64_t hidden;
  int64_t vocab;
  lathe_dtype dtype;
  lathe_precision precision;
  int32_t bias;
  int32_t logit_scale;
  int32_t softcap;
  int32_t nll;
  int32_t logit_means;
  int32_t grad_input;
  int32_t grad_weight;
  int32_t grad_bias;
  lathe_dtype grad_weight_dtype;
  /** 0: any number at run time. */
  int64_t sequences;
  int64_t tokens;
} lathe_workload;

typedef struct lathe_shape {
  size_t size;
  int64_t sequences;
  int64_t tokens;
} lathe_shape;

typedef struct lathe_runtime_options {
  size_t size;
  /** Null: from the environment. */
  const char* cache_dir;
  const char* nvrtc_path;
  /** 0: as many as there are processors. */
  uint32_t compile_threads;
} lathe_runtime_options;

typedef struct lathe_plan_options {
  size_t size;
  /** In bytes; 0: no limit. */
  int64_t workspace_limit;
  /** 0: chosen by the plan. */
  int64_t chunk_pairs;
  /** -1: the device of the calling thread's current context, else 0. */
  int32_t device;
  lathe_tune tune;
  /** The most time that tuning takes, in seconds; 0: 60. */
  double tune_seconds;
} lathe_plan_options;

typedef struct lathe_diagnostics {
  int32_t valid_tokens;
  int32_t empty_sequences;
  int32_t bad_targets;
  int32_t first_bad_sequence;
  int32_t first_bad_token;
} lathe_diagnostics;

/** Pointers and scalars of one run; see lathe::RunArguments for shapes, dtypes and alignment. */
typedef struct lathe_run_arguments {
  size_t size;
  const void* input;
  const void* weight;
  const void* bias;
  const int64_t* target;

  double beta;
  double gamma;
  double label_smoothing;
  double alpha;
  double softcap;
  double logit_scale;
  int64_t ignore_index;

  float upstream_scale;
  const float* upstream;

  float* loss;
  float* preference_loss;
  float* nll;
  float* chosen_logps;
  float* rejected_logps;
  float* chosen_rewards;
  float* rejected_rewards;
  float* chosen_logits_mean;
  float* rejected_logits_mean;
  float* per_token_logps;
  lathe_diagnostics* diagnostics;

  void* grad_input;
  void* grad_weight;
  void* grad_bias;
  int32_t accumulate;

  void* workspace;
  int64_t workspace_bytes;
} lathe_run_arguments;

/** `major.minor.patch` of the library. */
LATHE_C_API const char* lathe_version(void);
/** What the last failing call on this thread said; valid until the next call on this thread. */
LATHE_C_API const char* lathe_last_error(void);

/* Set the defaults of a struct that has `size` bytes where the caller was built; no more are written. */
LATHE_C_API void lathe_workload_init_sized(lathe_workload* workload, size_t size);
LATHE_C_API void lathe_shape_init_sized(lathe_shape* shape, size_t size);
LATHE_C_API void lathe_runtime_options_init_sized(lathe_runtime_options* options, size_t size);
LATHE_C_API void lathe_plan_options_init_sized(lathe_plan_options* options, size_t size);
LATHE_C_API void lathe_run_arguments_init_sized(lathe_run_arguments* arguments, size_t size);
/** Reads a workload from JSON; a struct of `size` bytes is initialised by the call. */
LATHE_C_API lathe_status lathe_workload_parse_sized(const char* json, lathe_workload* workload, size_t size);

/* The same for structs of this header. */
static inline void lathe_workload_init(lathe_workload* workload) {
  lathe_workload_init_sized(workload, sizeof(*workload));
}
static inline void lathe_shape_init(lathe_shape* shape) {
  lathe_shape_init_sized(shape, sizeof(*shape));
}
static inline void lathe_runtime_options_init(lathe_runtime_options* options) {
  lathe_runtime_options_init_sized(options, sizeof(*options));
}
static inline void lathe_plan_options_init(lathe_plan_options* options) {
  lathe_plan_options_init_sized(options, sizeof(*options));
}
static inline void lathe_run_arguments_init(lathe_run_arguments* arguments) {
  lathe_run_arguments_init_sized(arguments, sizeof(*arguments));
}
static inline lathe_status lathe_workload_parse(const char* json, lathe_workload* workload) {
  return lathe_workload_parse_sized(json, workload, sizeof(*workload));
}

/** Writes the workload digest, `sha256:` and 64 digits with a final zero: 72 bytes. */
LATHE_C_API lathe_status lathe_workload_digest(const lathe_workload* workload, char digest[72]);

/** `options` may be null. */
LATHE_C_API lathe_status lathe_runtime_create(const lathe_runtime_options* options, lathe_runtime** runtime);
LATHE_C_API void lathe_runtime_destroy(lathe_runtime* runtime);

/** Makes a plan; it stays valid after its runtime is destroyed. `options` may be null. */
LATHE_C_API lathe_status lathe_plan_create(lathe_runtime* runtime, const lathe_workload* workload,
                                           const lathe_shape* shape, const lathe_plan_options* options,
                                           lathe_plan** plan);
LATHE_C_API void lathe_plan_destroy(lathe_plan* plan);

/** Device memory that a run needs besides inputs and outputs. */
LATHE_C_API int64_t lathe_plan_workspace_bytes(const lathe_plan* plan);
/** The plan as JSON, to be freed with lathe_string_free. */
LATHE_C_API lathe_status lathe_plan_describe(const lathe_plan* plan, char** json);
LATHE_C_API void lathe_string_free(char* string);

/** Each enqueues its kernels on `stream` (a CUstream or cudaStream_t) and returns. */
LATHE_C_API lathe_status lathe_plan_forward(const lathe_plan* plan, const lathe_run_arguments* arguments, void* stream);
LATHE_C_API lathe_status lathe_plan_backward(const lathe_plan* plan, const lathe_run_arguments* arguments,
                                             void* stream);
LATHE_C_API lathe_status lathe_plan_run(const lathe_plan* plan, const lathe_run_arguments* arguments, void* stream);

/** Computes the same on the CPU in double precision: all pointers are host memory without alignment rules, `upstream`
 *  included; no workspace. Returns when the results are there. */
LATHE_C_API lathe_status lathe_run_on_host(const lathe_workload* workload, const lathe_shape* shape,
                                           const lathe_run_arguments* arguments);

#ifdef __cplusplus
}
#endif

#endif /* LATHE_H */
