//===- cli/WorkItems.cpp - Workloads to go through -------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/WorkItems.h"

#include "cli/Models.h"
#include "generator/Workload.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace lathe;
using namespace lathe::cli;

namespace {

llvm::Expected<Workload> workloadOfModel(llvm::StringRef name) {
  llvm::Expected<Model> model = findModel(name);
  if (!model) return model.takeError();
  return Workload{.hidden = model->hidden, .vocab = model->vocab, .softcap = model->softcap.has_value()};
}

llvm::Expected<std::vector<WorkItem>> readList(const std::string& path) {
  llvm::Expected<std::string> text = readText("the workload list", path);
  if (!text) return text.takeError();
  llvm::Expected<std::vector<WorkItem>> items = parseWorkloadList(*text, workloadOfModel);
  if (items) return items;
  const ErrorSummary summary = takeSummary(items.takeError());
  return makeError(summary.code, "{0}: {1}", path, summary.message);
}

} // namespace

llvm::Expected<std::string> lathe::cli::readText(const char* what, const std::string& path) {
  llvm::sys::fs::file_status status;
  // Some devices never end.
  if (path != "-" && !llvm::sys::fs::status(path, status) &&
      (status.type() == llvm::sys::fs::file_type::character_file ||
       status.type() == llvm::sys::fs::file_type::block_file))
    return makeError(ErrorCode::Io, "cannot read {0} {1}: it is a device, not a file", what, path);
  llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> buffer = llvm::MemoryBuffer::getFileOrSTDIN(path);
  if (!buffer) return makeError(ErrorCode::Io, "cannot read {0} {1}: {2}", what, path, buffer.getError().message());
  return (*buffer)->getBuffer().str();
}

llvm::Expected<std::vector<WorkItem>> lathe::cli::workItems(const std::string& list, const WorkloadOptions& options) {
  if (list.empty()) {
    llvm::Expected<WorkloadInput> input = options.resolve();
    if (!input) return input.takeError();
    const std::string name = workloadDigest(input->workload).hex().substr(0, 12);
    return std::vector<WorkItem>{{name, input->workload, input->shape}};
  }
  if (const std::string given = options.firstGiven(); !given.empty())
    return makeError(ErrorCode::InvalidArgument, "{0} is for a single workload; the list {1} says all of that itself",
                     given, list);
  return readList(list);
}
