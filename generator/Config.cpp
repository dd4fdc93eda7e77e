//===- generator/Config.cpp - One point of the search space -----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "generator/Config.h"

#include "generator/Workload.h"

#include <algorithm>

using namespace lathe;

namespace {

/// In the order of Family.
constexpr llvm::StringRef kFamilyNames[] = {"simt", "mma_sync", "wgmma"};

} // namespace

llvm::StringRef lathe::toString(Family family) {
  return kFamilyNames[static_cast<size_t>(family)];
}

llvm::Expected<Family> lathe::parseFamily(llvm::StringRef name) {
  for (size_t i = 0; i < std::size(kFamilyNames); ++i)
    if (name == kFamilyNames[i]) return static_cast<Family>(i);
  return makeError(ErrorCode::InvalidArgument, "\"{0}\" is not a kernel family; it must be simt, mma_sync or wgmma",
                   name);
}

llvm::StringRef lathe::toString(Gemm gemm) {
  switch (gemm) {
  case Gemm::Logits:
    return "logits";
  case Gemm::GradInput:
    return "grad_input";
  case Gemm::GradWeight:
    return "grad_weight";
  }
  llvm_unreachable("unknown product");
}

std::string lathe::toString(const Config& config) {
  return llvm::formatv("{0} {1}x{2}x{3}, {4} stages, {5}x{6} warps, cluster {7}, group {8}", toString(config.family),
                       config.blockM, config.blockN, config.blockK, config.stages, config.warpsM, config.warpsN,
                       config.clusterM, config.groupM);
}

namespace {

/// The integer fields of a config by their name in JSON.
struct Field {
  const char* name;
  int Config::* member;
  int largest;
};
constexpr Field kFields[] = {
    {"block_k", &Config::blockK, 1024},   {"block_m", &Config::blockM, 1024},
    {"block_n", &Config::blockN, 1024},   {"blocks_per_multiprocessor", &Config::blocksPerMultiprocessor, 32},
    {"cluster_m", &Config::clusterM, 16}, {"group_m", &Config::groupM, 4096},
    {"stages", &Config::stages, 16},      {"warps_m", &Config::warpsM, 32},
    {"warps_n", &Config::warpsN, 32},
};

/// What an error message says of a field's value.
std::string shown(const llvm::json::Object& object, llvm::StringRef name) {
  const llvm::json::Value* value = object.get(name);
  return value ? llvm::formatv("{0}", *value).str() : "missing";
}

} // namespace

llvm::json::Value lathe::toJson(const Config& config) {
  llvm::json::Object object{{"family", toString(config.family)}};
  for (const Field& field : kFields) object[field.name] = config.*field.member;
  return object;
}

llvm::Expected<Config> lathe::parseConfig(const llvm::json::Value& json) {
  const llvm::json::Object* object = json.getAsObject();
  if (!object) return makeError(ErrorCode::InvalidWorkload, "a config must be a JSON object");
  Config config;
  const std::optional<llvm::StringRef> name = object->getString("family");
  if (!name)
    return makeError(ErrorCode::InvalidWorkload, "config: family is {0}; it must be simt, mma_sync or wgmma",
                     shown(*object, "family"));
  llvm::Expected<Family> family = parseFamily(*name);
  if (!family) return makeError(ErrorCode::InvalidWorkload, "config: {0}", takeSummary(family.takeError()).message);
  config.family = *family;
  for (const Field& field : kFields) {
    const std::optional<int64_t> value = object->getInteger(field.name);
    if (!value || *value < 1 || *value > field.largest)
      return makeError(ErrorCode::InvalidWorkload, "config: {0} is {1}; it must be an integer from 1 to {2}",
                       field.name, shown(*object, field.name), field.largest);
    config.*field.member = static_cast<int>(*value);
  }
  for (const auto& entry : *object) {
    const llvm::StringRef key = entry.first;
    if (key != "family" && llvm::none_of(kFields, [&](const Field& field) { return key == field.name; }))
      return makeError(ErrorCode::InvalidWorkload, "config: unknown field \"{0}\"", key);
  }
  return config;
}

namespace {

/// Bytes of the element type that a product's operands have in shared memory.
int64_t stagedBytes(const Config& config, const Workload& workload) {
  return config.family == Family::Simt ? 4 : sizeOf(workload.dtype);
}

int64_t ringBytes(const Config& config, const Workload& workload) {
  // simt pads every row of a stage by four floats.
  const int64_t padding = config.family == Family::Simt ? 8 : 0;
  return int64_t(config.stages) * (config.blockM + config.blockN + padding) * config.blockK *
         stagedBytes(config, workload);
}

/// Beside its ring a wgmma kernel has, for each consumer warpgroup, room for 64 x 64 fp32, and two barriers a stage.
int64_t wgmmaBytes(const Config& config, const Workload& workload) {
  return ringBytes(config, workload) + config.blockM / 64 * (64 * 64 * 4) + config.stages * 16;
}

int64_t epilogueBytes(const Config& config, Gemm gemm, const Workload& workload) {
  const int64_t tile = int64_t(config.blockM) * config.blockN;
  if (gemm != Gemm::Logits) return tile * 4;
  const int64_t columnWarps = config.family == Family::Simt ? 1 : config.warpsN;
  return tile * sizeOf(workload.dtype) + (columnWarps > 1 ? 3 * columnWarps * config.blockM * 4 : 0);
}

llvm::Error illegal(const Config& config, Gemm gemm, const llvm::Twine& reason) {
  return makeError(ErrorCode::Unsupported, "config {0} cannot run {1}: {2}", toString(config), toString(gemm),
                   reason.str());
}

llvm::Error checkSimt(const Config& config, Gemm gemm) {
  if (config.threads() != 256) return illegal(config, gemm, "simt needs 256 threads");
  if (config.stages != 2) return illegal(config, gemm, "simt has exactly 2 stages");
  if (config.blockM % 64 || config.blockN % 64) return illegal(config, gemm, "simt tiles are multiples of 64");
  if (config.blockM * config.blockN / config.threads() > 64)
    return illegal(config, gemm, "simt holds at most 64 sums a thread");
  if (config.blockK % 8) return illegal(config, gemm, "simt needs a depth that is a multiple of 8");
  return llvm::Error::success();
}

llvm::Error checkMmaSync(const Config& config, Gemm gemm, const Workload& workload, const Target& target) {
  if (target.sm < 80) return illegal(config, gemm, "mma_sync needs sm_80 or later, the target is " + target.arch());
  if (workload.dtype == DType::FP32 && workload.precision == Precision::IEEE)
    return illegal(config, gemm, "mma_sync multiplies fp32 only with precision tf32");
  const int panel = static_cast<int>(128 / sizeOf(workload.dtype));
  if (config.blockK != panel) return illegal(config, gemm, "mma_sync needs a depth of 128 bytes");
  if (config.stages < 2) return illegal(config, gemm, "mma_sync needs at least 2 stages");
  if (config.blockM % 64 || config.blockN % 64) return illegal(config, gemm, "mma_sync tiles are multiples of 64");
  if (config.blockM % (16 * config.warpsM) || config.blockN % (16 * config.warpsN))
    return illegal(config, gemm, "a warp's part of the tile must be a multiple of 16 x 16");
  if (config.threads() != 128 && config.threads() != 256)
    return illegal(config, gemm, "mma_sync runs on 128 or 256 threads");
  // Sums, two sets of fragments, and what addresses (and a bias, with its pointer and its own checks) need.
  const int warpM = config.blockM / config.warpsM;
  const int warpN = config.blockN / config.warpsN;
  const int others = gemm == Gemm::Logits && workload.bias ? 64 : 40;
  const int registers = warpM * warpN / 32 + 2 * (warpM / 4 + warpN / 4) + others;
  const int available =
      std::min(255, target.registersPerMultiprocessor / (config.threads() * config.blocksPerMultiprocessor) / 8 * 8);
  if (registers > available)
    return illegal(config, gemm,
                   llvm::formatv("a thread needs about {0} registers of {1}", registers, available).str());
  return llvm::Error::success();
}

llvm::Error checkWgmma(const Config& config, Gemm gemm, const Workload& workload, const Target& target) {
  if (target.sm != 90 || !target.archSpecific)
    return illegal(config, gemm, "wgmma needs sm_90a, the target is " + target.arch());
  if (workload.dtype == DType::FP32) return illegal(config, gemm, "wgmma multiplies bf16 and fp16");
  if (workload.hidden % 8)
    return illegal(config, gemm,
                   llvm::formatv("TMA needs rows of a multiple of 16 bytes; H is {0}", workload.hidden).str());
  if (config.blockK != 64) return illegal(config, gemm, "wgmma needs a depth of 64");
  if (config.blockM != 128) return illegal(config, gemm, "wgmma tiles have 128 rows");
  if (config.blockN != 128 && config.blockN != 256) return illegal(config, gemm, "wgmma tiles have 128 or 256 columns");
  if (config.warpsM != config.blockM / 16 || config.warpsN != 1)
    return illegal(config, gemm, "a wgmma warp holds 16 rows of the tile");
  if (config.stages < 2) return illegal(config, gemm, "wgmma needs at least 2 stages");
  if (config.clusterM != 1 && config.clusterM != 2 && config.clusterM != 4)
    return illegal(config, gemm, "wgmma clusters have 1, 2 or 4 blocks");
  if (config.blocksPerMultiprocessor != 1) return illegal(config, gemm, "a wgmma block takes a whole multiprocessor");
  return llvm::Error::success();
}

llvm::Error checkFamily(const Config& config, Gemm gemm, const Workload& workload, const Target& target) {
  switch (config.family) {
  case Family::Simt:
    return checkSimt(config, gemm);
  case Family::MmaSync:
    return checkMmaSync(config, gemm, workload, target);
  case Family::Wgmma:
    return checkWgmma(config, gemm, workload, target);
  }
  llvm_unreachable("unknown family");
}

} // namespace

int lathe::sharedBytes(const Config& config, Gemm gemm, const Workload& workload) {
  if (config.family == Family::Wgmma) return static_cast<int>(wgmmaBytes(config, workload));
  return static_cast<int>(std::max(ringBytes(config, workload), epilogueBytes(config, gemm, workload)));
}

llvm::Error lathe::checkConfig(const Config& config, Gemm gemm, const Workload& workload, const Target& target) {
  for (const Field& field : kFields)
    if (config.*field.member < 1 || config.*field.member > field.largest)
      return illegal(
          config, gemm,
          llvm::formatv("{0} is {1}; it must be from 1 to {2}", field.name, config.*field.member, field.largest).str());
  const int64_t panel = 128 / sizeOf(workload.dtype);
  if (config.blockN % panel) return illegal(config, gemm, "the column tile must be a multiple of 128 bytes");
  if (llvm::Error error = checkFamily(config, gemm, workload, target)) return error;
  if (config.family != Family::Wgmma && config.clusterM != 1)
    return illegal(config, gemm, "only wgmma kernels run in clusters");
  const int shared = sharedBytes(config, gemm, workload);
  if (shared > target.sharedPerBlock)
    return illegal(config, gemm,
                   llvm::formatv("a block needs {0} bytes of shared memory, {1} has {2}", shared, target.arch(),
                                 target.sharedPerBlock)
                       .str());
  const int threads = config.threads() * config.blocksPerMultiprocessor;
  if (threads > target.maxThreadsPerMultiprocessor)
    return illegal(config, gemm,
                   llvm::formatv("{0} blocks have {1} threads, a multiprocessor holds {2}",
                                 config.blocksPerMultiprocessor, threads, target.maxThreadsPerMultiprocessor)
                       .str());
  // The driver keeps 1 KiB of every block for itself.
  if ((shared + 1024) * config.blocksPerMultiprocessor > target.sharedPerMultiprocessor)
    return illegal(config, gemm,
                   llvm::formatv("{0} blocks need {1} bytes of shared memory, a multiprocessor has {2}",
                                 config.blocksPerMultiprocessor, (shared + 1024) * config.blocksPerMultiprocessor,
                                 target.sharedPerMultiprocessor)
                       .str());
  return llvm::Error::success();
}

namespace {

/// Tiles and warp arrangements that are worth compiling.
struct TileShape {
  int blockM, blockN, warpsM, warpsN, blocksPerMultiprocessor;
};
constexpr TileShape kMmaTiles[] = {
    {128, 256, 2, 4, 1}, {256, 128, 4, 2, 1}, {128, 128, 2, 2, 2}, {128, 128, 2, 4, 1},
    {64, 256, 1, 4, 2},  {64, 128, 2, 2, 2},  {128, 64, 2, 2, 2},  {64, 64, 2, 2, 3},
};
constexpr TileShape kSimtTiles[] = {{128, 128, 2, 4, 1}, {64, 64, 2, 4, 1}};

} // namespace

std::vector<Config> lathe::configGrid(const Workload& workload) {
  std::vector<Config> grid;
  for (const int blockN : {256, 128})
    for (int stages = 3; stages <= 6; ++stages)
      for (const int clusterM : {1, 2})
        for (const int groupM : {4, 8, 16, 32})
          grid.push_back({Family::Wgmma, 128, blockN, 64, stages, 8, 1, clusterM, 1, groupM});
  for (const TileShape& tile : kMmaTiles)
    for (int stages = 2; stages <= 5; ++stages)
      for (const int groupM : {4, 8, 16, 32})
        grid.push_back({Family::MmaSync, tile.blockM, tile.blockN, static_cast<int>(128 / sizeOf(workload.dtype)),
                        stages, tile.warpsM, tile.warpsN, 1, tile.blocksPerMultiprocessor, groupM});
  for (const TileShape& tile : kSimtTiles)
    for (const int groupM : {8, 32})
      grid.push_back({Family::Simt, tile.blockM, tile.blockN, 16, 2, tile.warpsM, tile.warpsN, 1,
                      tile.blocksPerMultiprocessor, groupM});
  return grid;
}

std::vector<Config> lathe::searchSpace(Gemm gemm, const Workload& workload, const Target& target) {
  std::vector<Config> space;
  for (const Config& config : configGrid(workload)) {
    if (llvm::Error error = checkConfig(config, gemm, workload, target))
      llvm::consumeError(std::move(error));
    else
      space.push_back(config);
  }
  return space;
}
