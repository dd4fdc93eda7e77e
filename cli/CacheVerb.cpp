//===- cli/CacheVerb.cpp - lathe cache -------------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/Text.h"
#include "cli/Verbs.h"
#include "generator/Config.h"
#include "runtime/cache/Bundle.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"

#include <ctime>
#include <iostream>
#include <unistd.h>

using namespace lathe;
using namespace lathe::cli;

namespace {

struct CacheOptions {
  std::string cacheDir;
  std::string prefix;
  bool source = false;
  bool repair = false;
  std::optional<std::string> maxSize, maxAge;
  bool yes = false;
  std::vector<std::string> from;
  std::string bundle;
  std::string arch;
  bool json = false;
};

llvm::Expected<std::string> rootOf(const CacheOptions& options, const Session& session) {
  if (!options.cacheDir.empty()) return options.cacheDir;
  if (session.environment.cacheDir) return *session.environment.cacheDir;
  return makeError(ErrorCode::InvalidArgument, "there is no cache folder; give --cache-dir or set LATHE_CACHE_DIR");
}

/// `2026-03-01`
std::string dateText(int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  char text[16] = {};
  if (!gmtime_r(&time, &parts) || std::strftime(text, sizeof(text), "%Y-%m-%d", &parts) == 0) return "?";
  return text;
}

/// What the entry's .json says, without a look at the cubin.
llvm::Expected<KernelRecord> recordOf(const std::string& root, const CacheEntry& entry) {
  const std::string path = entry.folder(root) + "/" + entry.hex + ".json";
  llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> buffer = llvm::MemoryBuffer::getFile(path);
  if (!buffer) return makeError(ErrorCode::Io, "cannot read {0}: {1}", path, buffer.getError().message());
  return KernelRecord::parse((*buffer)->getBuffer());
}

llvm::json::Object jsonOf(const CacheEntry& entry) {
  return llvm::json::Object{{"workload", entry.workload.text()},
                            {"arch", entry.arch},
                            {"kernel_digest", "sha256:" + entry.hex},
                            {"bytes", static_cast<int64_t>(entry.bytes)},
                            {"last_used", dateText(entry.lastUsed)}};
}

llvm::json::Value jsonOf(const Removed& removed) {
  return llvm::json::Object{{"removed", removed.entries}, {"bytes", static_cast<int64_t>(removed.bytes)}};
}

void printRemoved(const CacheOptions& options, const Removed& removed, const Session& session) {
  if (options.json)
    session.print(jsonOf(removed));
  else
    session.out << "removed " << removed.entries << " kernels, " << bytesText(static_cast<double>(removed.bytes))
                << '\n';
}

//===-- ls and show -------------------------------------------------------===//

void printEntries(const std::string& root, const std::vector<CacheEntry>& entries, const Session& session) {
  using enum Table::Align;
  Table table({{"kernel"}, {"step"}, {"arch"}, {"workload"}, {"size", Right}, {"last used"}});
  double bytes = 0;
  for (const CacheEntry& entry : entries) {
    llvm::Expected<KernelRecord> record = recordOf(root, entry);
    Cell step = record ? Cell(record->kind) : Cell("damaged", Tone::Bad);
    if (!record) llvm::consumeError(record.takeError());
    bytes += static_cast<double>(entry.bytes);
    table.add({entry.hex.substr(0, 12), std::move(step), entry.arch, entry.workload.hex().substr(0, 12),
               bytesText(static_cast<double>(entry.bytes)), dateText(entry.lastUsed)});
  }
  if (!table.empty()) session.print(table);
  session.out << entries.size() << " kernels, " << bytesText(bytes) << " in " << root << '\n';
}

llvm::Expected<ExitCode> list(const CacheOptions& options, const Session& session) {
  llvm::Expected<std::string> root = rootOf(options, session);
  if (!root) return root.takeError();
  const std::vector<CacheEntry> entries = listCache(*root);
  if (!options.json) {
    printEntries(*root, entries, session);
    return ExitCode::Ok;
  }
  llvm::json::Array array;
  for (const CacheEntry& entry : entries) {
    llvm::json::Object object = jsonOf(entry);
    if (llvm::Expected<KernelRecord> record = recordOf(*root, entry))
      object["kernel"] = record->kind;
    else
      object["error"] = llvm::toString(record.takeError());
    array.push_back(std::move(object));
  }
  session.print(llvm::json::Object{{"root", *root}, {"entries", std::move(array)}});
  return ExitCode::Ok;
}

Cell configCell(const llvm::json::Value& json) {
  llvm::Expected<Config> config = parseConfig(json);
  return config ? Cell(toString(*config)) : Cell(llvm::toString(config.takeError()), Tone::Bad);
}

void printRecord(const std::string& root, const CacheEntry& entry, const KernelRecord& record, const Session& session) {
  Properties properties;
  properties.add("kernel", record.kernelDigest.text());
  properties.add("source", record.sourceDigest.text());
  properties.add("workload", entry.workload.text());
  properties.add("step", record.kind);
  properties.add("entry", record.entry);
  properties.add("arch", record.arch);
  if (record.config) properties.add("config", configCell(*record.config));
  properties.add("NVRTC", record.nvrtcVersion);
  properties.add("options", llvm::join(record.compileOptions, " "));
  properties.add("threads", std::to_string(record.threads));
  properties.add("registers", std::to_string(record.registers));
  properties.add("static shared", bytesText(static_cast<double>(record.staticSharedBytes)));
  properties.add("dynamic shared", bytesText(static_cast<double>(record.dynamicSharedBytes)));
  properties.add("local", bytesText(static_cast<double>(record.localBytes)));
  properties.add("cubin", bytesText(static_cast<double>(record.cubinBytes)));
  properties.add("compiled in", timeText(record.compileMilliseconds));
  properties.add("created", record.created + " by lathe " + record.latheVersion);
  properties.add("last used", dateText(entry.lastUsed));
  properties.add("files", entry.folder(root) + "/" + entry.hex + ".{cubin,cu,json}");
  session.print(properties);
}

llvm::Expected<ExitCode> show(const CacheOptions& options, const Session& session) {
  llvm::Expected<std::string> root = rootOf(options, session);
  if (!root) return root.takeError();
  llvm::Expected<CacheEntry> entry = findEntry(*root, options.prefix);
  if (!entry) return entry.takeError();
  llvm::Expected<CachedKernel> kernel = readEntry(entry->folder(*root), entry->hex, /*withSource=*/true);
  if (!kernel) return kernel.takeError();
  if (options.json) {
    llvm::json::Object object = jsonOf(*entry);
    object["record"] = kernel->record.toJson();
    object["folder"] = entry->folder(*root);
    if (options.source) object["source"] = kernel->source;
    session.print(std::move(object));
  } else if (options.source) {
    session.out << kernel->source;
  } else {
    printRecord(*root, *entry, kernel->record, session);
  }
  return ExitCode::Ok;
}

//===-- verify, prune, clear, merge ---------------------------------------===//

/// What became of the damaged kernels, to follow their number.
std::string repairText(const CacheOptions& options, size_t damaged, size_t setAside) {
  if (damaged == 0) return "";
  if (!options.repair) return "; --repair sets them aside";
  if (setAside == damaged) return ", set aside";
  return llvm::formatv(", {0} of them set aside", setAside);
}

llvm::Expected<ExitCode> verify(const CacheOptions& options, const Session& session) {
  llvm::Expected<std::string> root = rootOf(options, session);
  if (!root) return root.takeError();
  const size_t checked = listCache(*root).size();
  const std::vector<DamagedEntry> damaged = verifyCache(*root, options.repair);
  const auto setAside = static_cast<size_t>(llvm::count_if(damaged, [](const auto& one) { return one.isSetAside; }));
  llvm::json::Array array;
  Table table({{"kernel"}, {"arch"}, {"workload"}, {"what is wrong"}});
  for (const DamagedEntry& one : damaged) {
    table.add({one.entry.hex.substr(0, 12), one.entry.arch, one.entry.workload.hex().substr(0, 12),
               Cell(one.reason, Tone::Bad)});
    llvm::json::Object object = jsonOf(one.entry);
    object["reason"] = one.reason;
    object["set_aside"] = one.isSetAside;
    array.push_back(std::move(object));
  }
  if (options.json) {
    session.print(llvm::json::Object{
        {"checked", static_cast<int64_t>(checked)}, {"damaged", std::move(array)}, {"repaired", options.repair}});
  } else {
    if (!table.empty()) session.print(table);
    session.out << "checked " << checked << " kernels, " << damaged.size() << " damaged"
                << repairText(options, damaged.size(), setAside) << '\n';
  }
  return setAside == damaged.size() ? ExitCode::Ok : ExitCode::CheckFailed;
}

llvm::Expected<PruneLimits> limitsOf(const CacheOptions& options, const Session& session) {
  PruneLimits limits;
  if (options.maxSize) {
    llvm::Expected<int64_t> bytes = parseBytes("--max-size", *options.maxSize);
    if (!bytes) return bytes.takeError();
    limits.maxBytes = static_cast<uint64_t>(*bytes);
  }
  if (options.maxAge) {
    llvm::Expected<int64_t> seconds = parseAge("--max-age", *options.maxAge);
    if (!seconds) return seconds.takeError();
    limits.maxAgeSeconds = *seconds;
  }
  if (!options.maxSize && !options.maxAge) limits.maxBytes = session.environment.cacheMaxBytes;
  if (!limits.maxBytes && !limits.maxAgeSeconds)
    return makeError(ErrorCode::InvalidArgument,
                     "there is no limit to prune to; give --max-size or --max-age, or set LATHE_CACHE_MAX_SIZE");
  return limits;
}

llvm::Expected<ExitCode> prune(const CacheOptions& options, const Session& session) {
  llvm::Expected<std::string> root = rootOf(options, session);
  if (!root) return root.takeError();
  llvm::Expected<PruneLimits> limits = limitsOf(options, session);
  if (!limits) return limits.takeError();
  printRemoved(options, pruneCache(*root, *limits), session);
  return ExitCode::Ok;
}

/// Asks on the terminal.
bool confirmed(const std::string& root, const Session& session) {
  session.err << "Remove all " << listCache(root).size() << " kernels in " << root << "? [y/N] ";
  session.err.flush();
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "yes";
}

llvm::Expected<ExitCode> clear(const CacheOptions& options, const Session& session) {
  llvm::Expected<std::string> root = rootOf(options, session);
  if (!root) return root.takeError();
  if (!options.yes && !isatty(STDIN_FILENO))
    return makeError(ErrorCode::InvalidArgument, "this would remove all kernels in {0}; add --yes if that is meant",
                     *root);
  if (!options.yes && !confirmed(*root, session)) {
    session.note("nothing was removed");
    return ExitCode::Ok;
  }
  printRemoved(options, clearCache(*root), session);
  return ExitCode::Ok;
}

llvm::Expected<ExitCode> merge(const CacheOptions& options, const Session& session) {
  llvm::Expected<std::string> root = rootOf(options, session);
  if (!root) return root.takeError();
  using enum Table::Align;
  Table table({{"from"}, {"added", Right}, {"already there", Right}, {"damaged", Right}});
  llvm::json::Array array;
  for (const std::string& from : options.from) {
    llvm::Expected<Merged> merged = mergeCache(*root, from);
    if (!merged) return merged.takeError();
    table.add({from, std::to_string(merged->added), std::to_string(merged->kept),
               Cell(std::to_string(merged->refused), merged->refused > 0 ? Tone::Bad : Tone::Plain)});
    array.push_back(llvm::json::Object{
        {"from", from}, {"added", merged->added}, {"kept", merged->kept}, {"refused", merged->refused}});
  }
  if (options.json)
    session.print(llvm::json::Object{{"root", *root}, {"merged", std::move(array)}});
  else
    session.print(table);
  return ExitCode::Ok;
}

//===-- export and import -------------------------------------------------===//

llvm::Expected<ExitCode> exportTo(const CacheOptions& options, const Session& session) {
  llvm::Expected<std::string> root = rootOf(options, session);
  if (!root) return root.takeError();
  llvm::Expected<Exported> exported = exportBundle(*root, options.bundle, options.arch);
  if (!exported) return exported.takeError();
  if (options.json)
    session.print(llvm::json::Object{{"root", *root},
                                     {"bundle", options.bundle},
                                     {"kernels", exported->kernels},
                                     {"results", exported->results},
                                     {"refused", exported->refused},
                                     {"bytes", static_cast<int64_t>(exported->bytes)}});
  else
    session.out << exported->kernels << " kernels and " << exported->results << " tuning results, "
                << bytesText(static_cast<double>(exported->bytes)) << " in " << options.bundle << '\n';
  if (exported->refused > 0)
    session.note(llvm::formatv("{0} damaged entries were left out; see lathe cache verify", exported->refused).str());
  return ExitCode::Ok;
}

llvm::Expected<ExitCode> importFrom(const CacheOptions& options, const Session& session) {
  llvm::Expected<std::string> root = rootOf(options, session);
  if (!root) return root.takeError();
  llvm::Expected<Merged> merged = importBundle(*root, options.bundle);
  if (!merged) return merged.takeError();
  if (options.json)
    session.print(llvm::json::Object{
        {"root", *root}, {"bundle", options.bundle}, {"added", merged->added}, {"kept", merged->kept}});
  else
    session.out << merged->added << " kernels added, " << merged->kept << " already there, in " << *root << '\n';
  return ExitCode::Ok;
}

CLI::App* addCommand(CLI::App& verb, Action& action, const char* name, const char* description,
                     const std::shared_ptr<CacheOptions>& options,
                     llvm::Expected<ExitCode> (*function)(const CacheOptions&, const Session&)) {
  CLI::App* command = verb.add_subcommand(name, description);
  command->add_option("--cache-dir", options->cacheDir, "The cache (default: that of the environment)")
      ->type_name("DIR");
  addJsonFlag(*command, options->json);
  setAction(*command, action, options, function);
  return command;
}

} // namespace

void lathe::cli::addCacheVerb(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("cache", "Look after the compiled kernels on disk");
  verb->require_subcommand(1);
  const auto options = std::make_shared<CacheOptions>();
  addCommand(*verb, action, "ls", "List the kernels", options, list);
  CLI::App* showing = addCommand(*verb, action, "show", "Show one kernel", options, show);
  showing->add_option("prefix", options->prefix, "First digits of the kernel's digest")->required();
  showing->add_flag("--source", options->source, "Print the CUDA source that it was compiled from");
  CLI::App* verifying =
      addCommand(*verb, action, "verify", "Check every kernel; the exit code is 1 if one is damaged", options, verify);
  verifying->add_flag("--repair", options->repair, "Set damaged kernels aside, so that they are compiled anew");
  CLI::App* pruning = addCommand(*verb, action, "prune", "Remove kernels that were not used for long", options, prune);
  pruning->add_option("--max-size", options->maxSize, "Keep no more than this, such as 2G")->type_name("SIZE");
  pruning->add_option("--max-age", options->maxAge, "Remove what was not used for this long, such as 30d")
      ->type_name("TIME");
  CLI::App* clearing = addCommand(*verb, action, "clear", "Remove all kernels", options, clear);
  clearing->add_flag("--yes", options->yes, "Do not ask");
  CLI::App* merging =
      addCommand(*verb, action, "merge", "Copy kernels and tuning results from other caches", options, merge);
  merging->add_option("from", options->from, "Roots of other caches")->type_name("DIR")->required();
  CLI::App* exporting =
      addCommand(*verb, action, "export", "Write kernels and tuning results to one file", options, exportTo);
  exporting->add_option("bundle", options->bundle, "The file to write")->type_name("FILE")->required();
  exporting->add_option("--arch", options->arch, "Only those for this GPU, such as sm_90a (default: all)")
      ->type_name("ARCH");
  CLI::App* importing =
      addCommand(*verb, action, "import", "Check such a file and add what is in it", options, importFrom);
  importing->add_option("bundle", options->bundle, "The file to read")->type_name("FILE")->required();
  verb->footer("Examples:\n"
               "  lathe cache ls\n"
               "  lathe cache show 3fa2 --source\n"
               "  lathe cache prune --max-size 2G --max-age 30d\n"
               "  lathe cache merge /mnt/shared/lathe --cache-dir ~/.cache/lathe\n"
               "  lathe cache export kernels.tar --arch sm_90a\n"
               "  lathe cache import kernels.tar --cache-dir /opt/app/kernels");
}
