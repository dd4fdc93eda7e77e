/*===- tests/unit/c_header_test.c - lathe.h in C -------------------------===*\
|*
|* Part of Lathe, under the Apache License, version 2.0. See LICENSE.
|*
\*===----------------------------------------------------------------------===*/
#include <lathe.h>

/** The sum of the sizes that the structs have in C and that their initialisers write; c_api_test.cpp compares it with
 *  the sum in C++. Every function is called or named, so that its declaration is C. */
size_t latheSizesInC(int fromInitialisers);

size_t latheSizesInC(int fromInitialisers) {
  lathe_workload workload;
  lathe_shape shape;
  lathe_runtime_options runtime;
  lathe_plan_options plan;
  lathe_run_arguments arguments;
  if (!fromInitialisers) return sizeof workload + sizeof shape + sizeof runtime + sizeof plan + sizeof arguments;
  lathe_workload_init(&workload);
  lathe_shape_init(&shape);
  lathe_runtime_options_init(&runtime);
  lathe_plan_options_init(&plan);
  lathe_run_arguments_init(&arguments);
  if (lathe_run_on_host(&workload, &shape, &arguments) == LATHE_OK || !lathe_last_error() || !lathe_version()) return 0;
  return workload.size + shape.size + runtime.size + plan.size + arguments.size;
}
