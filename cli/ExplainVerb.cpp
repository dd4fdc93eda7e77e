//===- cli/ExplainVerb.cpp - lathe explain ----------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/Text.h"
#include "cli/Verbs.h"
#include "runtime/inspect/Explain.h"
#include "runtime/inspect/Occupancy.h"

#include "llvm/ADT/StringExtras.h"

using namespace lathe;
using namespace lathe::cli;

namespace {

struct ExplainOptions {
  std::string what;
  std::vector<std::string> cacheDirs;
  bool source = false;
  bool json = false;
};

void printEntries(const KernelExplanation& explanation, const Session& session) {
  session.title("kernels in it");
  using enum Table::Align;
  Table table({{"entry"},
               {"threads", Right},
               {"registers", Right},
               {"static shared", Right},
               {"dynamic shared", Right},
               {"stack", Right},
               {"barriers", Right},
               {"code", Right}});
  for (const CubinEntry& entry : explanation.entries) {
    const KernelResources& resources = entry.resources;
    table.add({entry.name, resources.threads > 0 ? std::to_string(resources.threads) : "",
               std::to_string(resources.registers), bytesText(static_cast<double>(resources.staticSharedBytes)),
               bytesText(static_cast<double>(resources.dynamicSharedBytes)),
               bytesText(static_cast<double>(resources.stackBytes)), std::to_string(resources.barriers),
               bytesText(static_cast<double>(resources.codeBytes))});
  }
  session.print(table);
}

void printTuning(const KernelExplanation& explanation, const Session& session) {
  if (explanation.tuning.empty()) {
    session.out << "\nnot tuned: the cost model, or the caller, chose the config\n";
    return;
  }
  session.title("tuned plans with this config");
  using enum Table::Align;
  Table table({{"device"}, {"shape"}, {"median", Right}, {"untuned", Right}, {"NVRTC"}, {"by"}, {"when"}, {"run"}});
  for (const TuningRecord& record : explanation.tuning)
    table.add({record.device, llvm::formatv("{0} x {1}", record.sequences, record.tokens).str(),
               timeText(record.medianMilliseconds), timeText(record.untunedMedianMilliseconds), record.nvrtc,
               "lathe " + record.latheVersion, record.date, record.run});
  session.print(table);
}

void printOrigin(const KernelExplanation& explanation, const Session& session) {
  Properties properties;
  properties.add("file", explanation.file);
  properties.add(
      "cubin",
      llvm::formatv("{0}, {1}", explanation.cubinDigest, bytesText(static_cast<double>(explanation.cubinBytes))).str());
  properties.add("arch", explanation.arch);
  if (explanation.known) {
    properties.add("kernel", explanation.kernelDigest);
    properties.add("source", explanation.sourceDigest);
    properties.add("step", explanation.step);
    if (!explanation.configText.empty()) properties.add("config", explanation.configText);
    properties.add("workload", explanation.workloadDigest);
    properties.add("", explanation.workload.empty() ? "not in the cache" : explanation.workload);
    properties.add("options", llvm::join(explanation.compileOptions, " "));
    properties.add("compiled", llvm::formatv("{0} by lathe {1} with NVRTC {2}, in {3}", explanation.created,
                                             explanation.latheVersion, explanation.nvrtcVersion,
                                             timeText(explanation.compileMilliseconds))
                                   .str());
  }
  session.print(properties);
}

llvm::Expected<ExitCode> explain(const ExplainOptions& options, const Session& session) {
  const std::vector<std::string> roots =
      options.cacheDirs.empty() ? cacheRoots(session.environment) : options.cacheDirs;
  llvm::Expected<KernelExplanation> explanation = explainKernel(options.what, roots);
  if (!explanation) return explanation.takeError();
  if (options.json) {
    session.print(toJson(*explanation));
  } else if (options.source) {
    if (explanation->source.empty())
      return makeError(ErrorCode::Unsupported, "the source of {0} is not known: the file is in no cache",
                       explanation->file);
    session.out << explanation->source;
  } else {
    printOrigin(*explanation, session);
    printEntries(*explanation, session);
    if (explanation->known)
      printTuning(*explanation, session);
    else
      session.out << "\nfrom elsewhere: it is in no cache that was looked at, and has no record beside it\n";
  }
  return ExitCode::Ok;
}

} // namespace

void lathe::cli::addExplainVerb(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("explain", "Tell where a compiled kernel comes from");
  const auto options = std::make_shared<ExplainOptions>();
  verb->add_option("kernel", options->what, "A cubin, or the first digits of a kernel's digest")
      ->type_name("FILE")
      ->required();
  verb->add_option("--cache-dir", options->cacheDirs, "Caches to look in (default: those of the environment)")
      ->type_name("DIR");
  verb->add_flag("--source", options->source, "Print the CUDA source that it was compiled from");
  addJsonFlag(*verb, options->json);
  verb->footer("Examples:\n"
               "  lathe explain 3fa2\n"
               "  lathe explain /opt/app/kernels/logits.cubin --cache-dir /opt/lathe-cache");
  setAction(*verb, action, options, explain);
}
