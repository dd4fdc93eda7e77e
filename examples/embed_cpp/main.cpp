//===- examples/embed_cpp/main.cpp - Lathe in a C++ program ---------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Makes a plan, runs it on a stream, then captures it in a CUDA graph and replays that. Says so and ends well where
/// there is no GPU.
///
//===----------------------------------------------------------------------===//
#include "CudaDriver.h"
#include "lathe/runtime.h"

#include <cstdio>
#include <cstring>
#include <random>

namespace {

constexpr lathe::Workload kWorkload{.hidden = 512, .vocab = 32000, .dtype = lathe::DType::BF16};
constexpr lathe::Shape kShape{.sequences = 4, .tokens = 256};

/// bf16 is the upper half of a float; the lower half is dropped.
uint16_t toBf16(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>(bits >> 16);
}

std::vector<uint16_t> randomTensor(int64_t count, float deviation, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<uint16_t> values(static_cast<size_t>(count));
  for (uint16_t& value : values) value = toBf16(normal(random));
  return values;
}

/// The first quarter of every sequence is a prompt, which does not count.
std::vector<int64_t> randomTargets(const lathe::Scalars& scalars) {
  std::mt19937 random(3);
  std::uniform_int_distribution<int64_t> entry(0, kWorkload.vocab - 1);
  std::vector<int64_t> targets(static_cast<size_t>(kShape.rows()));
  for (size_t i = 0; i < targets.size(); ++i)
    targets[i] = static_cast<int64_t>(i) % kShape.tokens < kShape.tokens / 4 ? scalars.ignoreIndex : entry(random);
  return targets;
}

/// What a run leaves in device memory.
struct Results {
  float loss;
  float chosenReward[2];
  float rejectedReward[2];
  lathe::RunDiagnostics diagnostics;
};

void print(const char* title, const Results& results) {
  std::printf("%s: loss %.6f over %d valid tokens\n", title, static_cast<double>(results.loss),
              results.diagnostics.validTokens);
  for (int pair = 0; pair < 2; ++pair)
    std::printf("  pair %d: reward of chosen %.4f, of rejected %.4f\n", pair,
                static_cast<double>(results.chosenReward[pair]), static_cast<double>(results.rejectedReward[pair]));
}

/// Captures one run in a graph and launches it `times` times.
void replay(const Gpu& gpu, const lathe::Plan& plan, const lathe::RunArguments& arguments, int times) {
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  check(gpu.driver.beginCapture(gpu.stream(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
  plan.run(arguments, gpu.stream());
  check(gpu.driver.endCapture(gpu.stream(), &graph), "cuStreamEndCapture");
  check(gpu.driver.graphInstantiate(&executable, graph, 0), "cuGraphInstantiateWithFlags");
  for (int i = 0; i < times; ++i) check(gpu.driver.graphLaunch(executable, gpu.stream()), "cuGraphLaunch");
  gpu.synchronize();
  gpu.driver.graphExecDestroy(executable);
  gpu.driver.graphDestroy(graph);
}

int run() {
  const Gpu gpu;

  // The plan: its kernels are generated, compiled (or found in the cache) and loaded here. The GPU is that of the
  // current context.
  lathe::Runtime runtime;
  const lathe::Plan plan = runtime.plan(kWorkload, kShape);
  std::printf("workspace: %.1f MiB\n", static_cast<double>(plan.workspaceBytes()) / (1 << 20));

  const lathe::Scalars scalars{.beta = 2.0, .gamma = 1.0};
  const DeviceMemory input(gpu, randomTensor(kShape.rows() * kWorkload.hidden, 1.0f, 1));
  const DeviceMemory weight(gpu, randomTensor(kWorkload.vocab * kWorkload.hidden, 0.04f, 2));
  const DeviceMemory target(gpu, randomTargets(scalars));
  const DeviceMemory gradInput(gpu, static_cast<size_t>(2 * kShape.rows() * kWorkload.hidden));
  const DeviceMemory gradWeight(gpu, static_cast<size_t>(2 * kWorkload.vocab * kWorkload.hidden));
  const DeviceMemory workspace(gpu, static_cast<size_t>(plan.workspaceBytes()));
  const DeviceMemory results(gpu, sizeof(Results));

  lathe::RunArguments arguments;
  arguments.input = input.get();
  arguments.weight = weight.get();
  arguments.target = target.as<int64_t>();
  arguments.scalars = scalars;
  arguments.loss = &results.as<Results>()->loss;
  arguments.chosenRewards = results.as<Results>()->chosenReward;
  arguments.rejectedRewards = results.as<Results>()->rejectedReward;
  arguments.diagnostics = &results.as<Results>()->diagnostics;
  arguments.gradInput = gradInput.get();
  arguments.gradWeight = gradWeight.get();
  arguments.workspace = workspace.get();
  arguments.workspaceBytes = plan.workspaceBytes();

  plan.run(arguments, gpu.stream());
  gpu.synchronize();
  const Results first = results.read<Results>();
  print("stream", first);

  replay(gpu, plan, arguments, 3);
  const Results replayed = results.read<Results>();
  print("graph", replayed);

  // Results are the same to the last bit in every run.
  if (std::memcmp(&first, &replayed, sizeof(Results)) == 0) return 0;
  std::fprintf(stderr, "error: the graph's results differ from the stream's\n");
  return 1;
}

} // namespace

int main() {
  try {
    return run();
  } catch (const NoGpu& reason) {
    std::printf("no GPU: %s\n", reason.what());
    return 0;
  } catch (const lathe::Exception& error) {
    std::fprintf(stderr, "error %d: %s\n", static_cast<int>(error.code()), error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
  }
  return 1;
}
