//===- tests/unit/report_test.cpp - The page of an inspection ---------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/inspect/Report.h"

#include "runtime/inspect/Html.h"
#include "tests/support/InspectSamples.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/JSON.h"

#include <regex>
#include <set>

using namespace lathe;
using namespace lathe::test;
using Catch::Contains;

namespace {

constexpr const char* kHostile = "</script><img src=x onerror='1'>&\"\xff";

/// A plan with one kernel that has everything, and texts that try to leave their places.
PlanInspection samplePlan() {
  KernelInspection kernel;
  kernel.step = "logits";
  kernel.entry = "tiles";
  kernel.arch = "sm_80";
  kernel.configText = "mma_sync 128x128x64";
  kernel.configJson = "{\"block_m\":128}";
  kernel.kernelDigest = "sha256:00";
  kernel.resources.threads = 64;
  kernel.resources.stackBytes = 16;
  kernel.sources = {{"lathe_logits.cu", std::string("// ") + kHostile + "\n"}, {"common/math.cuh", "int x;\n"}};
  kernel.ptx = ".version 8.0\n";
  kernel.sass = sassSample("product_sm_80.sass");
  kernel.mix = mixOf(kernel.sass->instructions);
  kernel.loops = findLoops(*kernel.sass);
  kernel.hotLoop = findHotLoop(kernel.loops);
  kernel.tile = TileWork{100, 1e6, 1e5, 10, 170};

  StepInspection step;
  step.step = "logits";
  step.pass = "forward";
  step.pairEnd = 2;
  step.flops = 1e12;
  step.bytes = 1e9;
  step.floors = {{Bound::Compute, 1e12, 1e15}, {Bound::L2, 1e10, 1e13}};
  step.floorMilliseconds = 1;
  step.bound = Bound::Compute;
  step.predictedMilliseconds = 2;
  step.measuredMilliseconds = 1.5;

  PlanInspection plan;
  plan.workload = "{\"vocab\":1000}";
  plan.workloadDigest = "sha256:0123456789abcdef0123";
  plan.sequences = 4;
  plan.tokens = 64;
  plan.arch = "sm_80";
  plan.rates = {1.4e9, 3e14, 2e13, 2e12, 6e12, 2e13, 2e12};
  plan.strategy = kHostile;
  plan.kernels = {kernel};
  plan.steps = {step, step};
  plan.landscapes = {{"logits", {{kHostile, 1, 1.5, true}, {"b", 2, std::nullopt, false}}}};
  plan.tuning = {{"r", kHostile, "13.0", "13.0", 4, 64, 1.5, 2, "2026-01-02", "0.1.0", {}}};
  return plan;
}

/// The page without its style, script and data.
std::string markupOf(const std::string& page) {
  return std::regex_replace(page, std::regex("<(style|script)[^>]*>[^]*?</\\1>"), "");
}

std::vector<std::string> attributes(const std::string& markup, const std::string& name) {
  std::vector<std::string> values;
  const std::regex pattern("\\b" + name + "=\"([^\"]*)\"");
  for (std::sregex_iterator it(markup.begin(), markup.end(), pattern), end; it != end; ++it) values.push_back((*it)[1]);
  return values;
}

/// The first tag that is closed without having been opened, or the other way round; empty when there is none.
std::string unbalancedTag(const std::string& markup) {
  const llvm::StringSet<> kEmpty = {"meta", "br", "hr", "img", "line", "circle", "!doctype"};
  std::vector<std::string> open;
  const std::regex pattern("<(/?)([a-zA-Z!][a-zA-Z0-9]*)[^>]*?(/?)>");
  for (std::sregex_iterator it(markup.begin(), markup.end(), pattern), end; it != end; ++it) {
    const std::string name = (*it)[2];
    if (kEmpty.contains(name) || (*it)[3] == "/") continue;
    if ((*it)[1] != "/") {
      open.push_back(name);
      continue;
    }
    if (open.empty() || open.back() != name) return "</" + name + ">";
    open.pop_back();
  }
  return open.empty() ? "" : "<" + open.back() + ">";
}

llvm::json::Value dataOf(const std::string& page) {
  const llvm::StringRef data =
      llvm::StringRef(page).split("<script type=\"application/json\" id=\"data\">").second.split("</script>").first;
  llvm::Expected<llvm::json::Value> value = llvm::json::parse(data);
  if (!value) FAIL(llvm::toString(value.takeError()));
  return std::move(*value);
}

} // namespace

TEST_CASE("The page is whole: tags match, ids are unique, links lead somewhere") {
  const std::string page = renderReport(samplePlan());
  const std::string markup = markupOf(page);
  CHECK(unbalancedTag(markup) == "");
  const std::vector<std::string> ids = attributes(markup, "id");
  const std::set<std::string> unique(ids.begin(), ids.end());
  // The data's id is in a script.
  CHECK(unique.size() == ids.size());
  for (const std::string& link : attributes(markup, "href")) {
    INFO(link);
    REQUIRE(llvm::StringRef(link).starts_with("#"));
    CHECK(unique.count(link.substr(1)) == 1);
  }
  for (const std::string& label : attributes(markup, "for")) CHECK(unique.count(label) == 1);
  for (const std::string& label : attributes(markup, "aria-labelledby")) CHECK(unique.count(label) == 1);
  CHECK_FALSE(llvm::StringRef(page).contains("@plan@"));
}

TEST_CASE("The page needs nothing from elsewhere") {
  const std::string page = renderReport(samplePlan());
  const std::string markup = markupOf(page);
  CHECK(attributes(markup, "src").empty());
  CHECK_THAT(markup, !Contains("<link") && !Contains("<iframe") && !Contains("<object"));
  CHECK_THAT(page, !Contains("http:") && !Contains("https:") && !Contains("@import") && !Contains("url("));
}

TEST_CASE("The page can be used without a mouse, on light and dark screens") {
  const std::string page = renderReport(samplePlan());
  CHECK_THAT(page, Contains("lang=\"en\"") && Contains("class=\"skip\"") && Contains("tabindex=\"0\"") &&
                       Contains("role=\"listbox\"") && Contains(":focus-visible") && Contains("\"keydown\""));
  CHECK_THAT(page, Contains("prefers-color-scheme: dark") && Contains("data-theme=\"dark\""));
  for (const char* id : {"left", "right"}) CHECK_THAT(page, Contains(std::string("id=\"") + id + "\""));
}

TEST_CASE("Texts stay in their places, whatever they say") {
  const std::string page = renderReport(samplePlan());
  // The two scripts of the page, and no more.
  CHECK(llvm::StringRef(page).count("</script>") == 2);
  CHECK_THAT(markupOf(page), !Contains("<img"));
  const llvm::json::Value data = dataOf(page);
  const llvm::json::Object& kernel = *(*data.getAsObject()->getArray("kernels"))[0].getAsObject();
  CHECK(kernel.getArray("sources")->size() == 2);
  const llvm::json::Object& sass = *kernel.getObject("sass");
  CHECK(sass.getArray("instructions")->size() == samplePlan().kernels[0].sass->instructions.size());
  CHECK(escapeHtml("<a b='c'>&\"") == "&lt;a b=&#39;c&#39;&gt;&amp;&quot;");
}

TEST_CASE("The plots have what was measured and what was predicted") {
  const std::string page = renderReport(samplePlan());
  CHECK_THAT(page, Contains("667 TFLOP/s, 1000 FLOP for each byte, measured"));
  CHECK_THAT(page, Contains("chosen: ") && Contains("2 of 2 configs"));
}

TEST_CASE("A plan without kernels, machine code or products still has a page") {
  PlanInspection empty;
  empty.arch = "sm_75";
  CHECK(unbalancedTag(markupOf(renderReport(empty))) == "");
  PlanInspection plan = samplePlan();
  plan.kernels.front().sass.reset();
  plan.kernels.front().sassProblem = "nvdisasm was <not> found";
  plan.kernels.front().hotLoop.reset();
  plan.kernels.front().loops.clear();
  const std::string page = renderReport(plan);
  CHECK(unbalancedTag(markupOf(page)) == "");
  CHECK_THAT(page, Contains("nvdisasm was &lt;not&gt; found"));
}

TEST_CASE("Very long machine code is cut, and the page says so") {
  PlanInspection plan = samplePlan();
  KernelInspection& kernel = plan.kernels.front();
  const SassInstruction last = kernel.sass->instructions.back();
  while (kernel.sass->instructions.size() < 40'000) {
    kernel.sass->instructions.push_back(last);
    kernel.sass->instructions.back().address += 16 * static_cast<int64_t>(kernel.sass->instructions.size());
  }
  const llvm::json::Value data = dataOf(renderReport(plan));
  const llvm::json::Object& shown = *(*data.getAsObject()->getArray("kernels"))[0].getAsObject();
  CHECK(shown.getObject("sass")->getArray("instructions")->size() == 30'000);
  CHECK(shown.getInteger("dropped") == 10'000);
}
