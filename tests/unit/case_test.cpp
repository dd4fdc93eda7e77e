//===- tests/unit/case_test.cpp - Problems in files -------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/io/Case.h"
#include "runtime/io/Safetensors.h"
#include "tests/support/Failures.h"
#include "tests/support/ScratchFolder.h"

#include <algorithm>
#include <cmath>

using namespace lathe;
using Catch::Contains;
using lathe::test::require;
using lathe::test::requireError;
using lathe::test::ScratchFolder;

namespace {

Workload smallWorkload() {
  Workload workload;
  workload.hidden = 6;
  workload.vocab = 11;
  workload.dtype = DType::BF16;
  return workload;
}

/// A small valid case as its file, to be spoilt by a test before it is written.
struct CaseFile {
  std::string input = std::string(2 * 3 * 4 * 4, '\0');
  std::string weight = std::string(5 * 4 * 4, '\0');
  std::string target = std::string(2 * 3 * 8, '\0');
  SafetensorsWriter writer;

  CaseFile() {
    writer.add("input", TensorType::F32, {2, 3, 4}, input);
    writer.add("weight", TensorType::F32, {5, 4}, weight);
    writer.add("target", TensorType::I64, {2, 3}, target);
  }

  llvm::Expected<Case> load(const ScratchFolder& folder) const {
    require(writer.write(folder.file("case.safetensors")));
    return loadCase(folder.file("case.safetensors"));
  }

  std::string rejection() const {
    const ScratchFolder folder;
    const ErrorSummary summary = requireError(load(folder));
    CHECK(summary.code == ErrorCode::Corrupt);
    CHECK_THAT(summary.message, Contains("case.safetensors"));
    return summary.message;
  }
};

struct Moments {
  double mean = 0;
  double deviation = 0;
};

Moments momentsOf(DType dtype, llvm::StringRef bytes) {
  const TensorType type = dtype == DType::FP32 ? TensorType::F32 : TensorType::BF16;
  const std::vector<double> values = require(toDoubles({type, {}, bytes}));
  Moments moments;
  for (const double value : values) moments.mean += value / double(values.size());
  for (const double value : values) moments.deviation += std::pow(value - moments.mean, 2) / double(values.size());
  moments.deviation = std::sqrt(moments.deviation);
  return moments;
}

} // namespace

TEST_CASE("a file without options has the defaults") {
  const ScratchFolder folder;
  const Case loaded = require(CaseFile().load(folder));
  Workload workload;
  workload.hidden = 4;
  workload.vocab = 5;
  workload.dtype = DType::FP32;
  workload.gradWeightDType = DType::FP32;
  CHECK(loaded.workload == workload);
  CHECK(loaded.shape == Shape{2, 3});
  CHECK(loaded.scalars == Scalars{});
  CHECK(loaded.target == std::vector<int64_t>(6, 0));
  CHECK_FALSE(loaded.expected);
}

TEST_CASE("tensors that a case does not use may have any name and type") {
  const ScratchFolder folder;
  CaseFile file;
  file.writer.add("attention_mask", TensorType::Bool, {2, 3}, "\1\1\1\1\1\1");
  file.writer.add("notes", TensorType::U8, {5}, "hello");
  CHECK(require(file.load(folder)).target == std::vector<int64_t>(6, 0));
}

TEST_CASE("options are read from the metadata") {
  const ScratchFolder folder;
  CaseFile file;
  const std::string bias(5 * 4, '\0');
  file.writer.add("bias", TensorType::F32, {5}, bias);
  for (const auto& [key, value] : std::vector<std::pair<const char*, const char*>>{{"beta", "2.5"},
                                                                                   {"gamma", "-1"},
                                                                                   {"alpha", "0.25"},
                                                                                   {"label_smoothing", "0.125"},
                                                                                   {"softcap", "30.0"},
                                                                                   {"logit_scale", "0.5"},
                                                                                   {"ignore_index", "42"},
                                                                                   {"compute_nll", "false"},
                                                                                   {"precision", "tf32"}})
    file.writer.setMetadata(key, value);
  const Case loaded = require(file.load(folder));
  CHECK(loaded.scalars == Scalars{2.5, -1, 0.125, 0.25, 30, 0.5, 42});
  CHECK(loaded.workload.bias);
  CHECK(loaded.workload.gradBias);
  CHECK(loaded.workload.softcap);
  CHECK(loaded.workload.logitScale);
  CHECK_FALSE(loaded.workload.nll);
  CHECK(loaded.workload.precision == Precision::TF32);
}

TEST_CASE("a saved case is loaded again without a change") {
  const ScratchFolder folder;
  Workload workload = smallWorkload();
  workload.bias = true;
  workload.gradInput = false;
  workload.gradBias = true;
  workload.gradWeightDType = DType::FP32;
  workload.logitMeans = false;
  workload.softcap = GENERATE(false, true);
  workload.logitScale = GENERATE(false, true);
  Scalars scalars;
  scalars.beta = 0.1 + 0.2;
  scalars.softcap = workload.softcap ? 20 : 0;
  Case saved = makeRandomCase(workload, {4, 5}, scalars, 3, 2, 0.3);
  saved.expected.emplace();
  saved.expected->loss = 1.0 / 3;
  saved.expected->chosenLogps = {-1, -2};
  saved.expected->gradBias.assign(11, 0.1);
  require(saveCase(folder.file("c"), saved));

  const Case loaded = require(loadCase(folder.file("c")));
  CHECK(loaded.workload == saved.workload);
  CHECK(loaded.shape == saved.shape);
  CHECK(loaded.scalars == saved.scalars);
  CHECK(loaded.input == saved.input);
  CHECK(loaded.weight == saved.weight);
  CHECK(loaded.bias == saved.bias);
  CHECK(loaded.target == saved.target);
  REQUIRE(loaded.expected);
  CHECK(loaded.expected->loss == saved.expected->loss);
  CHECK(loaded.expected->chosenLogps == saved.expected->chosenLogps);
  CHECK(loaded.expected->gradBias == saved.expected->gradBias);
  CHECK(loaded.expected->gradInput.empty());
}

TEST_CASE("a result is saved with its diagnostics") {
  const ScratchFolder folder;
  const Case value = makeRandomCase(smallWorkload(), {2, 3}, {}, 1, 1, 0);
  LossResult result;
  result.loss = 2.5;
  result.chosenRewards = {-0.25};
  result.gradWeight.assign(66, 1);
  result.diagnostics = {1, 2, 0, 2, 5};
  require(saveResult(folder.file("r"), value, result));
  const SafetensorsFile file = require(SafetensorsFile::open(folder.file("r")));
  CHECK(require(toDoubles(*file.find("loss"))) == std::vector<double>{2.5});
  CHECK(require(toDoubles(*file.find("chosen_rewards"))) == std::vector<double>{-0.25});
  CHECK(file.find("grad_weight")->shape == std::vector<int64_t>{11, 6});
  CHECK(file.find("grad_input") == nullptr);
  CHECK(file.metadata().at("bad_targets") == "2");
  CHECK(file.metadata().at("first_bad_token") == "2");
  CHECK(file.metadata().at("valid_tokens") == "5");
}

TEST_CASE("files that are not cases are corrupt and say why") {
  const auto with = [](const char* name, TensorType type, std::vector<int64_t> shape) {
    CaseFile file;
    int64_t bytes = sizeOf(type);
    for (const int64_t extent : shape) bytes *= extent;
    const std::string zeros(bytes, '\0');
    file.writer.add(name, type, std::move(shape), zeros);
    return file.rejection();
  };
  CHECK_THAT(with("input", TensorType::F64, {2, 3, 4}), Contains("\"input\"") && Contains("F64"));
  CHECK_THAT(with("input", TensorType::F32, {6, 4}), Contains("[6, 4]") && Contains("3 dimensions"));
  CHECK_THAT(with("input", TensorType::F32, {2, 3, 0}), Contains("\"weight\"") && Contains("[5, 0]"));
  CHECK_THAT(with("input", TensorType::F32, {3, 3, 4}), Contains("target") || Contains("sequences"));
  CHECK_THAT(with("weight", TensorType::F32, {5, 3}), Contains("\"weight\"") && Contains("[5, 3]"));
  CHECK_THAT(with("weight", TensorType::F16, {5, 4}), Contains("\"weight\"") && Contains("F16"));
  CHECK_THAT(with("weight", TensorType::F32, {0, 4}), Contains("vocab is 0"));
  CHECK_THAT(with("bias", TensorType::F32, {4}), Contains("\"bias\"") && Contains("[4]"));
  CHECK_THAT(with("target", TensorType::I32, {2, 3}), Contains("\"target\"") && Contains("I32"));
  CHECK_THAT(with("target", TensorType::I64, {2, 4}), Contains("\"target\"") && Contains("[2, 4]"));
  CHECK_THAT(with("expected.loss", TensorType::F64, {}), Contains("expected.preference_loss"));
  CHECK_THAT(with("expected.grad_bias", TensorType::F64, {5}), Contains("\"expected.loss\" is missing"));
  CHECK_THAT(with("expected.loss", TensorType::F64, {1}), Contains("expected.loss") && Contains("[1]"));
  CHECK_THAT(with("expected.loss", TensorType::I64, {}), Contains("expected.loss") && Contains("I64"));

  const auto metadata = [](const char* key, const char* value) {
    CaseFile file;
    file.writer.setMetadata(key, value);
    return file.rejection();
  };
  CHECK_THAT(metadata("beta", "big"), Contains("beta") && Contains("\"big\""));
  CHECK_THAT(metadata("beta", "nan"), Contains("beta"));
  CHECK_THAT(metadata("ignore_index", "1.5"), Contains("ignore_index") && Contains("\"1.5\""));
  CHECK_THAT(metadata("compute_nll", "True"), Contains("compute_nll") && Contains("\"True\""));
  CHECK_THAT(metadata("softcap", "-1"), Contains("softcap is"));
  CHECK_THAT(metadata("label_smoothing", "0.75"), Contains("label_smoothing is"));
  CHECK_THAT(metadata("precision", "fast"), Contains("precision") && Contains("\"fast\""));
  CHECK_THAT(metadata("grad_bias", "true"), Contains("grad_bias"));

  const ScratchFolder folder;
  require(SafetensorsWriter().write(folder.file("c")));
  CHECK_THAT(requireError(loadCase(folder.file("c"))).message, Contains("\"input\" is missing"));
  CHECK(requireError(loadCase(folder.file("missing"))).code == ErrorCode::Io);
}

TEST_CASE("random cases depend on the seed alone") {
  const auto make = [](uint64_t seed) { return makeRandomCase(smallWorkload(), {4, 50}, {}, seed, 1, 0.5); };
  CHECK(make(7).input == make(7).input);
  CHECK(make(7).weight == make(7).weight);
  CHECK(make(7).target == make(7).target);
  CHECK(make(7).input != make(8).input);
  CHECK(make(7).target != make(8).target);
}

TEST_CASE("random numbers have the deviation asked for, across the parts they are made in") {
  Workload workload;
  workload.hidden = 64;
  workload.vocab = 4001;
  workload.dtype = GENERATE(DType::BF16, DType::FP32);
  workload.bias = true;
  const Case value = makeRandomCase(workload, {2, 1000}, {}, 5, 4, 0);
  const Moments input = momentsOf(workload.dtype, value.input);
  const Moments weight = momentsOf(workload.dtype, value.weight);
  CHECK(std::abs(input.mean) < 0.02);
  CHECK(input.deviation == Approx(1).epsilon(0.02));
  CHECK(weight.deviation == Approx(4.0 / 8).epsilon(0.02));
  CHECK(momentsOf(workload.dtype, value.bias).deviation == Approx(1).epsilon(0.1));
  CHECK(value.weight.substr(0, 1000) != value.weight.substr((size_t(1) << 16) * sizeOf(workload.dtype), 1000));
}

TEST_CASE("random targets are masked as prompts and padding are") {
  const Shape shape{64, 100};
  Scalars scalars;
  scalars.ignoreIndex = GENERATE(-100, 3);
  const double fraction = GENERATE(0.0, 0.5, 0.99, 1.0);
  CAPTURE(scalars.ignoreIndex, fraction);
  const Case value = makeRandomCase(smallWorkload(), shape, scalars, 9, 1, fraction);
  int64_t masked = 0;
  for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    const auto begin = value.target.begin() + sequence * shape.tokens;
    const auto end = begin + shape.tokens;
    const auto valid = [&](int64_t target) { return target != scalars.ignoreIndex; };
    const auto first = std::find_if(begin, end, valid);
    const auto afterLast = std::find_if_not(first, end, valid);
    CHECK(std::none_of(afterLast, end, valid));
    CHECK((fraction < 1) == (first != end));
    CHECK(std::all_of(first, afterLast, [](int64_t target) { return target >= 0 && target < 11; }));
    if (fraction == 0.5) CHECK((first != begin && afterLast != end));
    masked += std::count(begin, end, scalars.ignoreIndex);
  }
  const double wanted = fraction * double(shape.rows());
  CHECK(std::abs(double(masked) - wanted) <= 0.15 * wanted);
}
