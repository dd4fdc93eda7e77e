/*===- examples/embed_c/main.c - Lathe in a C program --------------------===*\
|*
|* Part of Lathe, under the Apache License, version 2.0. See LICENSE.
|*
|*===----------------------------------------------------------------------===*|
|*
|* Computes the loss and its gradient on the CPU, which works everywhere, takes one step of gradient descent, and shows
|* that the loss falls. Then makes a plan for the GPU, where there is one.
|*
\*===----------------------------------------------------------------------===*/
#include <lathe.h>

#include <stdio.h>
#include <stdlib.h>

enum { kHidden = 32, kVocab = 100, kSequences = 4, kTokens = 8 };
enum { kRows = kSequences * kTokens };

/* Numbers from -1 to 1, the same in every run. */
static void fillRandom(float* values, size_t count) {
  uint32_t state = 1;
  for (size_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    values[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
  }
}

static int failed(const char* call) {
  fprintf(stderr, "error: %s: %s\n", call, lathe_last_error());
  return EXIT_FAILURE;
}

/* A plan holds the kernels for one workload and shape on one GPU. To run it, allocate the tensors and
 * lathe_plan_workspace_bytes() with the CUDA library that the program uses, put the device pointers into a
 * lathe_run_arguments as below, with workspace and workspace_bytes, and call
 *
 *     lathe_plan_run(plan, &arguments, stream);
 *
 * which enqueues the kernels and returns. The results are there once the stream is synchronised. */
static void planForGpu(const lathe_workload* workload, const lathe_shape* shape) {
  lathe_runtime* runtime = NULL;
  lathe_plan* plan = NULL;
  if (lathe_runtime_create(NULL, &runtime) != LATHE_OK ||
      lathe_plan_create(runtime, workload, shape, NULL, &plan) != LATHE_OK)
    printf("no plan for a GPU: %s\n", lathe_last_error());
  else
    printf("on the GPU this needs %lld bytes of workspace\n", (long long)lathe_plan_workspace_bytes(plan));
  lathe_plan_destroy(plan);
  lathe_runtime_destroy(runtime);
}

int main(void) {
  static float input[kRows * kHidden];
  static float weight[kVocab * kHidden];
  static float gradWeight[kVocab * kHidden];
  static int64_t target[kRows];
  fillRandom(input, kRows * kHidden);
  fillRandom(weight, kVocab * kHidden);
  for (int i = 0; i < kRows; ++i) target[i] = i % kTokens < 2 ? -100 : (i * 37) % kVocab;

  lathe_workload workload;
  lathe_workload_init(&workload);
  workload.hidden = kHidden;
  workload.vocab = kVocab;
  workload.dtype = LATHE_FP32;
  workload.grad_input = 0;
  workload.grad_weight_dtype = LATHE_FP32;

  lathe_shape shape;
  lathe_shape_init(&shape);
  shape.sequences = kSequences;
  shape.tokens = kTokens;

  float loss = 0;
  lathe_diagnostics diagnostics;
  lathe_run_arguments arguments;
  lathe_run_arguments_init(&arguments);
  arguments.input = input;
  arguments.weight = weight;
  arguments.target = target;
  arguments.loss = &loss;
  arguments.diagnostics = &diagnostics;
  arguments.grad_weight = gradWeight;

  if (lathe_run_on_host(&workload, &shape, &arguments) != LATHE_OK) return failed("lathe_run_on_host");
  const float before = loss;
  printf("loss %.5f over %d valid tokens\n", (double)before, diagnostics.valid_tokens);

  for (int i = 0; i < kVocab * kHidden; ++i) weight[i] -= 0.1f * gradWeight[i];
  if (lathe_run_on_host(&workload, &shape, &arguments) != LATHE_OK) return failed("lathe_run_on_host");
  printf("loss %.5f after one step of gradient descent\n", (double)loss);

  planForGpu(&workload, &shape);
  return loss < before ? EXIT_SUCCESS : EXIT_FAILURE;
}
