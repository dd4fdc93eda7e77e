//===- tests/support/FakeWorker.cpp - A worker that misbehaves on order ---===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Speaks the protocol of WorkerProtocol.h without a GPU. What it does to a candidate depends on `group_m` of its
/// logits: 4 hangs, 16 dies, 32 answers with nonsense, 64 reports a lost device, all else takes that many milliseconds.
/// Started with `dead` it dies at once, with `deaf` it never answers.
///
//===----------------------------------------------------------------------===//
#include "generator/CanonicalJson.h"
#include "tuning/WorkerProtocol.h"

#include <cstdlib>
#include <iostream>
#include <unistd.h>

using namespace lathe;

namespace {

[[noreturn]] void hang() {
  while (true) ::pause();
}

void say(const llvm::json::Value& json) {
  std::cout << llvm::formatv("{0}", json).str() << std::endl;
}

void answerVisit(const llvm::json::Value& json) {
  llvm::Expected<VisitRequest> request = parseVisitRequest(json);
  if (!request) std::abort();
  const int order = request->choices.configs.logits.groupM;
  if (order == 4) hang();
  if (order == 16) std::abort();
  if (order == 32) {
    std::cout << "{\"times_ms\": [1, " << std::endl;
    return;
  }
  if (order == 64) {
    say(llvm::json::Object{{"error", "the device is lost"}, {"code", 9}});
    ::_exit(3);
  }
  Visit visit;
  visit.milliseconds.assign(static_cast<size_t>(request->repetitions), order);
  visit.registers = 168;
  visit.strain = request->check ? 0.25 : -1;
  say(toJson(visit));
}

} // namespace

int main(int argc, char** argv) {
  const llvm::StringRef mode = argc > 1 ? argv[1] : "";
  if (mode == "dead") return 7;
  for (std::string line; std::getline(std::cin, line);) {
    if (mode == "deaf") hang();
    llvm::Expected<llvm::json::Value> json = parseJson(line);
    if (!json) return 1;
    if (json->getAsObject()->getString("op") == "visit")
      answerVisit(*json);
    else
      say(toJson(WorkerReady{{"fake", 132, "13.0", "13.0"}, "580.1"}));
  }
  return 0;
}
