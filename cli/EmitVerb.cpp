//===- cli/EmitVerb.cpp - lathe emit ---------------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/Device.h"
#include "cli/PlanInputs.h"
#include "cli/Verbs.h"
#include "runtime/cache/Cache.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace lathe;
using namespace lathe::cli;

namespace {

struct EmitOptions {
  WorkloadOptions workload;
  std::string arch;
  PlanFlags plan;
  std::string step = "all";
  bool flat = false;
  std::string output;
  bool json = false;
};

/// The kernels that `step` names in `graph`.
llvm::Expected<std::vector<KernelKind>> kernelsOf(const PlanGraph& graph, llvm::StringRef step) {
  std::vector<KernelKind> kinds = graph.kernels();
  if (step == "all") return kinds;
  std::string names = "all";
  for (const KernelKind kind : kinds) {
    if (toString(kind) == step) return std::vector<KernelKind>{kind};
    names += (", " + toString(kind)).str();
  }
  return makeError(ErrorCode::InvalidArgument, "the plan has no step \"{0}\"; --step may be {1}", step, names);
}

std::string pathOf(const EmitOptions& options, const Specialization& unit) {
  llvm::SmallString<128> path(options.output);
  llvm::sys::path::append(path, unit.entry + ".cu");
  return std::string(path);
}

llvm::Error writeUnits(const EmitOptions& options, llvm::ArrayRef<Specialization> units) {
  if (const std::error_code error = llvm::sys::fs::create_directories(options.output))
    return makeError(ErrorCode::Io, "cannot make the folder {0}: {1}", options.output, error.message());
  for (const Specialization& unit : units)
    if (llvm::Error error = writeAtomically(pathOf(options, unit), options.flat ? unit.flattened() : unit.unit))
      return error;
  return llvm::Error::success();
}

void printUnits(const EmitOptions& options, llvm::ArrayRef<Specialization> units, const Session& session) {
  for (const Specialization& unit : units) {
    if (units.size() > 1) session.out << "// ---- " << unit.entry << ".cu ----\n";
    session.out << (options.flat ? unit.flattened() : unit.unit);
  }
}

void printList(const EmitOptions& options, llvm::ArrayRef<Specialization> units, const Session& session) {
  Table table({{"file"}, {"entry"}, {"threads", Table::Align::Right}, {"source"}});
  for (const Specialization& unit : units)
    table.add({pathOf(options, unit), unit.entry, std::to_string(unit.threads), unit.sourceDigest.hex().substr(0, 12)});
  session.print(table);
}

llvm::json::Value jsonOf(const EmitOptions& options, llvm::ArrayRef<Specialization> units) {
  llvm::json::Array array;
  for (const Specialization& unit : units) {
    llvm::json::Object object{{"kernel", toString(unit.kind)},
                              {"entry", unit.entry},
                              {"arch", unit.target.arch()},
                              {"threads", unit.threads},
                              {"dynamic_shared_bytes", unit.sharedBytes},
                              {"source_digest", unit.sourceDigest.text()}};
    if (unit.config) object["config"] = toJson(*unit.config);
    if (options.output.empty())
      object["source"] = options.flat ? unit.flattened() : unit.unit;
    else
      object["file"] = pathOf(options, unit);
    array.push_back(std::move(object));
  }
  return array;
}

llvm::Expected<ExitCode> emitSources(const EmitOptions& options, const Session& session) {
  llvm::Expected<PlanInputs> inputs = resolvePlanInputs(options.workload, options.arch, options.plan, session);
  if (!inputs) return inputs.takeError();
  llvm::Expected<PlanGraph> graph = inputs->plan();
  if (!graph) return graph.takeError();
  llvm::Expected<std::vector<KernelKind>> kinds = kernelsOf(*graph, options.step);
  if (!kinds) return kinds.takeError();

  std::vector<Specialization> units;
  for (const KernelKind kind : *kinds)
    units.push_back(specialize(kind, graph->workload, graph->target, graph->choices.configs));
  if (!options.output.empty())
    if (llvm::Error error = writeUnits(options, units)) return error;
  if (options.json)
    session.print(jsonOf(options, units));
  else if (options.output.empty())
    printUnits(options, units, session);
  else
    printList(options, units, session);
  return ExitCode::Ok;
}

} // namespace

void lathe::cli::addEmitVerb(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("emit", "Print the CUDA sources generated for a workload");
  const auto options = std::make_shared<EmitOptions>();
  addStepOption(*verb, options->step);
  verb->add_flag("--flat", options->flat, "Each source as one file without includes, which nvcc compiles as it is");
  verb->add_option("--output", options->output, "Write files into a folder in place of printing")
      ->type_name("DIR")
      ->group("Output");
  addJsonFlag(*verb, options->json);
  addArchOption(*verb, options->arch);
  options->plan.addTo(*verb);
  options->workload.addTo(*verb);
  verb->footer("Needs no GPU when --arch is given.\n\n"
               "Examples:\n"
               "  lathe emit --model llama-3-8b --arch sm_90a --step logits\n"
               "  lathe emit --model llama-3-8b --arch sm_80 --flat --output sources");
  setAction(*verb, action, options, emitSources);
}
