#include "generator/Config.h"
#include "generator/CostModel.h"
#include "generator/Workload.h"
#include "tests/support/Failures.h"

#include <catch2/catch.hpp>

#include <limits>

using namespace lathe;
using lathe::test::require;
using lathe::test::requireError;

namespace {

constexpr Gemm kGemms[] = {Gemm::Logits, Gemm::GradInput, Gemm::GradWeight};

std::vector<Workload> workloads() {
  std::vector<Workload> result;
  for (const auto& [dtype, precision] :
       {std::pair(DType::BF16, Precision::IEEE), std::pair(DType::FP16, Precision::IEEE),
        std::pair(DType::FP32, Precision::IEEE), std::pair(DType::FP32, Precision::TF32)})
    for (const int64_t hidden : {1, 77, 4096}) {
      Workload workload;
      workload.hidden = hidden;
      workload.vocab = 128256;
      workload.dtype = workload.gradWeightDType = dtype;
      workload.precision = precision;
      result.push_back(workload);
    }
  return result;
}

} // namespace

TEST_CASE("Every architecture has legal, distinct configs for every workload, and the cost model picks among them") {
  for (const Target& target : knownTargets())
    for (const Workload& workload : workloads())
      for (const Gemm gemm : kGemms) {
        INFO(target.arch() << " " << canonicalJson(workload) << " " << toString(gemm).str());
        const std::vector<Config> space = searchSpace(gemm, workload, target);
        REQUIRE_FALSE(space.empty());
        for (size_t i = 0; i < space.size(); ++i) {
          CHECK_FALSE(static_cast<bool>(checkConfig(space[i], gemm, workload, target)));
          CHECK(sharedBytes(space[i], gemm, workload) <= target.sharedPerBlock);
          CHECK(llvm::count(space, space[i]) == 1);
        }
        for (const int64_t rows : {1, 100, 4096, 100000}) {
          const GemmConfigs chosen = require(chooseConfigs(workload, target, rows));
          CHECK(llvm::is_contained(space, chosen.of(gemm)));
          CHECK(predictSeconds(chosen.of(gemm), gemm, workload, target, rows) > 0);
        }
      }
}

TEST_CASE("The families serve what they are made for") {
  const auto families = [](const char* arch, const Workload& workload) {
    std::vector<Family> result;
    for (const Config& config : searchSpace(Gemm::Logits, workload, require(parseTarget(arch))))
      if (!llvm::is_contained(result, config.family)) result.push_back(config.family);
    return result;
  };
  Workload bf16;
  bf16.hidden = 4096;
  bf16.vocab = 1000;
  CHECK(families("sm_75", bf16) == std::vector{Family::Simt});
  CHECK(families("sm_80", bf16) == std::vector{Family::MmaSync, Family::Simt});
  CHECK(families("sm_90", bf16) == std::vector{Family::MmaSync, Family::Simt});
  CHECK(families("sm_90a", bf16) == std::vector{Family::Wgmma, Family::MmaSync, Family::Simt});
  CHECK(families("sm_120a", bf16) == std::vector{Family::MmaSync, Family::Simt});
  // TMA cannot address rows of an odd number of elements.
  bf16.hidden = 77;
  CHECK(families("sm_90a", bf16) == std::vector{Family::MmaSync, Family::Simt});
  Workload fp32 = bf16;
  fp32.dtype = fp32.gradWeightDType = DType::FP32;
  CHECK(families("sm_90a", fp32) == std::vector{Family::Simt});
}

TEST_CASE("Large products on an H100 are given to wgmma in clusters, on an A100 to mma_sync") {
  Workload workload;
  workload.hidden = 4096;
  workload.vocab = 128256;
  const GemmConfigs hopper = require(chooseConfigs(workload, require(parseTarget("sm_90a")), 4096));
  const GemmConfigs ampere = require(chooseConfigs(workload, require(parseTarget("sm_80")), 4096));
  for (const Gemm gemm : kGemms) {
    CHECK(hopper.of(gemm).family == Family::Wgmma);
    CHECK(hopper.of(gemm).clusterM == 2);
    CHECK(ampere.of(gemm).family == Family::MmaSync);
  }
}

TEST_CASE("A config survives JSON, and every wrong field is named") {
  Workload workload;
  workload.hidden = 64;
  workload.vocab = 100;
  for (const Config& config : searchSpace(Gemm::Logits, workload, require(parseTarget("sm_90a"))))
    CHECK(require(parseConfig(toJson(config))) == config);
  const llvm::json::Value good = toJson(Config{});
  for (const auto& field : *good.getAsObject()) {
    llvm::json::Object wrong = *good.getAsObject();
    wrong[field.first] = llvm::json::Value(-1);
    llvm::Expected<Config> config = parseConfig(std::move(wrong));
    REQUIRE_FALSE(static_cast<bool>(config));
    const std::string message = llvm::toString(config.takeError());
    INFO(message);
    CHECK((llvm::StringRef(message).contains(llvm::StringRef(field.first)) ||
           llvm::StringRef(message).contains("kernel family")));
  }
  llvm::json::Object extra = *good.getAsObject();
  extra["block_q"] = 1;
  llvm::Expected<Config> config = parseConfig(std::move(extra));
  REQUIRE_FALSE(static_cast<bool>(config));
  CHECK(llvm::StringRef(llvm::toString(config.takeError())).contains("block_q"));
}

TEST_CASE("An illegal config is refused with the resource that it lacks") {
  Workload workload;
  workload.hidden = 4096;
  workload.vocab = 1000;
  const Target target = require(parseTarget("sm_90a"));
  const auto refusal = [&](const Config& config) {
    llvm::Error error = checkConfig(config, Gemm::Logits, workload, target);
    REQUIRE(static_cast<bool>(error));
    return llvm::toString(std::move(error));
  };
  Config wgmma{Family::Wgmma, 128, 256, 64, 4, 8, 1, 2, 1, 8};
  CHECK_FALSE(static_cast<bool>(checkConfig(wgmma, Gemm::Logits, workload, target)));
  wgmma.stages = 6;
  CHECK(llvm::StringRef(refusal(wgmma)).contains("bytes of shared memory"));
  Config mma{Family::MmaSync, 128, 256, 64, 3, 2, 2, 1, 1, 8};
  CHECK(llvm::StringRef(refusal(mma)).contains("registers"));
  mma.clusterM = 2;
  mma.warpsN = 4;
  CHECK(llvm::StringRef(refusal(mma)).contains("clusters"));
  CHECK(llvm::StringRef(refusal({Family::Simt, 128, 128, 16, 3, 2, 4, 1, 1, 8})).contains("2 stages"));
}

TEST_CASE("A wrong field of a config is shown with what was found") {
  const struct {
    const char* field;
    llvm::json::Value value;
    const char* shown;
  } cases[] = {
      {"block_m", "64", "block_m is \"64\""},
      {"block_m", 64.5, "block_m is 64.5"},
      {"stages", 0, "stages is 0"},
      {"stages", 17, "stages is 17"},
      {"group_m", nullptr, "group_m is null"},
      {"warps_n", int64_t(1) << 40, "warps_n is 1099511627776"},
      {"family", "tensor", "\"tensor\" is not"},
      {"family", 3, "family is 3"},
  };
  for (const auto& each : cases) {
    llvm::json::Object object = *toJson(Config{}).getAsObject();
    object[each.field] = each.value;
    const ErrorSummary error = requireError(parseConfig(std::move(object)));
    CHECK(error.code == ErrorCode::InvalidWorkload);
    CHECK_THAT(error.message, Catch::Contains(each.shown));
  }
  llvm::json::Object object = *toJson(Config{}).getAsObject();
  object.erase("block_k");
  CHECK_THAT(requireError(parseConfig(std::move(object))).message, Catch::Contains("block_k is missing"));
  object = *toJson(Config{}).getAsObject();
  object.erase("family");
  CHECK_THAT(requireError(parseConfig(std::move(object))).message, Catch::Contains("family is missing"));
  CHECK_THAT(requireError(parseConfig(llvm::json::Array{})).message, Catch::Contains("object"));
}

TEST_CASE("Families and products have names that read back") {
  for (const Family family : {Family::Simt, Family::MmaSync, Family::Wgmma})
    CHECK(require(parseFamily(toString(family))) == family);
  for (const char* wrong : {"", "SIMT", "mma"})
    CHECK_THAT(requireError(parseFamily(wrong)).message,
               Catch::Contains("\"" + std::string(wrong) + "\"") && Catch::Contains("simt, mma_sync or wgmma"));
  const Config config{Family::Wgmma, 128, 256, 64, 4, 8, 1, 2, 1, 16};
  CHECK(toString(config) == "wgmma 128x256x64, 4 stages, 8x1 warps, cluster 2, group 16");
  CHECK(config.threads() == 8 * 32 + 128);
}

TEST_CASE("A config without a sensible number in every field is refused") {
  Workload workload;
  workload.hidden = 4096;
  workload.vocab = 1000;
  const Target target = require(parseTarget("sm_90a"));
  const Config legal[] = {{Family::Simt, 64, 64, 16, 2, 2, 4, 1, 1, 8},
                          {Family::MmaSync, 128, 128, 64, 3, 2, 4, 1, 1, 8},
                          {Family::Wgmma, 128, 256, 64, 4, 8, 1, 2, 1, 8}};
  int Config::* const members[] = {&Config::blockM, &Config::blockN,   &Config::blockK,
                                   &Config::stages, &Config::warpsM,   &Config::warpsN,
                                   &Config::groupM, &Config::clusterM, &Config::blocksPerMultiprocessor};
  for (const Config& config : legal) {
    require(checkConfig(config, Gemm::Logits, workload, target));
    for (const auto member : members)
      // 2^28 warps of 16 rows have no rows in 32 bits.
      for (const int value : {0, -64, 1 << 28, 1 << 30, std::numeric_limits<int>::max()}) {
        Config wrong = config;
        wrong.*member = value;
        CHECK(requireError(checkConfig(wrong, Gemm::Logits, workload, target)).code == ErrorCode::Unsupported);
      }
  }
}

TEST_CASE("Blocks that a multiprocessor has no threads for are refused") {
  Workload workload;
  workload.hidden = 64;
  workload.vocab = 1000;
  Config simt{Family::Simt, 64, 64, 16, 2, 2, 4, 1, 4, 8};
  require(checkConfig(simt, Gemm::Logits, workload, require(parseTarget("sm_80"))));
  simt.blocksPerMultiprocessor = 8;
  require(checkConfig(simt, Gemm::Logits, workload, require(parseTarget("sm_80"))));
  // 9 blocks of 256 threads are 2304 threads.
  simt.blocksPerMultiprocessor = 9;
  CHECK_THAT(requireError(checkConfig(simt, Gemm::Logits, workload, require(parseTarget("sm_80")))).message,
             Catch::Contains("2304 threads") && Catch::Contains("2048"));
}
