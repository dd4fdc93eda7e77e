//===- cli/Models.cpp - Shapes of well-known models ------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/Models.h"

using namespace lathe;
using namespace lathe::cli;

namespace {

constexpr Model kModels[] = {
    {"llama-3-8b", 4096, 128256, std::nullopt}, {"llama-3.2-1b", 2048, 128256, std::nullopt},
    {"gemma-2-9b", 3584, 256000, 30.0},         {"mistral-7b", 4096, 32000, std::nullopt}, // v0.1
    {"qwen2.5-7b", 3584, 152064, std::nullopt},
};

} // namespace

llvm::ArrayRef<Model> lathe::cli::models() {
  return kModels;
}

llvm::Expected<Model> lathe::cli::findModel(llvm::StringRef name) {
  std::string known;
  for (const Model& model : kModels) {
    if (model.name == name) return model;
    known += (known.empty() ? "" : ", ") + model.name.str();
  }
  return makeError(ErrorCode::InvalidArgument, "unknown model \"{0}\"; the known ones are {1}", name, known);
}
