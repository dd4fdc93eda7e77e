//===- tuning/KernelIndex.cpp - Records of benchmark runs ------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tuning/KernelIndex.h"

#include "generator/CanonicalJson.h"
#include "generator/Workload.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Regex.h"

#include <cmath>

using namespace lathe;

namespace {

constexpr llvm::StringLiteral kApiVersion = "kernelindex.dev/v1alpha1";
constexpr llvm::StringLiteral kRepository = "lathe";

/// Lower-case letters, digits and dashes.
std::string slug(llvm::StringRef text) {
  std::string result;
  for (const char c : text) {
    if (llvm::isAlnum(c))
      result += llvm::toLower(c);
    else if (!result.empty() && result.back() != '-')
      result += '-';
  }
  while (!result.empty() && result.back() == '-') result.pop_back();
  return result;
}

int64_t nanoseconds(double milliseconds) {
  return std::llround(milliseconds * 1e6);
}

llvm::json::Object document(llvm::StringRef kind, llvm::StringRef name, llvm::StringRef title,
                            llvm::json::Object spec) {
  return llvm::json::Object{{"apiVersion", kApiVersion},
                            {"kind", kind.str()},
                            {"metadata", llvm::json::Object{{"name", name.str()}, {"title", title.str()}}},
                            {"spec", std::move(spec)}};
}

llvm::Expected<std::string> digestOf(const llvm::json::Value& value) {
  llvm::Expected<std::string> text = canonicalJson(value);
  if (!text) return text.takeError();
  return Digest::of(*text).text();
}

/// The workload with its sizes pinned.
Workload pinned(const BenchResult& result) {
  Workload workload = workloadFor(result.item.workload, result.pass);
  workload.sequences = result.item.shape.sequences;
  workload.tokens = result.item.shape.tokens;
  return workload;
}

llvm::json::Value protocolOf(const BenchResult& result, const BenchOptions& options) {
  const std::string pass = toString(result.pass).str();
  llvm::json::Object measurement{{"timer", "cuda_events"},
                                 {"primaryStatistic", "median"},
                                 {"rounds", options.rounds},
                                 {"repetitionsPerRound", options.repetitions},
                                 {"warmupPerRound", 1},
                                 {"cacheState", "L2 flushed before every repetition"},
                                 {"order", "all contenders in turn in every round"}};
  llvm::json::Object inputs{{"distribution", "normal"},
                            {"seed", static_cast<int64_t>(options.seed)},
                            {"logitStandardDeviation", options.logitStd},
                            {"maskedFraction", options.maskedFraction}};
  llvm::json::Object correctness{{"reference", "float64 on the host, for a sample of rows and vocabulary entries"},
                                 {"gradients", "relative L2 error"},
                                 {"values", "largest absolute error over one plus the magnitude"},
                                 {"when", "before timing, with results overwritten by NaN"}};
  return document(
      "BenchmarkProtocol", "lathe-bench-" + pass, "lathe bench, " + pass + " pass",
      llvm::json::Object{
          {"harness", llvm::json::Object{{"name", "lathe bench"}, {"repository", kRepository}}},
          {"measurement", std::move(measurement)},
          {"inputs", std::move(inputs)},
          {"correctness", std::move(correctness)},
          {"comparability", llvm::json::Object{{"family", "lathe_bench"},
                                               {"notes", "Comparable within one workload, pass and kind of GPU."}}}});
}

llvm::json::Value environmentOf(const BenchResult& result) {
  const TuningSetting& setting = result.setting;
  const std::string arch = result.kernels.empty() ? "" : result.kernels.front()->specialization.target.arch();
  return document("ExecutionEnvironment", "lathe-bench-" + slug(setting.device), setting.device,
                  llvm::json::Object{{"hardware", llvm::json::Object{{"vendor", "nvidia"},
                                                                     {"product", setting.device},
                                                                     {"architecture", arch},
                                                                     {"multiprocessors", setting.multiprocessors}}},
                                     {"software", llvm::json::Object{{"cuda", setting.driver},
                                                                     {"driver", result.driverRelease},
                                                                     {"nvrtc", setting.nvrtc},
                                                                     {"lathe", LATHE_VERSION}}}});
}

llvm::json::Value implementationOf(const BenchResult& result) {
  llvm::json::Array artifacts;
  for (const KernelPointer& kernel : result.kernels)
    artifacts.push_back(llvm::json::Object{{"kernel", toString(kernel->specialization.kind)},
                                           {"sourceDigest", kernel->specialization.sourceDigest.text()},
                                           {"cubinDigest", Digest::of(kernel->cubin).text()},
                                           {"kernelDigest", kernel->digest.text()}});
  return llvm::json::Object{{"name", "lathe"},
                            {"version", LATHE_VERSION},
                            {"revision", LATHE_REVISION},
                            {"plan", result.tuned ? "tuned" : "default"},
                            {"choices", toJson(result.choices)},
                            {"artifacts", std::move(artifacts)}};
}

llvm::json::Array correctnessOf(const BenchResult& result) {
  llvm::json::Array checks;
  for (const Comparison& comparison : result.checks)
    checks.push_back(llvm::json::Object{{"value", comparison.name},
                                        {"error", comparison.error},
                                        {"tolerance", comparison.tolerance},
                                        {"passed", comparison.ok}});
  return checks;
}

llvm::json::Value measurement(const char* statistic, double milliseconds) {
  return llvm::json::Object{
      {"metric", "latency"}, {"statistic", statistic}, {"unit", "ns"}, {"value", nanoseconds(milliseconds)}};
}

} // namespace

llvm::Expected<llvm::json::Value> lathe::toKernelIndex(const BenchResult& result, const BenchOptions& options) {
  llvm::json::Value protocol = protocolOf(result, options);
  llvm::json::Value environment = environmentOf(result);
  llvm::json::Value implementation = implementationOf(result);
  llvm::json::Value workload = toJson(pinned(result));
  const std::pair<const char*, const llvm::json::Value*> parts[] = {{"workloadDigest", &workload},
                                                                    {"protocolDigest", &protocol},
                                                                    {"environmentDigest", &environment},
                                                                    {"implementationDigest", &implementation}};
  const Shape& shape = result.item.shape;
  const Workload& own = result.item.workload;
  const std::string size = llvm::formatv("batch{0}-hidden{1}-seq{2}-vocab{3}-{4}", shape.sequences, own.hidden,
                                         shape.tokens, own.vocab, toString(own.dtype));
  const std::string pass = toString(result.pass).str();
  llvm::json::Object spec{
      {"status", "passed"},
      {"observedAt", result.date},
      {"timing", llvm::json::Object{{"primaryStatistic", "median"},
                                    {"latencyNs", llvm::json::Object{{"median", nanoseconds(result.timing.median)}}}}},
      {"measurements", llvm::json::Array{measurement("p20", result.timing.p20), measurement("p80", result.timing.p80)}},
      {"correctness", correctnessOf(result)},
      {"sourceNative",
       llvm::json::Object{{"source", "lathe-bench"},
                          {"benchmark", "fused_linear_simpo_loss/" + pass},
                          {"externalId", "fused_linear_simpo_loss/" + pass + "/lathe/" + slug(result.setting.device) +
                                             "/" + size + "/" + result.date},
                          {"metrics", llvm::json::Object{{"ms_20", result.timing.p20},
                                                         {"ms_50", result.timing.median},
                                                         {"ms_80", result.timing.p80}}}}}};
  for (const auto& [name, part] : parts) {
    llvm::Expected<std::string> digest = digestOf(*part);
    if (!digest) return digest.takeError();
    spec[name] = std::move(*digest);
  }
  llvm::json::Object run =
      document("BenchmarkRun", slug("lathe fused linear simpo loss " + pass + " " + result.setting.device + " " + size),
               "Fused linear + SimPO loss, lathe, " + pass, std::move(spec));
  (*run.getObject("metadata"))["labels"] = llvm::json::Object{
      {"lathe_version", LATHE_VERSION}, {"revision", LATHE_REVISION}, {"plan", result.tuned ? "tuned" : "default"}};
  return llvm::json::Object{{"run", std::move(run)},
                            {"protocol", std::move(protocol)},
                            {"environment", std::move(environment)},
                            {"workload", std::move(workload)},
                            {"implementation", std::move(implementation)}};
}

namespace {

llvm::Error bad(const llvm::Twine& what) {
  return makeError(ErrorCode::InvalidWorkload, "the record cannot be run again: {0}", what.str());
}

/// The object at `path` below `object`; null when there is none.
const llvm::json::Object* at(const llvm::json::Object* object, llvm::ArrayRef<llvm::StringRef> path) {
  for (const llvm::StringRef name : path) object = object ? object->getObject(name) : nullptr;
  return object;
}

/// The sizes and element type in an external id.
llvm::Expected<WorkItem> itemFromId(llvm::StringRef id) {
  llvm::SmallVector<llvm::StringRef> parts;
  const llvm::Regex pattern("batch([0-9]+)-hidden([0-9]+)-seq([0-9]+)-vocab([0-9]+)-(bf16|fp16|fp32)");
  if (!pattern.match(id, &parts))
    return bad("it has no workload, and its external id \"" + id +
               "\" has no batchN-hiddenN-seqN-vocabN-dtype to read it from");
  WorkItem item;
  const std::pair<llvm::StringRef, int64_t*> numbers[] = {{parts[1], &item.shape.sequences},
                                                          {parts[2], &item.workload.hidden},
                                                          {parts[3], &item.shape.tokens},
                                                          {parts[4], &item.workload.vocab}};
  for (const auto& [text, number] : numbers)
    if (text.getAsInteger(10, *number)) return bad("the number " + text + " in its external id is too large");
  llvm::Expected<DType> dtype = parseDType(parts[5]);
  if (!dtype) return dtype.takeError();
  item.workload.dtype = item.workload.gradWeightDType = *dtype;
  item.name = parts[0].str();
  return item;
}

llvm::Expected<WorkItem> itemFromWorkload(const llvm::json::Value& json) {
  llvm::Expected<Workload> workload = workloadFromJson(json);
  if (!workload) return bad(takeSummary(workload.takeError()).message);
  if (!workload->sequences || !workload->tokens) return bad("its workload does not say how many sequences and tokens");
  WorkItem item;
  item.shape = {*workload->sequences, *workload->tokens};
  item.workload = *workload;
  item.workload.sequences = item.workload.tokens = std::nullopt;
  item.name = workloadDigest(item.workload).hex().substr(0, 12);
  return item;
}

} // namespace

llvm::Expected<ImportedRun> lathe::parseKernelIndex(llvm::StringRef json) {
  llvm::Expected<llvm::json::Value> value = parseJson(json);
  if (!value) return value.takeError();
  const llvm::json::Object* record = value->getAsObject();
  const llvm::json::Object* run = record ? record->getObject("run") : nullptr;
  const llvm::json::Object* spec = at(run, {"spec"});
  if (!spec) return bad("it has no run with a spec");
  if (run->getString("kind") != "BenchmarkRun") return bad("its run is not of kind BenchmarkRun");
  ImportedRun imported;
  if (const llvm::json::Object* metadata = at(run, {"metadata"}))
    imported.title = metadata->getString("title").value_or("").str();
  const llvm::json::Object* latency = at(spec, {"timing", "latencyNs"});
  const auto median = latency ? latency->getNumber("median") : std::nullopt;
  if (!median || !std::isfinite(*median) || *median <= 0) return bad("it has no median latency");
  imported.median = *median / 1e6;
  const llvm::json::Object* native = at(spec, {"sourceNative"});
  const llvm::StringRef benchmark = native ? native->getString("benchmark").value_or("") : "";
  if (!benchmark.starts_with("fused_linear_simpo_loss/"))
    return bad("its benchmark is \"" + benchmark + "\", not a pass of fused_linear_simpo_loss");
  llvm::Expected<BenchPass> pass = parseBenchPass(benchmark.rsplit('/').second);
  if (!pass) return pass.takeError();
  imported.pass = *pass;
  llvm::Expected<WorkItem> item = record->get("workload") ? itemFromWorkload(*record->get("workload"))
                                                          : itemFromId(native->getString("externalId").value_or(""));
  if (!item) return item.takeError();
  if (llvm::Error error = validate(item->workload, item->shape)) return bad(takeSummary(std::move(error)).message);
  imported.item = std::move(*item);
  if (const llvm::json::Object* hardware = at(record, {"environment", "spec", "hardware"}))
    imported.device = hardware->getString("product").value_or("").str();
  return imported;
}
