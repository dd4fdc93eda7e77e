//===- tests/unit/c_api_test.cpp - The C API, as a program sees it --------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
//
// Uses lathe.h and the shared library and nothing else of Lathe. Plans are made on a fake driver, a library that
// LATHE_LIBCUDA names.
//
//===----------------------------------------------------------------------===//
#include <lathe.h>

#include <catch2/catch.hpp>

#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

extern "C" size_t latheSizesInC(int fromInitialisers);

using Catch::Matchers::Contains;

namespace {

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

/// Reads JSON into a map from path (`kernels/0/entry`) to text. The test ends at the first wrong character.
class FlatJson {
public:
  explicit FlatJson(const std::string& text) : text_(text) {
    value("");
    skipSpace();
    if (at_ != text_.size()) fail("the end");
  }

  const std::string& operator[](const std::string& path) const {
    const auto found = values_.find(path);
    if (found == values_.end()) FAIL("there is no " << path);
    return found->second;
  }
  bool has(const std::string& path) const { return values_.count(path) != 0; }

private:
  [[noreturn]] void fail(const char* expected) const {
    FAIL("JSON: " << expected << " expected at " << at_ << ": " << text_.substr(at_, 40));
    std::abort();
  }
  void skipSpace() { at_ = std::min(text_.find_first_not_of(" \n\r\t", at_), text_.size()); }
  char peek() {
    skipSpace();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  std::string string() {
    if (!take('"')) fail("a string");
    const size_t end = text_.find('"', at_);
    if (end == std::string::npos) fail("a closing quote");
    const std::string result = text_.substr(at_, end - at_);
    at_ = end + 1;
    return result;
  }
  void value(const std::string& path) {
    const char first = peek();
    if (first == '{')
      members(path);
    else if (first == '[')
      elements(path);
    else
      values_[path] = first == '"' ? string() : word();
  }
  std::string word() {
    const size_t end = std::min(text_.find_first_of(",]} \n", at_), text_.size());
    const std::string result = text_.substr(at_, end - at_);
    char* rest = nullptr;
    std::strtod(result.c_str(), &rest);
    const bool number = !result.empty() && *rest == '\0';
    if (!number && result != "true" && result != "false" && result != "null") fail("a value");
    at_ = end;
    return result;
  }
  void members(const std::string& path) {
    take('{');
    if (take('}')) return;
    do {
      const std::string name = string();
      if (!take(':')) fail("a colon");
      value(path.empty() ? name : path + "/" + name);
    } while (take(','));
    if (!take('}')) fail("a closing brace");
  }
  void elements(const std::string& path) {
    take('[');
    if (take(']')) return;
    size_t index = 0;
    do value(path + "/" + std::to_string(index++));
    while (take(','));
    if (!take(']')) fail("a closing bracket");
  }

  const std::string& text_;
  size_t at_ = 0;
  std::map<std::string, std::string> values_;
};

/// A golden case: a safetensors file.
class GoldenCase {
public:
  explicit GoldenCase(const std::string& name) {
    std::ifstream file(std::string(LATHE_TEST_DATA) + "/" + name + ".safetensors", std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    REQUIRE(bytes.size() > 8);
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    headerText_ = bytes.substr(8, length);
    header_ = std::make_unique<FlatJson>(headerText_);
    data_ = bytes.substr(8 + length);
  }

  bool has(const std::string& tensor) const { return header_->has(tensor + "/dtype"); }
  int64_t extent(const std::string& tensor, int axis) const {
    return std::stoll((*header_)[tensor + "/shape/" + std::to_string(axis)]);
  }
  double option(const std::string& name) const { return std::stod((*header_)["__metadata__/" + name]); }
  std::string bytes(const std::string& tensor) const {
    const size_t begin = std::stoull((*header_)[tensor + "/data_offsets/0"]);
    return data_.substr(begin, std::stoull((*header_)[tensor + "/data_offsets/1"]) - begin);
  }
  std::vector<double> numbers(const std::string& tensor) const {
    const std::string raw = bytes(tensor);
    return (*header_)[tensor + "/dtype"] == "F64" ? as<double>(raw) : as<float>(raw);
  }

private:
  template <class T> static std::vector<double> as(const std::string& raw) {
    std::vector<double> result;
    for (size_t i = 0; i + sizeof(T) <= raw.size(); i += sizeof(T)) {
      T value;
      std::memcpy(&value, raw.data() + i, sizeof(T));
      result.push_back(static_cast<double>(value));
    }
    return result;
  }

  std::string headerText_;
  std::unique_ptr<FlatJson> header_;
  std::string data_;
};

double relativeError(const std::vector<float>& got, const std::vector<double>& want) {
  if (got.size() != want.size()) return INFINITY;
  double difference = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return std::sqrt(difference / norm);
}

/// What the environment and the files of one test need.
class Surroundings {
public:
  Surroundings() {
    char pattern[] = "/tmp/lathe-c-api-XXXXXX";
    REQUIRE(mkdtemp(pattern));
    folder_ = pattern;
    setenv("LATHE_LIBCUDA", LATHE_FAKE_CUDA, 1);
  }
  ~Surroundings() { std::filesystem::remove_all(folder_); }
  Surroundings(const Surroundings&) = delete;
  Surroundings& operator=(const Surroundings&) = delete;

  /// A runtime that keeps its kernels here, to be destroyed by the caller.
  lathe_runtime* makeRuntime() const {
    lathe_runtime_options options;
    lathe_runtime_options_init(&options);
    options.cache_dir = folder_.c_str();
    lathe_runtime* runtime = nullptr;
    REQUIRE(lathe_runtime_create(&options, &runtime) == LATHE_OK);
    return runtime;
  }

private:
  std::string folder_;
};

lathe_workload smallWorkload() {
  lathe_workload workload;
  lathe_workload_init(&workload);
  workload.hidden = 16;
  workload.vocab = 50;
  workload.dtype = workload.grad_weight_dtype = LATHE_FP32;
  return workload;
}

lathe_shape shapeOf(int64_t sequences, int64_t tokens) {
  lathe_shape shape;
  lathe_shape_init(&shape);
  shape.sequences = sequences;
  shape.tokens = tokens;
  return shape;
}

/// A run on the host of zeros: every logit is 0.
struct HostRun {
  explicit HostRun(lathe_workload workload = smallWorkload()) : workload(workload) {
    lathe_run_arguments_init(&arguments);
    arguments.input = input.data();
    arguments.weight = weight.data();
    arguments.target = target.data();
    arguments.loss = &loss;
  }
  HostRun(const HostRun&) = delete;
  HostRun& operator=(const HostRun&) = delete;

  lathe_status run() const { return lathe_run_on_host(&workload, &shape, &arguments); }

  lathe_workload workload;
  lathe_shape shape = shapeOf(2, 3);
  std::vector<float> input = std::vector<float>(2 * 3 * 16);
  std::vector<float> weight = std::vector<float>(50 * 16);
  std::vector<int64_t> target = std::vector<int64_t>(2 * 3, 1);
  float loss = -1;
  lathe_run_arguments arguments;
};

} // namespace

TEST_CASE("the header is C and its structs have the same sizes there") {
  const size_t sizes = sizeof(lathe_workload) + sizeof(lathe_shape) + sizeof(lathe_runtime_options) +
                       sizeof(lathe_plan_options) + sizeof(lathe_run_arguments);
  CHECK(latheSizesInC(0) == sizes);
  CHECK(latheSizesInC(1) == sizes);
  CHECK(std::string(lathe_version()) == LATHE_VERSION);
}

TEST_CASE("the workload digest is the SHA-256 of the canonical JSON") {
  lathe_workload workload;
  REQUIRE(lathe_workload_parse(R"({"vocab": 128256, "hidden": 4096, "dtype": "bf16"})", &workload) == LATHE_OK);
  CHECK(workload.size == sizeof(lathe_workload));
  CHECK(workload.hidden == 4096);
  CHECK(workload.nll == 1);
  CHECK(workload.grad_bias == 0);
  char digest[72];
  REQUIRE(lathe_workload_digest(&workload, digest) == LATHE_OK);
  // Of the text in generator/Workload.h.
  CHECK(std::string(digest) == "sha256:48639bd8b7afdcd0d816b6e4b23a58e54afba3ce58f6542e9e9683e193f162b9");

  workload.sequences = 4;
  char pinned[72];
  REQUIRE(lathe_workload_digest(&workload, pinned) == LATHE_OK);
  CHECK(std::string(pinned) != digest);
}

TEST_CASE("a workload that cannot be parsed is an error with a reason") {
  lathe_workload workload;
  CHECK(lathe_workload_parse("{", &workload) == LATHE_INVALID_WORKLOAD);
  CHECK(lathe_workload_parse(R"({"vocab": 10, "hidden": 4, "dtype": "fp8"})", &workload) == LATHE_INVALID_WORKLOAD);
  CHECK_THAT(lathe_last_error(), Contains("fp8"));
}

TEST_CASE("a struct of an older header is written no further than it reaches") {
  // As if the last field had come later.
  constexpr size_t kKnown = sizeof(lathe_plan_options) - sizeof(double);
  alignas(lathe_plan_options) std::array<unsigned char, sizeof(lathe_plan_options)> bytes;
  bytes.fill(0xa5);
  auto* options = reinterpret_cast<lathe_plan_options*>(bytes.data());
  lathe_plan_options_init_sized(options, kKnown);
  CHECK(options->size == kKnown);
  CHECK(options->device == -1);
  for (size_t i = kKnown; i < bytes.size(); ++i) CHECK(bytes[i] == 0xa5);
}

TEST_CASE("structs of an older and smaller size are accepted, their missing fields having the defaults") {
  HostRun full;
  REQUIRE(full.run() == LATHE_OK);

  // An older caller's struct may end before what this library writes and reads: nothing behind it may matter.
  HostRun older;
  older.arguments.size = offsetof(lathe_run_arguments, grad_input);
  older.arguments.grad_input = older.arguments.grad_weight = reinterpret_cast<void*>(0x10);
  older.arguments.accumulate = 77;
  REQUIRE(older.run() == LATHE_OK);
  CHECK(older.loss == full.loss);

  HostRun olderWorkload;
  olderWorkload.workload.size = offsetof(lathe_workload, sequences);
  olderWorkload.workload.sequences = 3;
  REQUIRE(olderWorkload.run() == LATHE_OK);
  CHECK(olderWorkload.loss == full.loss);
  olderWorkload.workload.size = sizeof(lathe_workload);
  CHECK(olderWorkload.run() == LATHE_INVALID_ARGUMENT);

  // A newer caller's struct is larger.
  HostRun newer;
  newer.arguments.size += 64;
  struct {
    lathe_run_arguments known;
    char more[64];
  } const larger{newer.arguments, {1}};
  REQUIRE(lathe_run_on_host(&newer.workload, &newer.shape, &larger.known) == LATHE_OK);
  CHECK(newer.loss == full.loss);
}

TEST_CASE("structs of size zero are refused") {
  const Surroundings surroundings;
  HostRun run;
  run.workload.size = 0;
  CHECK(run.run() == LATHE_INVALID_ARGUMENT);
  CHECK(std::string(lathe_last_error()) == "workload->size is 0; initialise the struct first");
  run.workload = smallWorkload();
  run.shape.size = 0;
  CHECK(run.run() == LATHE_INVALID_ARGUMENT);
  CHECK_THAT(lathe_last_error(), Contains("shape->size is 0"));
  run.shape = shapeOf(2, 3);
  run.arguments.size = 7;
  CHECK(run.run() == LATHE_INVALID_ARGUMENT);
  CHECK_THAT(lathe_last_error(), Contains("arguments->size is 7"));

  const lathe_runtime_options options{};
  lathe_runtime* runtime = nullptr;
  CHECK(lathe_runtime_create(&options, &runtime) == LATHE_INVALID_ARGUMENT);
  CHECK(runtime == nullptr);
  runtime = surroundings.makeRuntime();
  const lathe_plan_options planOptions{};
  lathe_plan* plan = nullptr;
  run.arguments.size = sizeof(lathe_run_arguments);
  CHECK(lathe_plan_create(runtime, &run.workload, &run.shape, &planOptions, &plan) == LATHE_INVALID_ARGUMENT);
  CHECK(plan == nullptr);
  lathe_runtime_destroy(runtime);
}

TEST_CASE("null arguments are refused by name") {
  const Surroundings surroundings;
  HostRun run;
  char digest[72];
  lathe_plan* plan = nullptr;
  lathe_runtime* runtime = surroundings.makeRuntime();
  const auto refused = [](lathe_status status, const std::string& name) {
    CHECK(status == LATHE_INVALID_ARGUMENT);
    CHECK(std::string(lathe_last_error()) == name + " is null");
  };
  refused(lathe_workload_parse(nullptr, &run.workload), "json");
  refused(lathe_workload_parse("{}", nullptr), "workload");
  refused(lathe_workload_digest(nullptr, digest), "workload");
  refused(lathe_workload_digest(&run.workload, nullptr), "digest");
  refused(lathe_runtime_create(nullptr, nullptr), "runtime");
  refused(lathe_plan_create(nullptr, &run.workload, &run.shape, nullptr, &plan), "runtime");
  refused(lathe_plan_create(runtime, nullptr, &run.shape, nullptr, &plan), "workload");
  refused(lathe_plan_create(runtime, &run.workload, nullptr, nullptr, &plan), "shape");
  refused(lathe_plan_create(runtime, &run.workload, &run.shape, nullptr, nullptr), "plan");
  char* json = nullptr;
  refused(lathe_plan_describe(nullptr, &json), "plan");
  refused(lathe_plan_forward(nullptr, &run.arguments, nullptr), "plan");
  refused(lathe_plan_backward(nullptr, &run.arguments, nullptr), "plan");
  refused(lathe_plan_run(nullptr, &run.arguments, nullptr), "plan");
  refused(lathe_run_on_host(nullptr, &run.shape, &run.arguments), "workload");
  refused(lathe_run_on_host(&run.workload, nullptr, &run.arguments), "shape");
  refused(lathe_run_on_host(&run.workload, &run.shape, nullptr), "arguments");
  CHECK(lathe_plan_workspace_bytes(nullptr) == 0);
  lathe_plan_destroy(nullptr);
  lathe_runtime_destroy(nullptr);
  lathe_string_free(nullptr);
  lathe_runtime_destroy(runtime);
}

TEST_CASE("a number that is no dtype is refused") {
  HostRun run;
  run.workload.dtype = static_cast<lathe_dtype>(3);
  CHECK(run.run() == LATHE_INVALID_ARGUMENT);
  CHECK(std::string(lathe_last_error()) == "workload->dtype is 3; it must be from 0 to 2");
}

TEST_CASE("each thread has its own last error") {
  HostRun run;
  run.arguments.input = nullptr;
  REQUIRE(run.run() == LATHE_INVALID_ARGUMENT);
  const std::string mine = lathe_last_error();
  CHECK_THAT(mine, Contains("input is null"));
  std::string before, after;
  std::thread other([&] {
    before = lathe_last_error();
    lathe_workload_digest(nullptr, nullptr);
    after = lathe_last_error();
  });
  other.join();
  CHECK(before.empty());
  CHECK(after == "digest is null");
  CHECK(lathe_last_error() == mine);
}

TEST_CASE("a run on the host gives the golden values") {
  for (const std::string name : {"plain_f32", "peer_shape_f32_bias_smoothing", "empty_sequence_f32"}) {
    INFO(name);
    const GoldenCase golden(name);
    HostRun run;
    run.shape = shapeOf(golden.extent("input", 0), golden.extent("input", 1));
    run.workload.hidden = golden.extent("input", 2);
    run.workload.vocab = golden.extent("weight", 0);
    run.workload.bias = run.workload.grad_bias = golden.has("bias");
    const std::string input = golden.bytes("input"), weight = golden.bytes("weight"), target = golden.bytes("target");
    const std::string bias = golden.has("bias") ? golden.bytes("bias") : "";
    const size_t pairs = static_cast<size_t>(run.shape.sequences / 2);
    std::vector<float> chosen(pairs), rejected(pairs), chosenRewards(pairs);
    std::vector<float> perToken(static_cast<size_t>(run.shape.sequences * run.shape.tokens));
    std::vector<float> gradInput(input.size() / 4), gradWeight(weight.size() / 4), gradBias(bias.size() / 4);
    float preference = 0, nll = 0, chosenMean = 0, rejectedMean = 0;
    lathe_diagnostics diagnostics{-1, -1, -1, -1, -1};

    lathe_run_arguments& arguments = run.arguments;
    arguments.input = input.data();
    arguments.weight = weight.data();
    arguments.bias = bias.empty() ? nullptr : bias.data();
    std::vector<int64_t> targets(target.size() / 8);
    std::memcpy(targets.data(), target.data(), target.size());
    arguments.target = targets.data();
    arguments.beta = golden.option("beta");
    arguments.gamma = golden.option("gamma");
    arguments.alpha = golden.option("alpha");
    arguments.label_smoothing = golden.option("label_smoothing");
    arguments.ignore_index = static_cast<int64_t>(golden.option("ignore_index"));
    arguments.preference_loss = &preference;
    arguments.nll = &nll;
    arguments.chosen_logits_mean = &chosenMean;
    arguments.rejected_logits_mean = &rejectedMean;
    arguments.chosen_logps = chosen.data();
    arguments.rejected_logps = rejected.data();
    arguments.chosen_rewards = chosenRewards.data();
    arguments.per_token_logps = perToken.data();
    arguments.diagnostics = &diagnostics;
    arguments.grad_input = gradInput.data();
    arguments.grad_weight = gradWeight.data();
    arguments.grad_bias = bias.empty() ? nullptr : gradBias.data();
    REQUIRE(run.run() == LATHE_OK);

    CHECK(run.loss == Approx(golden.numbers("expected.loss")[0]).epsilon(1e-6));
    CHECK(preference == Approx(golden.numbers("expected.preference_loss")[0]).epsilon(1e-6));
    CHECK(nll == Approx(golden.numbers("expected.nll_loss")[0]).epsilon(1e-6));
    CHECK(chosenMean == Approx(golden.numbers("expected.chosen_logits_mean")[0]).epsilon(1e-6).margin(1e-9));
    CHECK(rejectedMean == Approx(golden.numbers("expected.rejected_logits_mean")[0]).epsilon(1e-6).margin(1e-9));
    CHECK(relativeError(chosen, golden.numbers("expected.chosen_logps")) < 1e-6);
    CHECK(relativeError(rejected, golden.numbers("expected.rejected_logps")) < 1e-6);
    CHECK(chosenRewards[0] == Approx(arguments.beta * chosen[0]));
    CHECK(relativeError(perToken, golden.numbers("expected.per_token_logps")) < 1e-6);
    CHECK(relativeError(gradInput, golden.numbers("expected.grad_input")) < 1e-6);
    CHECK(relativeError(gradWeight, golden.numbers("expected.grad_weight")) < 1e-6);
    if (!bias.empty()) CHECK(relativeError(gradBias, golden.numbers("expected.grad_bias")) < 1e-6);
    CHECK(diagnostics.empty_sequences == (name == "empty_sequence_f32" ? 1 : 0));
    CHECK(diagnostics.bad_targets == 0);
    CHECK(diagnostics.first_bad_sequence == -1);
  }
}

TEST_CASE("accumulation adds to the weight gradient, and upstream scales it") {
  HostRun run;
  for (size_t i = 0; i < run.input.size(); ++i) run.input[i] = std::sin(float(i));
  std::vector<float> once(run.weight.size()), scaled(run.weight.size());
  run.arguments.grad_weight = once.data();
  REQUIRE(run.run() == LATHE_OK);
  run.arguments.grad_weight = scaled.data();
  const float upstream = 4;
  run.arguments.upstream = &upstream;
  run.arguments.upstream_scale = 0.5f;
  REQUIRE(run.run() == LATHE_OK);
  run.arguments.accumulate = 1;
  REQUIRE(run.run() == LATHE_OK);
  REQUIRE(once[0] != 0);
  for (size_t i = 0; i < once.size(); ++i) CHECK(scaled[i] == Approx(4 * once[i]).margin(1e-7));
}

TEST_CASE("a plan is made, described and run, and outlives its runtime") {
  const Surroundings surroundings;
  lathe_runtime* runtime = surroundings.makeRuntime();
  const lathe_workload workload = smallWorkload();
  const lathe_shape shape = shapeOf(4, 8);
  lathe_plan* plan = nullptr;
  const lathe_status made = lathe_plan_create(runtime, &workload, &shape, nullptr, &plan);
  INFO(lathe_last_error());
  REQUIRE(made == LATHE_OK);
  lathe_runtime_destroy(runtime);

  char* text = nullptr;
  REQUIRE(lathe_plan_describe(plan, &text) == LATHE_OK);
  const std::string description = text;
  lathe_string_free(text);
  const FlatJson json(description);
  char digest[72];
  REQUIRE(lathe_workload_digest(&workload, digest) == LATHE_OK);
  CHECK(json["workload_digest"] == digest);
  CHECK(json["shape/tokens"] == "8");
  CHECK(json["workspace_bytes"] == std::to_string(lathe_plan_workspace_bytes(plan)));
  CHECK(json["forward/0/kernel"] == "row_map");
  CHECK(json["kernels/0/entry"] == "lathe_row_map");
  CHECK(json["strategy"] == "stored");

  lathe_run_arguments arguments;
  lathe_run_arguments_init(&arguments);
  const auto address = [](int index) { return reinterpret_cast<void*>(uintptr_t(index) << 30); };
  arguments.input = address(1);
  arguments.weight = address(2);
  arguments.target = static_cast<const int64_t*>(address(3));
  arguments.grad_input = address(4);
  arguments.grad_weight = address(5);
  arguments.workspace = address(6);
  arguments.workspace_bytes = lathe_plan_workspace_bytes(plan);
  CHECK(lathe_plan_forward(plan, &arguments, nullptr) == LATHE_OK);
  CHECK(lathe_plan_backward(plan, &arguments, nullptr) == LATHE_OK);
  CHECK(lathe_plan_run(plan, &arguments, nullptr) == LATHE_OK);
  // No such stream.
  CHECK(lathe_plan_run(plan, &arguments, address(7)) == LATHE_DRIVER);
  CHECK_THAT(lathe_last_error(), Contains("CUDA_ERROR_INVALID_HANDLE"));
  --arguments.workspace_bytes;
  CHECK(lathe_plan_run(plan, &arguments, nullptr) == LATHE_WORKSPACE);
  CHECK(lathe_plan_run(plan, nullptr, nullptr) == LATHE_INVALID_ARGUMENT);
  lathe_plan_destroy(plan);
}

TEST_CASE("the options of a plan reach it") {
  const Surroundings surroundings;
  lathe_runtime* runtime = surroundings.makeRuntime();
  const lathe_workload workload = smallWorkload();
  const lathe_shape shape = shapeOf(4, 8);
  lathe_plan_options options;
  lathe_plan_options_init(&options);
  CHECK(options.device == -1);
  options.chunk_pairs = 1;
  lathe_plan* plan = nullptr;
  REQUIRE(lathe_plan_create(runtime, &workload, &shape, &options, &plan) == LATHE_OK);
  char* text = nullptr;
  REQUIRE(lathe_plan_describe(plan, &text) == LATHE_OK);
  const std::string description = text;
  lathe_string_free(text);
  CHECK(FlatJson(description)["strategy"] == "chunked");
  lathe_plan_destroy(plan);

  options.chunk_pairs = 0;
  options.workspace_limit = 100;
  CHECK(lathe_plan_create(runtime, &workload, &shape, &options, &plan) == LATHE_WORKSPACE);
  options.workspace_limit = 0;
  options.device = 5;
  CHECK(lathe_plan_create(runtime, &workload, &shape, &options, &plan) == LATHE_INVALID_ARGUMENT);
  CHECK_THAT(lathe_last_error(), Contains("there is no device 5"));
  // A struct that ends before `device` has its default.
  options.size = offsetof(lathe_plan_options, device);
  REQUIRE(lathe_plan_create(runtime, &workload, &shape, &options, &plan) == LATHE_OK);
  lathe_plan_destroy(plan);
  lathe_runtime_destroy(runtime);
}

TEST_CASE("a plan can be tuned now or in the background, and is a plan whatever comes of it") {
  const Surroundings surroundings;
  // On the fake device nothing that a kernel computes is right, so no candidate wins; the warning is as it should be.
  setenv("LATHE_LOG", "off", 1);
  lathe_runtime* runtime = surroundings.makeRuntime();
  const lathe_workload workload = smallWorkload();
  const lathe_shape shape = shapeOf(4, 8);
  lathe_plan_options options;
  lathe_plan_options_init(&options);
  CHECK(options.tune == LATHE_TUNE_NEVER);
  lathe_plan* plan = nullptr;
  for (const lathe_tune tune : {LATHE_TUNE_NOW, LATHE_TUNE_BACKGROUND}) {
    options.tune = tune;
    options.tune_seconds = 2;
    REQUIRE(lathe_plan_create(runtime, &workload, &shape, &options, &plan) == LATHE_OK);
    CHECK(lathe_plan_workspace_bytes(plan) > 0);
    lathe_plan_destroy(plan);
  }
  options.tune_seconds = -1;
  CHECK(lathe_plan_create(runtime, &workload, &shape, &options, &plan) == LATHE_INVALID_ARGUMENT);
  CHECK_THAT(lathe_last_error(), Contains("tuneSeconds"));
  options.tune = static_cast<lathe_tune>(3);
  CHECK(lathe_plan_create(runtime, &workload, &shape, &options, &plan) == LATHE_INVALID_ARGUMENT);
  CHECK_THAT(lathe_last_error(), Contains("tune is 3"));
  lathe_runtime_destroy(runtime);
  unsetenv("LATHE_LOG");
}

TEST_CASE("a machine without a driver makes no plan and says why") {
  const Surroundings surroundings;
  setenv("LATHE_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
  lathe_runtime* runtime = surroundings.makeRuntime();
  const lathe_workload workload = smallWorkload();
  const lathe_shape shape = shapeOf(4, 8);
  lathe_plan* plan = nullptr;
  CHECK(lathe_plan_create(runtime, &workload, &shape, nullptr, &plan) == LATHE_MISSING_LIBRARY);
  CHECK(plan == nullptr);
  CHECK_THAT(lathe_last_error(), Contains("/nonexistent/libcuda.so.1"));
  lathe_runtime_destroy(runtime);
}
