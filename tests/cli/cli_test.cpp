//===- tests/cli/cli_test.cpp - The lathe command, from outside -------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tests/support/LatheCommand.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>

using namespace lathe::test;
using Catch::Matchers::Contains;

namespace {

std::string golden(const std::string& name) {
  return std::string(LATHE_TEST_DATA) + "/" + name + ".safetensors";
}

Words goldenFiles() {
  Words files;
  std::error_code error;
  for (llvm::sys::fs::directory_iterator entry(LATHE_TEST_DATA, error), end; entry != end && !error;
       entry.increment(error))
    if (llvm::sys::path::extension(entry->path()) == ".safetensors") files.push_back(entry->path());
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> linesOf(const std::string& text) {
  llvm::SmallVector<llvm::StringRef> lines;
  llvm::StringRef(text).split(lines, '\n');
  return {lines.begin(), lines.end()};
}

void checkNoTrailingSpaces(const std::string& text) {
  for (const std::string& line : linesOf(text)) CHECK((line.empty() || line.back() != ' '));
}

const Words kTiny = {"--hidden", "64", "--vocab", "300", "--sequences", "2", "--tokens", "8"};

} // namespace

//===-- The command as a whole --------------------------------------------===//

TEST_CASE("the version and the help name the program and its exit codes") {
  const Lathe lathe;
  const CommandResult version = lathe({"--version"});
  CHECK(version.exitCode == 0);
  CHECK(version.out == "lathe " LATHE_VERSION "\n");
  const CommandResult help = lathe({"--help"});
  CHECK(help.exitCode == 0);
  CHECK_THAT(help.out, Contains("Exit codes:") && Contains("Examples:"));
  CHECK(help.err.empty());
}

TEST_CASE("every verb has help with a description") {
  const Lathe lathe;
  for (const char* verb : {"run", "verify", "plan", "emit", "inspect", "explain", "compile", "tune", "bench", "cache",
                           "doctor", "completion"}) {
    CAPTURE(verb);
    const CommandResult help = lathe({verb, "--help"});
    CHECK(help.exitCode == 0);
    CHECK_THAT(help.out, Contains(std::string("Usage: lathe ") + verb));
    CHECK_THAT(help.out, !Contains("\n\n\n") && !Contains("Excludes") && !Contains("Exit codes:"));
    CHECK_THAT(lathe({"--help"}).out, Contains(verb));
  }
}

TEST_CASE("a command line without a known verb is a usage error with a hint") {
  const Lathe lathe;
  checkUsage(lathe({}), "no verb was given; see `lathe --help`");
  checkUsage(lathe({"verfy"}), "there is no verb or option \"verfy\"; did you mean \"verify\"?");
  checkUsage(lathe({"frobnicate"}), "there is no verb or option \"frobnicate\"; see `lathe --help`");
  checkUsage(lathe({"cache"}), "see `lathe cache --help`");
  checkUsage(lathe({"plan", "--nope"}), "--nope");
  checkUsage(lathe({"plan", "--hidden", "wide"}), "--hidden");
}

TEST_CASE("a full disk under standard output is an error") {
  const Lathe lathe;
  const CommandResult result =
      runCommand("/bin/sh", {"-c", "'" LATHE_CLI "' doctor > /dev/full"}, {"LATHE_CACHE_DIR=" + lathe.cacheDir()});
  CHECK(result.exitCode == 3);
  CHECK_THAT(result.err, Contains("lathe: error: cannot write to standard output"));
}

//===-- run ---------------------------------------------------------------===//

TEST_CASE("run computes a case on the CPU where there is no GPU, and says why") {
  const Lathe lathe;
  const CommandResult result = lathe({"run", golden("plain_f32")});
  CHECK(result.exitCode == 0);
  CHECK_THAT(result.out, Contains("device    cpu") && Contains("/nonexistent/libcuda.so.1") && Contains("7.06946"));
  CHECK_THAT(result.out, !Contains("\x1b"));
  checkNoTrailingSpaces(result.out);
}

TEST_CASE("run gives all results as JSON and as a file") {
  const Lathe lathe;
  const std::string out = lathe.file("result.safetensors");
  const CommandResult result = lathe({"run", golden("plain_f32"), "--device", "cpu", "--json", "--out", out});
  CHECK(result.exitCode == 0);
  CHECK(llvm::sys::fs::exists(out));
  const llvm::json::Value json = parsed(result.out);
  CHECK(textIn(json, "device") == "cpu");
  CHECK(numberIn(json, "loss") == Approx(7.06946).epsilon(1e-5));
  CHECK(numberIn(json, "loss") == Approx(numberIn(json, "preference_loss") + numberIn(json, "nll")));
  CHECK(arrayIn(json, "chosen_logps").size() == 2);
  CHECK(json.getAsObject()->getObject("gradients")->getObject("weight"));
}

TEST_CASE("run draws the same random case from the same seed") {
  const Lathe lathe;
  const Words arguments = Words{"run", "--random", "--json", "--dtype", "fp32"} + kTiny;
  const CommandResult first = lathe(arguments);
  CHECK(first.exitCode == 0);
  CHECK(lathe(arguments).out == first.out);
  CHECK(numberIn(parsed(lathe(arguments + Words{"--seed", "1"}).out), "loss") != numberIn(parsed(first.out), "loss"));
}

TEST_CASE("the scalars and fields of the command line reach the computation") {
  const Lathe lathe;
  const Words arguments = Words{"run", "--random", "--json", "--dtype", "fp32"} + kTiny;
  const double plain = numberIn(parsed(lathe(arguments).out), "loss");
  const std::vector<Words> changes = {
      {"--beta", "2"},          {"--gamma", "1.5"},           {"--alpha", "0.5"}, {"--label-smoothing", "0.25"},
      {"--softcap-value", "1"}, {"--logit-scale-value", "2"}, {"--no-nll"},       {"--bias"}};
  for (const Words& change : changes) {
    CAPTURE(change);
    CHECK(numberIn(parsed(lathe(arguments + change).out), "loss") != Approx(plain).epsilon(1e-9));
  }
  const llvm::json::Value none = parsed(lathe(arguments + Words{"--gradients", "none"}).out);
  CHECK(none.getAsObject()->getObject("gradients")->empty());
  const llvm::json::Value two = parsed(lathe(arguments + Words{"--bias", "--gradients", "input,bias"}).out);
  CHECK(two.getAsObject()->getObject("gradients")->size() == 2);
}

TEST_CASE("run refuses what it cannot do") {
  const Lathe lathe;
  checkUsage(lathe({"run"}), "give a case file, or --random");
  checkUsage(lathe({"run", golden("plain_f32"), "--random"}), "choose one");
  checkUsage(lathe({"run", golden("plain_f32"), "--hidden", "4"}), "--hidden is for --random");
  checkUsage(lathe({"run", golden("plain_f32"), "--device", "tpu"}), "--device is \"tpu\"");
  checkUsage(lathe(Words{"run", "--random", "--sequences", "3"} + Words{"--hidden", "8", "--vocab", "9"}), "even");
  checkUsage(lathe({"run", "--random", "--hidden", "2000000000", "--vocab", "2000000000"}), "host memory");
  checkUsage(lathe(Words{"run", "--random", "--gradients", "inputs"} + kTiny), "\"inputs\" is not a gradient");
  checkUsage(lathe(Words{"run", "--random", "--gradients", "none,input"} + kTiny), "give none alone");
  checkUsage(lathe(Words{"run", "--random", "--precision", "tf32"} + kTiny), "tf32");
  checkUsage(lathe(Words{"run", "--random", "--masked-fraction", "2"} + kTiny), "--masked-fraction");

  const CommandResult missing = lathe({"run", "/nonexistent.safetensors"});
  CHECK(missing.exitCode == 3);
  CHECK_THAT(missing.err, Contains("lathe: error: /nonexistent.safetensors"));
  for (const Words& words : {Words{"run", "/dev/zero"}, Words{"plan", "--arch", "sm_80", "--workload", "/dev/zero"}}) {
    const CommandResult endless = lathe(words);
    CHECK(endless.exitCode == 3);
    CHECK_THAT(endless.err, Contains("/dev/zero") && Contains("device"));
  }
  const CommandResult foreign = lathe({"run", LATHE_CLI});
  CHECK(foreign.exitCode == 3);
  const CommandResult gpu = lathe({"run", golden("plain_f32"), "--device", "cuda:0"});
  CHECK(gpu.exitCode == 3);
  CHECK_THAT(gpu.err, Contains("/nonexistent/libcuda.so.1"));
  const CommandResult repeat = lathe({"run", golden("plain_f32"), "--repeat", "3"});
  CHECK(repeat.exitCode == 3);
  CHECK_THAT(repeat.err, Contains("--repeat measures a GPU"));
}

//===-- verify ------------------------------------------------------------===//

TEST_CASE("verify passes every golden case on the CPU") {
  const Lathe lathe;
  const Words files = goldenFiles();
  REQUIRE(files.size() >= 12);
  const CommandResult result = lathe(Words{"verify", "--device", "cpu", "--json"} + files);
  CHECK(result.exitCode == 0);
  const llvm::json::Value json = parsed(result.out);
  // Each against the reference and against the expected values of the file.
  CHECK(arrayIn(json, "checks").size() == 2 * files.size());
  for (const llvm::json::Value& check : arrayIn(json, "checks")) {
    CHECK(check.getAsObject()->getBoolean("ok") == true);
    CHECK(arrayIn(check, "values").size() >= 9);
  }
}

TEST_CASE("the table of verify lines up") {
  const Lathe lathe;
  const CommandResult result = lathe({"verify", golden("plain_f32"), golden("peer_shape_f32_bias_smoothing"), "--all"});
  CHECK(result.exitCode == 0);
  checkNoTrailingSpaces(result.out);
  const std::vector<std::string> lines = linesOf(result.out);
  const auto title = std::find_if(lines.begin(), lines.end(),
                                  [](const std::string& line) { return llvm::StringRef(line).starts_with("case "); });
  REQUIRE(title != lines.end());
  const size_t end = title->find("tolerance") + std::string("tolerance").size();
  const size_t against = title->find("against");
  size_t rows = 0;
  for (auto line = title + 1; line != lines.end() && !line->empty(); ++line, ++rows) {
    CAPTURE(*line);
    CHECK(line->substr(end) == "  ok");
    const std::string word = line->substr(against, 9);
    CHECK((word == "reference" || word == "expected "));
    CHECK((*line)[against - 1] == ' ');
  }
  CHECK(rows > 20);
}

TEST_CASE("verify fails a case whose expected values are wrong") {
  const Lathe lathe;
  // The same bytes with another beta: the expected values are no longer those of the case.
  const auto original = llvm::MemoryBuffer::getFile(golden("plain_f32"));
  REQUIRE(original);
  std::string bytes = (*original)->getBuffer().str();
  const size_t at = bytes.find("\"beta\":\"");
  REQUIRE(at != std::string::npos);
  bytes[at + 8] = bytes[at + 8] == '9' ? '8' : '9';
  const std::string path = lathe.file("wrong.safetensors");
  std::error_code error;
  llvm::raw_fd_ostream(path, error) << bytes;
  REQUIRE_FALSE(error);

  const CommandResult result = lathe({"verify", path, golden("smallest_f32")});
  CHECK(result.exitCode == 1);
  CHECK_THAT(result.out, Contains("FAILED") && Contains("ok"));
}

TEST_CASE("verify reports the cases that it can and fails for the others") {
  const Lathe lathe;
  const CommandResult result = lathe({"verify", "/nonexistent", golden("smallest_f32")});
  CHECK(result.exitCode == 3);
  CHECK_THAT(result.out, Contains("smallest_f32"));
  CHECK_THAT(result.err, Contains("lathe: error: /nonexistent"));
  checkUsage(lathe({"verify"}), "required");
  checkUsage(lathe({"verify", golden("smallest_f32"), "--family", "simt"}), "--family steers a plan on a GPU");
  checkUsage(lathe({"verify", golden("smallest_f32"), "--family", "simd"}), "simd");
}

//===-- plan and emit -----------------------------------------------------===//

TEST_CASE("plan shows steps, work and workspace without a GPU") {
  const Lathe lathe;
  const Words arguments = {"plan", "--model", "llama-3-8b", "--arch", "sm_90a"};
  const CommandResult table = lathe(arguments);
  CHECK(table.exitCode == 0);
  CHECK_THAT(table.out, Contains("12.9 TFLOP") && Contains("grad_weight") && Contains("workspace"));
  checkNoTrailingSpaces(table.out);

  const llvm::json::Value json = parsed(lathe(arguments + Words{"--json"}).out);
  CHECK(numberIn(*json.getAsObject()->get("workload"), "vocab") == 128256);
  CHECK(arrayIn(json, "forward_backward").size() >= 7);
  const double stored = numberIn(json, "workspace_bytes");
  const llvm::json::Value chunked = parsed(lathe(arguments + Words{"--json", "--chunk-pairs", "1"}).out);
  CHECK(textIn(chunked, "strategy") == "chunked");
  CHECK(numberIn(chunked, "workspace_bytes") < stored);
  const llvm::json::Value simt = parsed(lathe(arguments + Words{"--json", "--family", "simt"}).out);
  CHECK(textIn(*simt.getAsObject()->getObject("configs")->get("logits"), "family") == "simt");
}

TEST_CASE("plan takes a workload from a model, a file, a case or flags") {
  const Lathe lathe;
  const Words plan = {"plan", "--arch", "sm_80", "--json"};
  const llvm::json::Value gemma = parsed(lathe(plan + Words{"--model", "gemma-2-9b"}).out);
  CHECK(gemma.getAsObject()->getObject("workload")->getBoolean("softcap") == true);
  const llvm::json::Value ofCase = parsed(lathe(plan + Words{"--case", golden("plain_f32")}).out);
  CHECK(numberIn(*ofCase.getAsObject()->get("shape"), "tokens") == 16);

  const std::string path = lathe.file("workload.json");
  std::error_code error;
  llvm::raw_fd_ostream(path, error) << R"({"hidden":64,"vocab":300,"dtype":"bf16","sequences":6})";
  REQUIRE_FALSE(error);
  const llvm::json::Value ofFile = parsed(lathe(plan + Words{"--workload", path, "--tokens", "9"}).out);
  CHECK(numberIn(*ofFile.getAsObject()->get("shape"), "sequences") == 6);
  CHECK(numberIn(*ofFile.getAsObject()->get("shape"), "tokens") == 9);
  checkUsage(lathe(plan + Words{"--workload", path, "--sequences", "4"}), "pinned to 6");
  checkUsage(lathe(plan + Words{"--workload", path, "--model", "mistral-7b"}), "excludes");
  checkUsage(lathe(plan), "there is no workload");
}

TEST_CASE("plan says why there is none") {
  const Lathe lathe;
  checkUsage(lathe({"plan", "--model", "mistral-7b"}), "name one with --arch");
  checkUsage(lathe({"plan", "--model", "mistral-7b", "--arch", "sm_81"}), "unknown architecture \"sm_81\"");
  checkUsage(lathe({"plan", "--model", "gpt-5", "--arch", "sm_80"}), "gpt-5");
  checkUsage(lathe({"plan", "--model", "mistral-7b", "--arch", "sm_80", "--workspace-limit", "2X"}), "\"2X\"");
  const CommandResult small = lathe({"plan", "--model", "mistral-7b", "--arch", "sm_80", "--workspace-limit", "1K"});
  CHECK(small.exitCode == 3);
  CHECK_THAT(small.err, Contains("the limit is 1024"));
  const CommandResult family = lathe({"plan", "--model", "mistral-7b", "--arch", "sm_80", "--family", "wgmma"});
  CHECK(family.exitCode == 3);
  CHECK_THAT(family.err, Contains("family wgmma has no legal config for logits on sm_80"));
}

TEST_CASE("emit prints one source, or writes all of them") {
  const Lathe lathe;
  const Words emit = Words{"emit", "--arch", "sm_80"} + kTiny;
  const CommandResult unit = lathe(emit + Words{"--step", "logits"});
  CHECK(unit.exitCode == 0);
  CHECK_THAT(unit.out,
             Contains("struct Config") && Contains("#include \"steps/logits.cuh\"") && Contains("__global__"));
  const CommandResult flat = lathe(emit + Words{"--step", "logits", "--flat"});
  CHECK_THAT(flat.out, Contains("struct Config") && !Contains("#include"));

  const std::string folder = lathe.file("sources/new");
  const CommandResult all = lathe(emit + Words{"--flat", "--output", folder, "--json"});
  CHECK(all.exitCode == 0);
  const llvm::json::Value json = parsed(all.out);
  REQUIRE(json.getAsArray());
  CHECK(json.getAsArray()->size() >= 7);
  for (const llvm::json::Value& source : *json.getAsArray()) {
    const auto written = llvm::MemoryBuffer::getFile(textIn(source, "file"));
    REQUIRE(written);
    CHECK_THAT((*written)->getBuffer().str(), Contains(textIn(source, "entry")));
  }
  checkUsage(lathe(emit + Words{"--step", "grad_bias"}), "the plan has no step \"grad_bias\"");
  const CommandResult blocked = lathe(emit + Words{"--output", "/dev/null/sources"});
  CHECK(blocked.exitCode == 3);
  CHECK_THAT(blocked.err, Contains("/dev/null/sources"));
}

//===-- compile and cache -------------------------------------------------===//

TEST_CASE("compile fills a cache, which can be listed, shown, checked, merged, pruned and cleared") {
  const Lathe lathe;
  const Words compile = Words{"compile", "--arch", "sm_80,sm_90a"} + kTiny;
  const CommandResult first = lathe(compile + Words{"--json"});
  CAPTURE(first.err);
  REQUIRE(first.exitCode == 0);
  const llvm::json::Value compiled = parsed(first.out);
  const size_t count = arrayIn(compiled, "kernels").size();
  CHECK(count >= 14);
  CHECK(textIn(compiled, "cache") == lathe.cacheDir());
  for (const llvm::json::Value& kernel : arrayIn(compiled, "kernels")) {
    CHECK(textIn(kernel, "origin") == "compiled");
    CHECK(numberIn(kernel, "registers") > 0);
    CHECK(numberIn(kernel, "code_bytes") > 0);
    CHECK(numberIn(kernel, "compile_milliseconds") > 0);
  }
  CHECK_THAT(first.err, Contains("[1/" + std::to_string(count) + "] sm_") && !Contains("\r"));

  SECTION("a second compilation finds everything") {
    const CommandResult again = lathe(compile);
    CHECK(again.exitCode == 0);
    CHECK_THAT(again.out, !Contains("compiled") && Contains("cache"));
    checkNoTrailingSpaces(again.out);
  }
  SECTION("ls and show") {
    const CommandResult table = lathe({"cache", "ls"});
    CHECK_THAT(table.out, Contains("logits") && Contains("sm_80") && Contains("sm_90a") &&
                              Contains(std::to_string(count) + " kernels"));
    const llvm::json::Value list = parsed(lathe({"cache", "ls", "--json"}).out);
    REQUIRE(arrayIn(list, "entries").size() == count);
    const std::string digest = textIn(arrayIn(list, "entries").front(), "kernel_digest");
    const CommandResult shown = lathe({"cache", "show", digest.substr(0, 20)});
    CHECK(shown.exitCode == 0);
    CHECK_THAT(shown.out, Contains(digest) && Contains("registers") && Contains("--std=c++17"));
    CHECK_THAT(lathe({"cache", "show", digest, "--source"}).out, Contains("__global__"));
    const llvm::json::Value record = parsed(lathe({"cache", "show", digest, "--json"}).out);
    CHECK(textIn(record, "kernel_digest") == digest);
    checkUsage(lathe({"cache", "show", "zz"}), "no kernel in");
    checkUsage(lathe({"cache", "show", "sha256:"}), "give more digits");
  }
  SECTION("verify finds a damaged kernel and repair sets it aside") {
    CHECK(lathe({"cache", "verify"}).exitCode == 0);
    const llvm::json::Value list = parsed(lathe({"cache", "ls", "--json"}).out);
    const std::string digest = textIn(arrayIn(list, "entries").front(), "kernel_digest");
    const llvm::json::Value record = parsed(lathe({"cache", "show", digest, "--json"}).out);
    const std::string cubin = textIn(record, "folder") + "/" + digest.substr(7) + ".cubin";
    std::error_code error;
    llvm::raw_fd_ostream(cubin, error) << "cut short";
    REQUIRE_FALSE(error);

    const CommandResult damaged = lathe({"cache", "verify"});
    CHECK(damaged.exitCode == 1);
    CHECK_THAT(damaged.out, Contains(digest.substr(7, 12)) && Contains("1 damaged; --repair sets them aside"));
    CHECK(arrayIn(parsed(lathe({"cache", "verify", "--json"}).out), "damaged").size() == 1);
    // So long a path that its files can be read, but have no room for the name of one that is set aside.
    std::string longDir = lathe.cacheDir();
    const size_t below = std::string("/v1//").size() + 64 + textIn(record, "arch").size();
    while (longDir.size() + below < 4020) longDir += longDir.size() % 2 ? "/." : "/";
    const CommandResult stuck = lathe({"cache", "verify", "--repair", "--cache-dir", longDir});
    CHECK(stuck.exitCode == 1);
    CHECK_THAT(stuck.out, Contains("1 damaged, 0 of them set aside") && Contains("cannot be set aside"));
    CHECK(lathe({"cache", "verify", "--repair"}).exitCode == 0);
    CHECK(lathe({"cache", "verify"}).exitCode == 0);
    CHECK(arrayIn(parsed(lathe({"cache", "ls", "--json"}).out), "entries").size() == count - 1);
  }
  SECTION("merge, prune and clear") {
    const std::string other = lathe.file("other");
    const llvm::json::Value merged =
        parsed(lathe({"cache", "merge", lathe.cacheDir(), "--cache-dir", other, "--json"}).out);
    CHECK(numberIn(arrayIn(merged, "merged").front(), "added") == double(count));
    const llvm::json::Value again =
        parsed(lathe({"cache", "merge", lathe.cacheDir(), "--cache-dir", other, "--json"}).out);
    CHECK(numberIn(arrayIn(again, "merged").front(), "kept") == double(count));

    CHECK_THAT(lathe({"cache", "prune", "--max-age", "7d"}).out, Contains("removed 0 kernels"));
    const llvm::json::Value pruned = parsed(lathe({"cache", "prune", "--max-size", "400K", "--json"}).out);
    CHECK(numberIn(pruned, "removed") > 0);
    CHECK(numberIn(pruned, "removed") < double(count));

    checkUsage(lathe({"cache", "clear"}), "add --yes");
    CHECK(lathe({"cache", "clear", "--yes"}).exitCode == 0);
    CHECK_THAT(lathe({"cache", "ls"}).out, Catch::StartsWith("0 kernels"));
    CHECK(arrayIn(parsed(lathe({"cache", "ls", "--json", "--cache-dir", other}).out), "entries").size() == count);
  }
}

TEST_CASE("compile and cache refuse what they cannot do") {
  Lathe lathe;
  checkUsage(lathe(Words{"compile"} + kTiny), "--arch");
  checkUsage(lathe(Words{"compile", "--arch", "sm_80,sm_99"} + kTiny), "sm_99");
  checkUsage(lathe({"cache", "prune"}), "--max-size");
  checkUsage(lathe({"cache", "prune", "--max-age", "3x"}), "\"3x\"");
  checkUsage(lathe({"cache", "prune", "--max-size", "-1"}), "--max-size");
  const CommandResult merge = lathe({"cache", "merge", "/nonexistent"});
  CHECK(merge.exitCode == 3);
  CHECK_THAT(merge.err, Contains("/nonexistent is not a folder"));
  lathe.set("LATHE_NVRTC=/nonexistent/libnvrtc.so");
  const CommandResult blind = lathe(Words{"compile", "--arch", "sm_80"} + kTiny);
  CHECK(blind.exitCode == 3);
  CHECK_THAT(blind.err, Contains("/nonexistent/libnvrtc.so"));
}

//===-- doctor and completion ---------------------------------------------===//

TEST_CASE("doctor says what is missing and fails only when it is asked to be strict") {
  Lathe lathe;
  const CommandResult result = lathe({"doctor"});
  CHECK(result.exitCode == 0);
  CHECK_THAT(result.out, Contains("missing  driver") && Contains(lathe.cacheDir()) && Contains("writable"));
  CHECK(lathe({"doctor", "--strict"}).exitCode == 1);
  lathe.set("LATHE_LOG=loud");
  lathe.set("LATHE_CACHE_PATH=/nonexistent/layer");
  const CommandResult warned = lathe({"doctor", "--json"});
  CHECK(warned.exitCode == 0);
  const llvm::json::Value json = parsed(warned.out);
  std::string states;
  for (const llvm::json::Value& finding : arrayIn(json, "findings"))
    if (finding.getAsObject()->getBoolean("ok") == false) states += textIn(finding, "state") + "\n";
  CHECK_THAT(states, Contains("LATHE_LOG") && Contains("/nonexistent/layer is not a folder"));
}

TEST_CASE("the bash completion knows verbs, options and values") {
  const Lathe lathe;
  const std::string script = lathe.file("lathe.bash");
  const CommandResult completion = lathe({"completion", "bash"});
  CHECK(completion.exitCode == 0);
  std::error_code error;
  llvm::raw_fd_ostream(script, error) << completion.out;
  REQUIRE_FALSE(error);
  const auto complete = [&](const std::string& words) {
    return runCommand("/bin/bash",
                      {"-c", "source " + script + "; COMP_WORDS=(" + words +
                                 "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _lathe; echo \"${COMPREPLY[*]}\""},
                      {"PATH=/usr/bin:/bin"})
        .out;
  };
  CHECK(complete("lathe ver") == "verify\n");
  CHECK(complete("lathe cache ''") == "ls show verify prune clear merge export import\n");
  CHECK(complete("lathe run --dtype ''") == "bf16 fp16 fp32\n");
  CHECK(complete("lathe cache verify --rep") == "--repair\n");
  CHECK(complete("lathe run --random --tokens 8 --mod") == "--model\n");
  CHECK(complete("lathe compile --model gem") == "gemma-2-9b\n");
}

TEST_CASE("zsh and fish completions name every verb") {
  const Lathe lathe;
  for (const char* shell : {"zsh", "fish"}) {
    const CommandResult result = lathe({"completion", shell});
    CHECK(result.exitCode == 0);
    for (const char* verb : {"run", "verify", "plan", "emit", "compile", "cache", "doctor", "prune", "merge"})
      CHECK_THAT(result.out, Contains(verb));
  }
  checkUsage(lathe({"completion", "tcsh"}), "tcsh");
}

//===-- tune, bench, bundles ----------------------------------------------===//

TEST_CASE("tune explains the search space without a GPU") {
  const Lathe lathe;
  const CommandResult text = lathe({"tune", "--explain", "--model", "llama-3-8b", "--arch", "sm_90a"});
  CHECK(text.exitCode == 0);
  CHECK_THAT(text.out, Contains("logits") && Contains("grad_weight") && Contains("predicted") &&
                           Contains("ruled out") && Contains("shared memory"));
  const llvm::json::Value json =
      parsed(lathe(Words{"tune", "--explain", "--arch", "sm_80", "--dtype", "fp16", "--json"} + kTiny).out);
  const llvm::json::Array& points = arrayIn(json, "logits");
  REQUIRE(points.size() > 20);
  CHECK(numberIn(points[0], "predicted_ms") <= numberIn(points[1], "predicted_ms"));
  CHECK_THAT(textIn(points.back(), "illegal"), Contains("cannot run logits"));
}

TEST_CASE("tune and bench say what is wrong with a list, a shard, a record, and that they need a GPU") {
  const Lathe lathe;
  const ScratchFolder scratch;
  const auto explain = [&](const Words& more) { return lathe(Words{"tune", "--explain", "--arch", "sm_80"} + more); };
  checkUsage(explain(Words{"--shard", "8/8"} + kTiny), "INDEX/COUNT");
  CHECK_THAT(explain({"/nonexistent.json"}).err, Contains("/nonexistent.json"));
  CHECK_THAT(explain({"/dev/zero"}).err, Contains("is a device"));
  {
    std::error_code error;
    llvm::raw_fd_ostream file(scratch.file("list.json"), error);
    file << R"([{"model": "no-such-model", "sequences": 2, "tokens": 8}])";
  }
  checkUsage(explain({scratch.file("list.json")}), "no-such-model");
  checkUsage(explain({scratch.file("list.json"), "--hidden", "64"}), "--hidden is for a single workload");
  checkUsage(lathe({"bench", "--import", scratch.file("list.json")}), "cannot be run again");
  checkUsage(lathe(Words{"bench", "--passes", "sideways"} + kTiny), "sideways");
  for (const char* verb : {"tune", "bench"}) {
    const CommandResult result = lathe(Words{verb, "--device", "cpu"} + kTiny);
    CHECK(result.exitCode == 3);
    CHECK_THAT(result.err, Contains("needs a GPU"));
  }
}

TEST_CASE("a bundle carries compiled kernels from cache to cache") {
  const Lathe lathe;
  const ScratchFolder scratch;
  const std::string bundle = scratch.file("kernels.tar");
  CHECK(lathe({"cache", "export", bundle}).exitCode == 2);
  CHECK(lathe(Words{"compile", "--arch", "sm_80", "--dtype", "fp32"} + kTiny).exitCode == 0);
  const llvm::json::Value exported = parsed(lathe({"cache", "export", bundle, "--json"}).out);
  CHECK(numberIn(exported, "kernels") > 3);
  const llvm::json::Value imported =
      parsed(lathe({"cache", "import", bundle, "--cache-dir", scratch.file("other"), "--json"}).out);
  CHECK(numberIn(imported, "added") == numberIn(exported, "kernels"));
  CHECK(lathe({"cache", "verify", "--cache-dir", scratch.file("other")}).exitCode == 0);
  const CommandResult refused = lathe({"cache", "import", golden("plain_f32"), "--cache-dir", scratch.file("other")});
  CHECK(refused.exitCode == 3);
  CHECK_THAT(refused.err, Contains("is refused") && Contains("nothing was imported"));
}
