//===- runtime/inspect/Difference.cpp - Comparing two kernels ---------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/inspect/Difference.h"

#include "runtime/inspect/Occupancy.h"
#include "runtime/inspect/Quantities.h"
#include "runtime/inspect/Roofline.h"
#include "runtime/inspect/Sass.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <map>

using namespace lathe;

namespace {

/// Lines of the two texts' middles whose product is larger are not compared one by one.
constexpr size_t kMostCells = 4'000'000;

using Lines = llvm::ArrayRef<llvm::StringRef>;

void append(std::vector<ComparedLine>& to, LineOrigin origin, Lines lines) {
  for (const llvm::StringRef line : lines) to.push_back({origin, line.str()});
}

/// The longest common subsequence, by the table of its lengths from every pair of lines on.
void compareMiddle(Lines first, Lines second, std::vector<ComparedLine>& to) {
  if (first.size() * second.size() > kMostCells) {
    append(to, LineOrigin::First, first);
    return append(to, LineOrigin::Second, second);
  }
  const size_t width = second.size() + 1;
  std::vector<uint32_t> lengths((first.size() + 1) * width, 0);
  for (size_t i = first.size(); i-- > 0;)
    for (size_t j = second.size(); j-- > 0;)
      lengths[i * width + j] = first[i] == second[j]
                                   ? lengths[(i + 1) * width + j + 1] + 1
                                   : std::max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
  size_t i = 0, j = 0;
  while (i < first.size() && j < second.size()) {
    if (first[i] == second[j]) {
      append(to, LineOrigin::Both, first[i++]);
      ++j;
    } else if (lengths[(i + 1) * width + j] >= lengths[i * width + j + 1]) {
      append(to, LineOrigin::First, first[i++]);
    } else {
      append(to, LineOrigin::Second, second[j++]);
    }
  }
  append(to, LineOrigin::First, first.drop_front(i));
  append(to, LineOrigin::Second, second.drop_front(j));
}

/// The members of a config, as text; the order is that of their names.
std::map<std::string, std::string> configFields(const KernelInspection& kernel) {
  std::map<std::string, std::string> fields;
  llvm::Expected<llvm::json::Value> value = llvm::json::parse(kernel.configJson.empty() ? "{}" : kernel.configJson);
  if (!value) {
    llvm::consumeError(value.takeError());
    return fields;
  }
  if (const llvm::json::Object* object = value->getAsObject())
    for (const auto& [name, member] : *object)
      fields[name.str()] = member.getAsString() ? member.getAsString()->str() : llvm::formatv("{0}", member).str();
  return fields;
}

std::string loopText(const KernelInspection& kernel) {
  return kernel.hotLoop ? std::to_string(kernel.loops[*kernel.hotLoop].instructions()) : "";
}

std::string tileText(const KernelInspection& kernel) {
  return kernel.tile ? llvm::formatv("{0:f0}", kernel.tile->instructions).str() : "";
}

bool sameInstructions(const SassListing& first, const SassListing& second) {
  return llvm::equal(first.instructions, second.instructions, [](const SassInstruction& a, const SassInstruction& b) {
    return a.address == b.address && a.text == b.text;
  });
}

class Comparer {
public:
  Comparer(const ComparedKernel& first, const ComparedKernel& second) : first_(first), second_(second) {}

  KernelComparison compare() {
    figure("config", "kernel", first_.kernel.step, second_.kernel.step);
    figure("config", "arch", first_.kernel.arch, second_.kernel.arch);
    addConfig();
    addResources();
    addInstructions();
    addTimes();
    if (!first_.kernel.sources.empty() && !second_.kernel.sources.empty())
      result_.source = compareLines(first_.kernel.sources.front().text, second_.kernel.sources.front().text);
    if (first_.kernel.sass && second_.kernel.sass)
      result_.sameCode = sameInstructions(*first_.kernel.sass, *second_.kernel.sass);
    return std::move(result_);
  }

private:
  void figure(const char* group, std::string name, std::string first, std::string second) {
    if (first.empty() && second.empty()) return;
    result_.figures.push_back({group, std::move(name), std::move(first), std::move(second)});
  }
  /// A figure that `of` reads from both kernels.
  template <class Of> void each(const char* group, const char* name, Of of) {
    figure(group, name, of(first_.kernel), of(second_.kernel));
  }

  void addConfig() {
    const std::map<std::string, std::string> first = configFields(first_.kernel);
    std::map<std::string, std::string> second = configFields(second_.kernel);
    for (const auto& [name, value] : first) figure("config", name, value, second[name]);
    for (const auto& [name, value] : second)
      if (!first.contains(name)) figure("config", name, "", value);
  }

  void addResources() {
    const auto number = [&](const char* name, auto member) {
      each("resources", name, [&](const KernelInspection& kernel) { return std::to_string(kernel.resources.*member); });
    };
    number("threads", &KernelResources::threads);
    number("registers", &KernelResources::registers);
    number("static shared bytes", &KernelResources::staticSharedBytes);
    number("dynamic shared bytes", &KernelResources::dynamicSharedBytes);
    number("stack bytes", &KernelResources::stackBytes);
    number("barriers", &KernelResources::barriers);
    number("code bytes", &KernelResources::codeBytes);
    each("resources", "blocks of a multiprocessor",
         [](const KernelInspection& kernel) { return std::to_string(kernel.resources.occupancy.blocks); });
    each("resources", "limited by",
         [](const KernelInspection& kernel) { return toString(kernel.resources.occupancy.limiter).str(); });
  }

  void addInstructions() {
    if (!first_.kernel.sass || !second_.kernel.sass) return;
    for (size_t i = 0; i < kInstructionClassCount; ++i) {
      const auto kind = static_cast<InstructionClass>(i);
      if (first_.kernel.mix[kind] + second_.kernel.mix[kind] == 0) continue;
      each("instructions", toString(kind).data(),
           [&](const KernelInspection& kernel) { return std::to_string(kernel.mix[kind]); });
    }
    each("instructions", "total", [](const KernelInspection& kernel) { return std::to_string(kernel.mix.total()); });
    each("instructions", "hot loop", loopText);
    each("instructions", "hot loop, of a warp for a tile", tileText);
  }

  template <class Of> void eachTime(const char* name, Of of) {
    const auto text = [&](const StepInspection* step) -> std::string {
      const std::optional<double> milliseconds = step ? of(*step) : std::nullopt;
      return milliseconds ? timeText(*milliseconds) : "";
    };
    figure("time", name, text(first_.step), text(second_.step));
  }

  void addTimes() {
    eachTime("floor", [](const StepInspection& step) { return std::optional(step.floorMilliseconds); });
    eachTime("predicted", [](const StepInspection& step) { return step.predictedMilliseconds; });
    eachTime("measured", [](const StepInspection& step) { return step.measuredMilliseconds; });
    const auto bound = [](const StepInspection* step) { return step ? toString(step->bound).str() : ""; };
    figure("time", "bound by", bound(first_.step), bound(second_.step));
  }

  const ComparedKernel& first_;
  const ComparedKernel& second_;
  KernelComparison result_;
};

} // namespace

std::vector<ComparedLine> lathe::compareLines(llvm::StringRef first, llvm::StringRef second) {
  llvm::SmallVector<llvm::StringRef> firstLines, secondLines;
  first.rtrim('\n').split(firstLines, '\n');
  second.rtrim('\n').split(secondLines, '\n');
  Lines a = firstLines, b = secondLines;
  std::vector<ComparedLine> result;
  while (!a.empty() && !b.empty() && a.front() == b.front()) {
    append(result, LineOrigin::Both, a.front());
    a = a.drop_front();
    b = b.drop_front();
  }
  Lines tail;
  size_t common = 0;
  while (common < a.size() && common < b.size() && a[a.size() - 1 - common] == b[b.size() - 1 - common]) ++common;
  tail = a.take_back(common);
  compareMiddle(a.drop_back(common), b.drop_back(common), result);
  append(result, LineOrigin::Both, tail);
  return result;
}

KernelComparison lathe::compareKernels(const ComparedKernel& first, const ComparedKernel& second) {
  return Comparer(first, second).compare();
}

llvm::json::Value lathe::toJson(const KernelComparison& comparison) {
  llvm::json::Array figures, source;
  for (const ComparedFigure& figure : comparison.figures)
    figures.push_back(llvm::json::Object{{"group", figure.group},
                                         {"name", figure.name},
                                         {"first", figure.first},
                                         {"second", figure.second},
                                         {"differs", figure.differs()}});
  constexpr llvm::StringLiteral kMarks[] = {" ", "-", "+"};
  for (const ComparedLine& line : comparison.source)
    source.push_back(llvm::json::Array{kMarks[static_cast<size_t>(line.origin)], llvm::json::fixUTF8(line.text)});
  return llvm::json::Object{
      {"figures", std::move(figures)},
      {"source", std::move(source)},
      {"same_code", comparison.sameCode ? llvm::json::Value(*comparison.sameCode) : llvm::json::Value(nullptr)}};
}
