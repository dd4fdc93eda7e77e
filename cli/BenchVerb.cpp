//===- cli/BenchVerb.cpp - lathe bench -------------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/Device.h"
#include "cli/Text.h"
#include "cli/Verbs.h"
#include "cli/WorkItems.h"
#include "runtime/cache/Cache.h"
#include "tuning/KernelIndex.h"

#include <cmath>

using namespace lathe;
using namespace lathe::cli;

namespace {

struct BenchVerbOptions {
  std::string list;
  WorkloadOptions workload;
  std::string device = "auto";
  std::string format = "table";
  bool json = false;
  std::string svg;
  std::string import;
  std::string passes = "forward,full";
  BenchOptions bench;
};

llvm::Expected<std::vector<BenchPass>> passesOf(llvm::StringRef text) {
  std::vector<BenchPass> passes;
  while (!text.empty()) {
    llvm::StringRef name;
    std::tie(name, text) = text.split(',');
    llvm::Expected<BenchPass> pass = parseBenchPass(name);
    if (!pass) return pass.takeError();
    passes.push_back(*pass);
  }
  return passes;
}

llvm::Expected<ImportedRun> readRecord(const std::string& path) {
  llvm::Expected<std::string> text = readText("the record", path);
  if (!text) return text.takeError();
  llvm::Expected<ImportedRun> run = parseKernelIndex(*text);
  if (run) return run;
  const ErrorSummary summary = takeSummary(run.takeError());
  return makeError(summary.code, "{0}: {1}", path, summary.message);
}

Cell planCell(const BenchResult& result) {
  if (!result.tuned) return "default";
  return result.stale ? Cell("tuned, stale", Tone::Bad) : Cell("tuned", Tone::Good);
}

void printTable(const std::vector<BenchResult>& results, const Session& session) {
  using enum Table::Align;
  Table table({{"workload"},
               {"sequences", Right},
               {"tokens", Right},
               {"pass"},
               {"plan"},
               {"median", Right},
               {"p20", Right},
               {"p80", Right},
               {"95 % confidence", Right},
               {"TFLOP/s", Right},
               {"workspace", Right},
               {"error", Right}});
  for (const BenchResult& result : results) {
    const Timing& timing = result.timing;
    table.add({result.item.name, std::to_string(result.item.shape.sequences), std::to_string(result.item.shape.tokens),
               toString(result.pass), planCell(result), Cell(timeText(timing.median), Tone::Strong),
               timeText(timing.p20), timeText(timing.p80), timeText(timing.low) + " - " + timeText(timing.high),
               numberText(std::round(result.flops / timing.median / 1e8) / 10),
               bytesText(static_cast<double>(result.workspaceBytes)),
               llvm::formatv("{0:f0} % of tolerated", result.strain() * 100).str()});
  }
  session.print(table);
  for (const BenchResult& result : results)
    if (result.throttled > 0)
      session.note(llvm::formatv("{0}, {1} pass: the device was slowed down by heat or its supply during {2} visits",
                                 result.item.name, toString(result.pass), result.throttled)
                       .str());
}

/// Prints theirs beside ours.
void printComparison(const ImportedRun& theirs, const std::vector<BenchResult>& results, const Session& session) {
  session.title("against the record");
  using enum Table::Align;
  Table table({{""}, {"device"}, {"median", Right}});
  const std::string device = theirs.device.empty() ? "unknown" : theirs.device;
  table.add({theirs.title.empty() ? "the record" : theirs.title, device, timeText(theirs.median)});
  for (const BenchResult& result : results)
    table.add({result.tuned ? "lathe, tuned" : "lathe", result.setting.device, timeText(result.timing.median)});
  session.print(table);
  if (!results.empty() && results.front().setting.device != device)
    session.note("the GPUs differ: these times are not comparable");
}

llvm::Error print(const BenchVerbOptions& options, const std::vector<BenchResult>& results, const Session& session) {
  const std::string format = options.json ? "json" : options.format;
  if (format == "table") {
    printTable(results, session);
  } else if (format == "csv") {
    session.out << toCsv(results);
  } else {
    llvm::json::Array array;
    for (const BenchResult& result : results) {
      if (format == "json") {
        array.push_back(toJson(result));
        continue;
      }
      llvm::Expected<llvm::json::Value> record = toKernelIndex(result, options.bench);
      if (!record) return record.takeError();
      array.push_back(std::move(*record));
    }
    session.print(llvm::json::Value(std::move(array)));
  }
  if (options.svg.empty()) return llvm::Error::success();
  return writeAtomically(options.svg, benchSvg(results));
}

llvm::Expected<ExitCode> bench(const BenchVerbOptions& given, const Session& session) {
  BenchVerbOptions options = given;
  llvm::Expected<std::vector<BenchPass>> passes = passesOf(options.passes);
  if (!passes) return passes.takeError();
  options.bench.passes = std::move(*passes);
  std::optional<ImportedRun> theirs;
  std::vector<WorkItem> items;
  if (options.import.empty()) {
    llvm::Expected<std::vector<WorkItem>> read = workItems(options.list, options.workload);
    if (!read) return read.takeError();
    items = std::move(*read);
  } else {
    llvm::Expected<ImportedRun> record = readRecord(options.import);
    if (!record) return record.takeError();
    theirs = std::move(*record);
    items = {theirs->item};
    options.bench.passes = {theirs->pass};
  }
  const std::shared_ptr<Runtime::Implementation> runtime = makeRuntime(session.environment);
  llvm::Expected<DeviceChoice> device = chooseDevice(options.device, *runtime);
  if (!device) return device.takeError();
  if (!device->gpu)
    return makeError(ErrorCode::Unsupported, "a benchmark needs a GPU{0}",
                     device->reason.empty() ? "" : " (" + device->reason + ")");
  options.bench.device = device->gpu->ordinal;

  std::vector<BenchResult> results;
  for (size_t i = 0; i < items.size(); ++i) {
    if (session.progress)
      session.err << "\r[" << i + 1 << '/' << items.size() << "] " << items[i].name << ", " << items[i].shape.sequences
                  << " x " << items[i].shape.tokens << "\x1b[K";
    llvm::Expected<std::vector<BenchResult>> one = benchmark(*runtime, items[i], options.bench);
    if (!one) return one.takeError();
    for (BenchResult& result : *one) results.push_back(std::move(result));
  }
  if (session.progress) session.err << "\r\x1b[K";
  if (llvm::Error error = print(options, results, session)) return error;
  if (theirs) printComparison(*theirs, results, session);
  return ExitCode::Ok;
}

} // namespace

void lathe::cli::addBenchVerb(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("bench", "Time plans on a GPU, over workloads, sizes and passes");
  const auto options = std::make_shared<BenchVerbOptions>();
  verb->add_option("list", options->list, "A list of workloads with sweeps over their sizes; - reads standard input")
      ->type_name("FILE");
  addJsonFlag(*verb, options->json);
  verb->add_option("--format", options->format, "What to print (default table)")
      ->check(CLI::IsMember({"table", "json", "csv", "kernelindex"}))
      ->group("Output");
  verb->add_option("--svg", options->svg, "Plot the times over the number of rows")->type_name("FILE")->group("Output");
  addDeviceOption(*verb, options->device);
  verb->add_option("--passes", options->passes, "forward, full or both, parted by a comma (default both)");
  verb->add_option("--rounds", options->bench.rounds, "Rounds of three runs of everything in turn (default 12)")
      ->check(CLI::Range(1, 100000).description(""));
  verb->add_option("--import", options->import, "Run the workload of a KernelIndex record, and print both times")
      ->type_name("FILE");
  verb->add_option("--seed", options->bench.seed, "Of the inputs (default 1)")->group("Data");
  verb->add_option("--logit-std", options->bench.logitStd,
                   "Standard deviation of the logits (default 1; a trained model: 8)")
      ->group("Data");
  verb->add_option("--masked-fraction", options->bench.maskedFraction, "Tokens that do not count (default 0)")
      ->check(CLI::Range(0.0, 0.999).description(""))
      ->group("Data");
  options->workload.addTo(*verb);
  verb->footer("Where the cache has a tuned plan it is timed in turn with the untuned one.\n\n"
               "Examples:\n"
               "  lathe bench --model llama-3-8b\n"
               "  lathe bench workloads.json --svg sweep.svg --format csv\n"
               "  lathe bench --import record.json");
  setAction(*verb, action, options, bench);
}
