//===- tests/cli/inspect_cli_test.cpp - lathe inspect and explain -----------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/inspect/Disassembler.h"
#include "tests/support/InspectSamples.h"
#include "tests/support/LatheCommand.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Regex.h"

using namespace lathe::test;
using Catch::Matchers::Contains;

namespace {

const Words kWorkload = {"--hidden", "512", "--vocab", "3000", "--tokens", "64"};
const Words kLogits = Words{"inspect"} + kWorkload + Words{"--arch", "sm_80", "--step", "logits"};

bool hasDisassembler() {
  return machineDisassembler().has_value();
}

} // namespace

TEST_CASE("inspect shows the floors of the steps and the resources of the kernels") {
  const Lathe lathe;
  const CommandResult result = lathe(Words{"inspect"} + kWorkload + Words{"--arch", "sm_90a"});
  CAPTURE(result.err);
  REQUIRE(result.exitCode == 0);
  CHECK_THAT(result.out, Contains("bound by") && Contains("registers") && Contains("occupancy") && Contains("wgmma") &&
                             Contains("total"));
  CHECK_THAT(result.out, !Contains("\x1b["));
}

TEST_CASE("inspect of one step shows its resources, instructions, hot loop and floors") {
  const Lathe lathe;
  const CommandResult result = lathe(kLogits);
  CAPTURE(result.err);
  REQUIRE(result.exitCode == 0);
  CHECK_THAT(result.out, Contains("digest") && Contains("blocks by") && Contains("tile") && Contains("predicted"));
  if (!hasDisassembler()) return;
  CHECK_THAT(result.out, Contains("tensor") && Contains("hot loop") && Contains("instructions a warp"));
}

TEST_CASE("inspect prints the unit, the unit in one file and the PTX") {
  const Lathe lathe;
  const CommandResult unit = lathe(kLogits + Words{"--show", "source"});
  CHECK(unit.exitCode == 0);
  CHECK(unit.out == lathe(Words{"emit"} + kWorkload + Words{"--arch", "sm_80", "--step", "logits"}).out);
  const CommandResult flat = lathe(kLogits + Words{"--show", "flat"});
  CHECK_THAT(flat.out, !Contains("#include") && Contains("__global__"));
  const CommandResult ptx = lathe(kLogits + Words{"--show", "ptx"});
  REQUIRE(ptx.exitCode == 0);
  CHECK_THAT(ptx.out, Contains(".entry lathe_logits") && !Contains(".section"));
  if (hasDisassembler()) CHECK_THAT(ptx.out, Contains("// steps/logits.cuh:"));
}

TEST_CASE("inspect prints machine code with the templates' lines, for wide and narrow terminals") {
  if (!hasDisassembler()) return;
  const Lathe lathe;
  const CommandResult sass = lathe(kLogits + Words{"--show", "sass"});
  REQUIRE(sass.exitCode == 0);
  CHECK_THAT(sass.out, Contains("HMMA") && Contains("// steps/logits.cuh:") && Contains("EXIT"));
  for (const char* columns : {"40", "80", "100", "200"}) {
    const CommandResult side = lathe(kLogits + Words{"--show", "side", "--columns", columns});
    REQUIRE(side.exitCode == 0);
    CHECK_THAT(side.out, Contains("HMMA") && Contains("logits.cuh:"));
    llvm::SmallVector<llvm::StringRef> lines;
    llvm::StringRef(side.out).split(lines, '\n');
    for (const llvm::StringRef line : lines) CHECK(line.size() <= static_cast<size_t>(std::stoi(columns)));
  }
}

TEST_CASE("inspect gives everything as JSON") {
  const Lathe lathe;
  const llvm::json::Value json = parsed(lathe(kLogits + Words{"--json"}).out);
  CHECK(textIn(json, "arch") == "sm_80");
  const llvm::json::Array& kernels = arrayIn(json, "kernels");
  REQUIRE(kernels.size() == 1);
  CHECK(textIn(kernels.front(), "kernel") == "logits");
  CHECK_THAT(textIn(kernels.front(), "ptx"), Contains(".entry"));
  CHECK(numberIn(*kernels.front().getAsObject()->get("resources"), "registers") > 0);
  CHECK(arrayIn(json, "steps").size() > 3);
  CHECK(arrayIn(json, "landscapes").size() == 1);
}

TEST_CASE("inspect writes a page for a browser") {
  const Lathe lathe;
  const std::string path = lathe.file("report.html");
  const CommandResult result = lathe(kLogits + Words{"--html", path});
  CHECK(result.exitCode == 0);
  CHECK_THAT(result.err, Contains("wrote"));
  const auto page = llvm::MemoryBuffer::getFile(path);
  REQUIRE(page);
  CHECK_THAT((*page)->getBuffer().str(), Contains("<!doctype html>") && Contains("lathe_logits"));
  CHECK(lathe(kLogits + Words{"--html", "/dev/null/report.html"}).exitCode == 3);
}

TEST_CASE("inspect compares configs, and the cache with a fresh compilation") {
  const Lathe lathe;
  const llvm::json::Value json = parsed(lathe(kLogits + Words{"--json"}).out);
  llvm::json::Object config = *arrayIn(json, "kernels").front().getAsObject()->getObject("config");
  config["group_m"] = 1;
  const std::string other = llvm::formatv("{0}", llvm::json::Value(std::move(config))).str();
  const CommandResult configs = lathe(kLogits + Words{"--diff", "fresh", other});
  CAPTURE(configs.err);
  REQUIRE(configs.exitCode == 0);
  CHECK_THAT(configs.out, Contains("group_m") && Contains("+   static constexpr int kGroupM = 1;"));

  checkUsage(lathe(kLogits + Words{"--diff", "cached", "fresh"}), "lathe compile");
  REQUIRE(lathe(Words{"compile"} + kWorkload + Words{"--arch", "sm_80"}).exitCode == 0);
  const CommandResult same = lathe(kLogits + Words{"--diff", "cached", "fresh"});
  CHECK(same.exitCode == 0);
  CHECK_THAT(same.out, Contains("the sources are the same"));
  if (hasDisassembler()) CHECK_THAT(same.out, Contains("the machine code is the same"));
  const llvm::json::Value diff = parsed(lathe(kLogits + Words{"--diff", "cached", "fresh", "--json"}).out);
  for (const llvm::json::Value& figure : arrayIn(diff, "figures"))
    CHECK(figure.getAsObject()->getBoolean("differs") == false);
}

TEST_CASE("inspect measures the steps where there is a GPU of the plan's kind") {
  Lathe lathe;
  lathe.set("LATHE_LIBCUDA=" LATHE_FAKE_CUDA);
  const Words plan = Words{"inspect"} + kWorkload + Words{"--measure", "2"};
  const llvm::json::Value json = parsed(lathe(plan + Words{"--step", "logits", "--json"}).out);
  for (const llvm::json::Value& step : arrayIn(json, "steps")) CHECK(numberIn(step, "measured_ms") > 0);
  CHECK_THAT(lathe(plan + Words{"--step", "logits"}).out, Contains("measured"));
  const CommandResult diff = lathe(plan + Words{"--step", "logits", "--diff", "fresh", "fresh", "--json"});
  CHECK(llvm::any_of(arrayIn(parsed(diff.out), "figures"), [](const llvm::json::Value& figure) {
    return textIn(figure, "name") == "measured" && !textIn(figure, "first").empty();
  }));
  checkUsage(lathe(plan + Words{"--arch", "sm_75"}), "sm_75");
}

TEST_CASE("inspect without nvdisasm shows all but the machine code, and says how to get it") {
  Lathe lathe;
  lathe.set("LATHE_NVDISASM=/nonexistent/nvdisasm");
  const CommandResult summary = lathe(kLogits);
  CHECK(summary.exitCode == 0);
  CHECK_THAT(summary.out, Contains("registers") && Contains("not found"));
  CHECK_THAT(summary.err, Contains("pip install nvidia-cuda-nvdisasm"));
  const CommandResult sass = lathe(kLogits + Words{"--show", "sass"});
  CHECK(sass.exitCode == 3);
  CHECK_THAT(sass.err, Contains("pip install nvidia-cuda-nvdisasm"));
  CHECK(lathe(kLogits + Words{"--show", "ptx"}).exitCode == 0);
}

TEST_CASE("inspect refuses what it cannot do") {
  const Lathe lathe;
  const Words plan = Words{"inspect"} + kWorkload + Words{"--arch", "sm_80"};
  checkUsage(lathe(plan + Words{"--show", "sass"}), "--step");
  checkUsage(lathe(plan + Words{"--diff", "cached", "fresh"}), "--step");
  checkUsage(lathe(plan + Words{"--step", "grad_bias"}), "grad_bias");
  checkUsage(lathe(plan + Words{"--step", "row_map", "--config", "{}"}), "row_map");
  checkUsage(lathe(kLogits + Words{"--config", "nonsense"}), "nonsense");
  checkUsage(lathe(kLogits + Words{"--config", "{"}), "JSON");
  checkUsage(lathe(kLogits + Words{"--config", "/dev/zero"}), "/dev/zero");
  checkUsage(lathe({"explain", "/dev/zero"}), "/dev/zero");
  checkUsage(lathe(kLogits + Words{"--diff", "ffff", "fresh"}), "ffff");
  checkUsage(lathe(Words{"inspect"} + kWorkload), "--arch");
  const CommandResult measured = lathe(kLogits + Words{"--measure", "3"});
  CHECK(measured.exitCode == 3);
  CHECK_THAT(measured.err, Contains("libcuda"));
}

TEST_CASE("explain leads from a digest or a cubin back to the workload") {
  const Lathe lathe;
  REQUIRE(lathe(kLogits).exitCode == 0);
  const llvm::json::Value list = parsed(lathe({"cache", "ls", "--json"}).out);
  const std::string digest = textIn(arrayIn(list, "entries").front(), "kernel_digest");
  const CommandResult text = lathe({"explain", digest.substr(0, 20)});
  CHECK(text.exitCode == 0);
  CHECK_THAT(text.out, Contains(digest) && Contains("\"hidden\":512") && Contains("logits") && Contains("NVRTC"));
  const llvm::json::Value json = parsed(lathe({"explain", digest, "--json"}).out);
  CHECK(textIn(json, "kernel") == "logits");
  CHECK_THAT(lathe({"explain", digest, "--source"}).out, Contains("__global__"));
  const CommandResult cubin = lathe({"explain", textIn(json, "file"), "--json"});
  CHECK(textIn(parsed(cubin.out), "kernel_digest") == digest);

  const std::string foreign = std::string(LATHE_TEST_DATA) + "/cubin/shared_sm_75_cuda13.cubin";
  const CommandResult elsewhere = lathe({"explain", foreign});
  CHECK(elsewhere.exitCode == 0);
  CHECK_THAT(elsewhere.out, Contains("shared_user") && Contains("from elsewhere"));
  CHECK(lathe({"explain", foreign, "--source"}).exitCode == 3);
  checkUsage(lathe({"explain", "no such thing"}), "lathe cache ls");
}

TEST_CASE("man prints a page of every verb, and writes all of them") {
  const Lathe lathe;
  const CommandResult main = lathe({"man"});
  CHECK(main.exitCode == 0);
  CHECK_THAT(main.out, Contains(".TH LATHE 1") && Contains(".SH VERBS") && Contains("lathe\\-inspect"));
  const CommandResult page = lathe({"man", "lathe-cache-ls"});
  CHECK_THAT(page.out, Contains(".SH SYNOPSIS") && Contains(".B lathe cache ls") && Contains("\\-\\-json") &&
                           Contains(".SH SEE ALSO"));
  // No line of a text begins like a request, and no escape is left open.
  const CommandResult inspect = lathe({"man", "lathe-inspect"});
  llvm::SmallVector<llvm::StringRef> lines;
  llvm::StringRef(inspect.out).split(lines, '\n');
  const llvm::Regex request("^\\.(TH|SH|SS|TP|B|BR|I|RI|nf|fi|sp)( |$)");
  for (const llvm::StringRef line : lines) {
    INFO(line.str());
    CHECK((!line.starts_with(".") || request.match(line)));
  }
  const std::string folder = lathe.file("man1");
  CHECK(lathe({"man", "--output", folder}).exitCode == 0);
  for (const char* name : {"lathe", "lathe-run", "lathe-cache", "lathe-cache-merge", "lathe-man"})
    CHECK(llvm::sys::fs::exists(folder + "/" + name + ".1"));
  checkUsage(lathe({"man", "lathe-nonsense"}), "lathe-cache-ls");
}
