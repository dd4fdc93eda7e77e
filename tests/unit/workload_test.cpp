#include "generator/Workload.h"
#include "tests/support/Failures.h"

#include "llvm/ADT/StringExtras.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

using namespace lathe;
using lathe::test::require;
using lathe::test::requireError;

namespace {

std::string errorOf(llvm::StringRef json) {
  llvm::Expected<Workload> workload = parseWorkload(json);
  REQUIRE_FALSE(static_cast<bool>(workload));
  return llvm::toString(workload.takeError());
}

Workload randomWorkload(std::mt19937& random) {
  const auto flag = [&] { return random() % 2 == 0; };
  Workload workload;
  workload.hidden = 1 + random() % 20000;
  workload.vocab = 2 + random() % 300000;
  workload.dtype = static_cast<DType>(random() % 3);
  if (workload.dtype == DType::FP32 && flag()) workload.precision = Precision::TF32;
  workload.bias = flag();
  workload.logitScale = flag();
  workload.softcap = flag();
  workload.nll = flag();
  workload.logitMeans = flag();
  workload.gradInput = flag();
  workload.gradWeight = flag();
  workload.gradBias = workload.bias && flag();
  workload.gradWeightDType = workload.gradWeight && flag() ? DType::FP32 : workload.dtype;
  if (flag()) workload.sequences = 2 * (1 + random() % 100);
  if (flag()) workload.tokens = 1 + random() % 10000;
  return workload;
}

} // namespace

TEST_CASE("A workload's canonical JSON and digest are the same everywhere") {
  // The digests were computed with sha256sum over the canonical text.
  const Workload seed = require(parseWorkload(R"({"hidden":4096,"vocab":128256,"dtype":"bf16"})"));
  CHECK(canonicalJson(seed) ==
        R"({"bias":false,"dtype":"bf16","grad_bias":false,"grad_input":true,"grad_weight":true,)"
        R"("grad_weight_dtype":"bf16","hidden":4096,"logit_means":true,"logit_scale":false,"nll":true,)"
        R"("op":"fused_linear_simpo_loss","precision":"ieee","softcap":false,"vocab":128256})");
  CHECK(workloadDigest(seed).text() == "sha256:48639bd8b7afdcd0d816b6e4b23a58e54afba3ce58f6542e9e9683e193f162b9");
}

TEST_CASE("Workloads of every kind have the digests that sha256sum gives their canonical text") {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"hidden":31,"vocab":123,"dtype":"fp32","precision":"tf32","bias":true,"grad_bias":true})",
       "f1d3a19f62cfbfd0120d6e3219b308a06b44acf7ea2f199a8aeedeef66015fd7"},
      {R"({"hidden":768,"vocab":50257,"dtype":"fp16","grad_weight_dtype":"fp32","softcap":true,"logit_scale":true,)"
       R"("nll":false,"logit_means":false,"sequences":8,"tokens":512})",
       "f30347c24cd00f8855bae40a4b560f0c292d595f11a1a87810fdab3c843f7404"},
      {R"({"hidden":4096,"vocab":128256,"dtype":"bf16","grad_input":false,"grad_weight":false})",
       "2b614716620f5981a359e08929238bb060a4e3be53183c44e1924353cf269e7c"},
  };
  for (const auto& [json, digest] : cases) CHECK(workloadDigest(require(parseWorkload(json))).hex() == digest);
}

TEST_CASE("The order of fields does not matter") {
  const char* texts[] = {R"({"hidden":31,"vocab":123,"dtype":"fp32","bias":true,"precision":"tf32"})",
                         R"({"precision":"tf32","bias":true,"dtype":"fp32","vocab":123,"hidden":31})",
                         R"({ "op" : "fused_linear_simpo_loss", "bias":true, "dtype":"fp32", "nll": true,
                              "vocab":123, "hidden":31, "precision":"tf32"})"};
  const Digest digest = workloadDigest(require(parseWorkload(texts[0])));
  for (const char* text : texts) CHECK(workloadDigest(require(parseWorkload(text))) == digest);
}

TEST_CASE("Fields in any order, with any white space, give the same digest") {
  std::mt19937 random(2);
  for (int i = 0; i < 50; ++i) {
    const Workload workload = randomWorkload(random);
    const llvm::json::Value json = toJson(workload);
    std::vector<std::string> fields;
    for (const auto& entry : *json.getAsObject())
      fields.push_back(llvm::formatv("\"{0}\" : {1}", llvm::StringRef(entry.first), entry.second));
    for (int order = 0; order < 10; ++order) {
      std::shuffle(fields.begin(), fields.end(), random);
      const std::string text = "\n{ " + llvm::join(fields, " ,\t\n") + " }\r\n";
      INFO(text);
      CHECK(workloadDigest(require(parseWorkload(text))) == workloadDigest(workload));
    }
  }
}

TEST_CASE("Workloads that differ in one field have different digests") {
  const Workload base = require(parseWorkload(R"({"hidden":64,"vocab":100,"dtype":"fp32","bias":true})"));
  const auto changed = [&](auto change) {
    Workload workload = base;
    change(workload);
    require(validate(workload));
    return workloadDigest(workload);
  };
  const Digest digests[] = {
      workloadDigest(base),
      changed([](Workload& w) { w.hidden = 65; }),
      changed([](Workload& w) { w.vocab = 101; }),
      changed([](Workload& w) { w.dtype = w.gradWeightDType = DType::FP16; }),
      changed([](Workload& w) { w.dtype = w.gradWeightDType = DType::BF16; }),
      changed([](Workload& w) {
        w.dtype = DType::BF16;
        w.gradWeightDType = DType::FP32;
      }),
      changed([](Workload& w) { w.precision = Precision::TF32; }),
      changed([](Workload& w) { w.bias = false; }),
      changed([](Workload& w) { w.logitScale = true; }),
      changed([](Workload& w) { w.softcap = true; }),
      changed([](Workload& w) { w.nll = false; }),
      changed([](Workload& w) { w.logitMeans = false; }),
      changed([](Workload& w) { w.gradInput = false; }),
      changed([](Workload& w) { w.gradWeight = false; }),
      changed([](Workload& w) { w.gradBias = true; }),
      changed([](Workload& w) { w.sequences = 2; }),
      changed([](Workload& w) { w.tokens = 2; }),
  };
  CHECK(std::set<Digest>(std::begin(digests), std::end(digests)).size() == std::size(digests));
}

TEST_CASE("Random workloads survive printing and parsing") {
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    const Workload workload = randomWorkload(random);
    REQUIRE_FALSE(static_cast<bool>(validate(workload)));
    INFO(canonicalJson(workload));
    CHECK(require(parseWorkload(canonicalJson(workload))) == workload);
  }
}

TEST_CASE("Every wrong field is named with its value") {
  const struct {
    const char* json;
    std::vector<const char*> words;
  } cases[] = {
      {R"([])", {"JSON object"}},
      {R"({"vocab":10,"dtype":"bf16"})", {"hidden", "missing"}},
      {R"({"hidden":8,"vocab":10})", {"dtype", "missing"}},
      {R"({"hiden":8})", {"hiden", "did you mean \"hidden\""}},
      {R"({"hidden":4096.5,"vocab":10,"dtype":"bf16"})", {"hidden", "4096.5", "integer"}},
      {R"({"hidden":"8","vocab":10,"dtype":"bf16"})", {"hidden", "\"8\"", "integer"}},
      {R"({"hidden":0,"vocab":10,"dtype":"bf16"})", {"hidden", "0", "from 1"}},
      {R"({"hidden":8,"vocab":1,"dtype":"bf16"})", {"vocab", "1", "from 2"}},
      {R"({"hidden":8,"vocab":99999999999,"dtype":"bf16"})", {"vocab", "99999999999"}},
      {R"({"hidden":8,"vocab":10,"dtype":"bf17"})", {"dtype", "bf17", "bf16, fp16 or fp32"}},
      {R"({"hidden":8,"vocab":10,"dtype":7})", {"dtype", "7", "string"}},
      {R"({"hidden":8,"vocab":10,"dtype":"bf16","bias":1})", {"bias", "1", "true or false"}},
      {R"({"hidden":8,"vocab":10,"dtype":"bf16","precision":"tf32"})", {"tf32", "bf16"}},
      {R"({"hidden":8,"vocab":10,"dtype":"bf16","precision":"x"})", {"precision", "\"x\""}},
      {R"({"hidden":8,"vocab":10,"dtype":"bf16","grad_bias":true})", {"grad_bias", "bias"}},
      {R"({"hidden":8,"vocab":10,"dtype":"bf16","grad_weight_dtype":"fp16"})", {"grad_weight_dtype", "fp16", "fp32"}},
      {R"({"hidden":8,"vocab":10,"dtype":"bf16","grad_weight":false,"grad_weight_dtype":"fp32"})",
       {"grad_weight_dtype", "fp32"}},
      {R"({"hidden":8,"vocab":10,"dtype":"bf16","sequences":3})", {"sequences", "3", "even"}},
      {R"({"hidden":8,"vocab":10,"dtype":"bf16","tokens":0})", {"tokens", "0"}},
      {R"({"hidden":8,"vocab":10,"dtype":"bf16","sequences":65536,"tokens":65536})", {"65536", "4294967296"}},
      {R"({"hidden":8,"vocab":10,"dtype":"bf16","op":"other"})", {"op", "other", "fused_linear_simpo_loss"}},
  };
  for (const auto& each : cases) {
    const std::string message = errorOf(each.json);
    for (const char* word : each.words) {
      INFO(each.json << " -> " << message << " lacks " << word);
      CHECK(llvm::StringRef(message).contains(word));
    }
  }
}

TEST_CASE("Text that is not a workload is an error, however it is broken") {
  CHECK(llvm::StringRef(errorOf("")).contains("cannot be read as JSON"));
  CHECK(llvm::StringRef(errorOf(R"({"hidden":8)")).contains("cannot be read as JSON"));
  CHECK(llvm::StringRef(errorOf("{\"hidden\":\"\xff\"}")).contains("UTF-8"));
  CHECK(llvm::StringRef(errorOf("null")).contains("it is null"));
  CHECK(llvm::StringRef(errorOf(R"({"hidden":1e400,"vocab":10,"dtype":"bf16"})")).contains("hidden"));
  // A value is shown, but not all of a long one.
  const std::string message = errorOf("{\"hidden\":8,\"vocab\":10,\"dtype\":[\"" + std::string(5000, 'x') + "\"]}");
  CHECK(llvm::StringRef(message).contains("dtype is [\"xxx"));
  CHECK(message.size() < 200);
  // Cut short, it is still UTF-8: the cut falls inside a character for one of these.
  for (const char* start : {"", "x"}) {
    std::string umlauts = start;
    for (int i = 0; i < 100; ++i) umlauts += "ö";
    CHECK(llvm::json::isUTF8(errorOf("{\"hidden\":[\"" + umlauts + "\"],\"vocab\":10,\"dtype\":\"bf16\"}")));
  }
}

TEST_CASE("Nesting that would exhaust the stack is refused") {
  for (const char* open : {"[", "{\"hidden\":"}) {
    std::string text;
    for (int i = 0; i < 200000; ++i) text += open;
    CHECK(llvm::StringRef(errorOf(text)).contains("nested more than 64 deep"));
  }
}

TEST_CASE("Shapes and scalars are checked against the workload") {
  const Workload pinned =
      require(parseWorkload(R"({"hidden":8,"vocab":10,"dtype":"bf16","softcap":true,"sequences":4,"tokens":16})"));
  const auto text = [](llvm::Error error) { return error ? llvm::toString(std::move(error)) : std::string(); };
  CHECK(text(validate(pinned, Shape{4, 16})).empty());
  CHECK(llvm::StringRef(text(validate(pinned, Shape{2, 16}))).contains("pinned to 4"));
  CHECK(llvm::StringRef(text(validate(pinned, Shape{4, 17}))).contains("pinned to 16"));
  CHECK(llvm::StringRef(text(validate(pinned, Shape{3, 16}))).contains("sequences is 3"));
  for (const Shape shape : {Shape{0, 16}, Shape{-2, 16}, Shape{4, 0}, Shape{4, -1}, Shape{INT64_MAX - 1, 16},
                            Shape{4, INT64_MAX}, Shape{65536, 65536}, Shape{2147483646, 2147483647}})
    CHECK(requireError(validate(Workload{.hidden = 8, .vocab = 10}, shape)).code == ErrorCode::InvalidArgument);
  require(validate(Workload{.hidden = 8, .vocab = 10}, Shape{2, 1073741311}));
  CHECK(text(validate(pinned, Scalars{.softcap = 30})).empty());
  CHECK(llvm::StringRef(text(validate(pinned, Scalars{}))).contains("softcap is 0"));
  CHECK(llvm::StringRef(text(validate(pinned, Scalars{.beta = NAN, .softcap = 30}))).contains("beta is nan"));
  CHECK(llvm::StringRef(text(validate(pinned, Scalars{.labelSmoothing = 0.6, .softcap = 30}))).contains("0.6"));
  const auto wrong = [&](const Scalars& scalars, const char* words) {
    const ErrorSummary error = requireError(validate(pinned, scalars));
    CHECK(error.code == ErrorCode::InvalidArgument);
    CHECK_THAT(error.message, Catch::Contains(words));
  };
  wrong({.gamma = -HUGE_VAL, .softcap = 30}, "gamma is -");
  wrong({.labelSmoothing = -0.1, .softcap = 30}, "label_smoothing is -0.1");
  wrong({.alpha = HUGE_VAL, .softcap = 30}, "alpha is ");
  wrong({.softcap = -1}, "softcap is -1");
  // What the workload does not use may be anything.
  const Workload plain = require(parseWorkload(R"({"hidden":8,"vocab":10,"dtype":"bf16","nll":false})"));
  require(validate(plain, Scalars{.alpha = NAN, .softcap = -1, .logitScale = HUGE_VAL}));
}

TEST_CASE("Names of types read back, and a wrong one is shown with the right ones") {
  for (const DType type : {DType::BF16, DType::FP16, DType::FP32}) CHECK(require(parseDType(toString(type))) == type);
  for (const Precision precision : {Precision::IEEE, Precision::TF32})
    CHECK(require(parsePrecision(toString(precision))) == precision);
  CHECK_THAT(requireError(parseDType("BF16")).message,
             Catch::Contains("\"BF16\"") && Catch::Contains("bf16, fp16 or fp32"));
  CHECK_THAT(requireError(parsePrecision("")).message, Catch::Contains("\"\"") && Catch::Contains("ieee or tf32"));
}
