//===- tests/unit/difference_test.cpp - Comparing two kernels ---------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/inspect/Difference.h"

#include "tests/support/InspectSamples.h"

#include "llvm/ADT/STLExtras.h"

using namespace lathe;
using namespace lathe::test;

namespace {

/// `-a b +c` for a removed, a common and an added line.
std::string marked(llvm::StringRef first, llvm::StringRef second) {
  std::string text;
  for (const ComparedLine& line : compareLines(first, second))
    text += std::string(line.origin == LineOrigin::First    ? "-"
                        : line.origin == LineOrigin::Second ? "+"
                                                            : "") +
            line.text + " ";
  return text;
}

KernelInspection kernelOf(const std::string& sample) {
  KernelInspection kernel;
  kernel.step = "logits";
  kernel.arch = "sm_80";
  kernel.configJson = "{\"block_m\":128,\"family\":\"simt\"}";
  kernel.sass = sassSample(sample);
  kernel.mix = mixOf(kernel.sass->instructions);
  kernel.loops = findLoops(*kernel.sass);
  kernel.hotLoop = findHotLoop(kernel.loops);
  kernel.sources = {{"lathe_logits.cu", "a\nb\nc\n"}};
  return kernel;
}

const ComparedFigure& figureOf(const KernelComparison& comparison, const std::string& name) {
  const auto found =
      llvm::find_if(comparison.figures, [&](const ComparedFigure& figure) { return figure.name == name; });
  REQUIRE(found != comparison.figures.end());
  return *found;
}

} // namespace

TEST_CASE("Lines of two texts are common, only in the first or only in the second") {
  CHECK(marked("a\nb\nc\n", "a\nb\nc\n") == "a b c ");
  CHECK(marked("a\nb\nc\n", "a\nx\nc\n") == "a -b +x c ");
  CHECK(marked("a\nc\n", "a\nb\nc\n") == "a +b c ");
  CHECK(marked("a\nb\nc\nd\n", "b\nd\ne\n") == "-a b -c d +e ");
  CHECK(marked("a\na\n", "a\na\na\n") == "a a +a ");
}

TEST_CASE("Texts of very many different lines are compared without a table of them all") {
  std::string first, second;
  for (int i = 0; i < 50'000; ++i) {
    first += "first " + std::to_string(i) + "\n";
    second += "second " + std::to_string(i) + "\n";
  }
  const std::vector<ComparedLine> lines = compareLines("same\n" + first, "same\n" + second);
  CHECK(lines.size() == 100'001);
  CHECK(lines.front().origin == LineOrigin::Both);
}

TEST_CASE("A kernel does not differ from itself") {
  const KernelInspection kernel = kernelOf("product_sm_80.sass");
  const KernelComparison comparison = compareKernels(ComparedKernel{kernel}, ComparedKernel{kernel});
  CHECK(llvm::none_of(comparison.figures, [](const ComparedFigure& figure) { return figure.differs(); }));
  CHECK(comparison.sameCode == true);
  CHECK(llvm::all_of(comparison.source, [](const ComparedLine& line) { return line.origin == LineOrigin::Both; }));
}

TEST_CASE("Config, resources, instructions and times are compared") {
  const KernelInspection first = kernelOf("product_sm_80.sass");
  KernelInspection second = kernelOf("sums_sm_80.sass");
  second.configJson = "{\"block_m\":64,\"family\":\"simt\",\"stages\":3}";
  second.resources.registers = 99;
  StepInspection slow, fast;
  slow.predictedMilliseconds = 2;
  slow.measuredMilliseconds = 2.5;
  fast.predictedMilliseconds = 1;
  const KernelComparison comparison = compareKernels(ComparedKernel{first, &slow}, ComparedKernel{second, &fast});
  CHECK(figureOf(comparison, "block_m").first == "128");
  CHECK(figureOf(comparison, "block_m").second == "64");
  CHECK_FALSE(figureOf(comparison, "family").differs());
  CHECK(figureOf(comparison, "stages").first.empty());
  CHECK(figureOf(comparison, "registers").second == "99");
  CHECK(figureOf(comparison, "tensor").first == "1");
  CHECK(figureOf(comparison, "tensor").second == "0");
  CHECK(figureOf(comparison, "predicted").differs());
  CHECK(figureOf(comparison, "measured").first == "2.50 ms");
  CHECK(figureOf(comparison, "measured").second.empty());
  CHECK(comparison.sameCode == false);
}

TEST_CASE("Without machine code nothing is said of it") {
  KernelInspection kernel = kernelOf("product_sm_80.sass");
  kernel.sass.reset();
  const KernelComparison comparison = compareKernels(ComparedKernel{kernel}, ComparedKernel{kernel});
  CHECK_FALSE(comparison.sameCode);
  CHECK(llvm::none_of(comparison.figures, [](const ComparedFigure& figure) { return figure.group == "instructions"; }));
}
