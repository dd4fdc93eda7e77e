//===- cli/PlanFlags.cpp - How a plan is made, from the command line -------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/PlanFlags.h"

#include "cli/Text.h"
#include "tuning/FamilyConfigs.h"

using namespace lathe;
using namespace lathe::cli;

void PlanFlags::addTo(CLI::App& verb) {
  const auto keep = [&](CLI::Option* option) { options_.push_back(option->group("Plan")); };
  keep(verb.add_option("--workspace-limit", workspaceLimit_, "Most workspace, such as 500M or 2G")->type_name("SIZE"));
  keep(verb.add_option("--strategy", strategy_, "Keep the exponentials of all rows, or of one chunk of pairs at a time")
           ->check(CLI::IsMember({"stored", "chunked"})));
  keep(verb.add_option("--chunk-pairs", chunkPairs_, "Pairs of a chunk; implies --strategy chunked"));
  keep(verb.add_option("--family", family_, "Kernels of one family alone")
           ->check(CLI::IsMember({"simt", "mma_sync", "wgmma"})));
}

std::string PlanFlags::firstGiven() const {
  for (const CLI::Option* option : options_)
    if (option->count() > 0) return option->get_name();
  return "";
}

llvm::Expected<PlanRequest> PlanFlags::resolve(const Workload& workload, const Target& target, int64_t rows) const {
  PlanRequest request;
  if (workspaceLimit_) {
    llvm::Expected<int64_t> bytes = parseBytes("--workspace-limit", *workspaceLimit_);
    if (!bytes) return bytes.takeError();
    request.workspaceLimit = *bytes;
  }
  request.chunkPairs = chunkPairs_;
  if (chunkPairs_) request.strategy = Strategy::Chunked;
  if (strategy_) {
    llvm::Expected<Strategy> strategy = parseStrategy(*strategy_);
    if (!strategy) return strategy.takeError();
    if (chunkPairs_ && *strategy == Strategy::Stored)
      return makeError(ErrorCode::InvalidArgument,
                       "--chunk-pairs is {0} with --strategy stored, which has no chunks; leave one of them out",
                       *chunkPairs_);
    request.strategy = *strategy;
  }
  if (family_) {
    llvm::Expected<Family> family = parseFamily(*family_);
    if (!family) return family.takeError();
    llvm::Expected<GemmConfigs> configs = chooseConfigsOf(*family, workload, target, rows);
    if (!configs) return configs.takeError();
    request.configs = *configs;
  }
  return request;
}
