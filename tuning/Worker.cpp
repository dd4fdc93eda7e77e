//===- tuning/Worker.cpp - The process that measures ------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tuning/Worker.h"

#include "generator/CanonicalJson.h"
#include "tuning/LinePipe.h"
#include "tuning/WorkerProtocol.h"

#include <csignal>
#include <sys/prctl.h>
#include <unistd.h>

using namespace lathe;

namespace {

/// Answers one tuner.
class Server {
public:
  explicit Server(Runtime::Implementation& runtime) : runtime_(runtime) {}

  llvm::Expected<llvm::json::Value> answer(llvm::StringRef line) {
    llvm::Expected<llvm::json::Value> json = parseJson(line);
    if (!json) return json.takeError();
    const llvm::json::Object* object = json->getAsObject();
    const llvm::StringRef op = object ? object->getString("op").value_or("") : "";
    if (op == "open") return open(*json);
    if (op == "visit" && measurer_) return visit(*json);
    return makeError(ErrorCode::InvalidArgument, "a worker was asked for \"{0}\", which it cannot do {1}", op,
                     measurer_ ? "" : "before it is opened");
  }

private:
  llvm::Expected<llvm::json::Value> open(const llvm::json::Value& json) {
    llvm::Expected<WorkerOpen> request = parseWorkerOpen(json);
    if (!request) return request.takeError();
    llvm::Expected<std::unique_ptr<DeviceMeasurer>> opened =
        DeviceMeasurer::open(runtime_, request->set, request->first);
    if (!opened) return opened.takeError();
    measurer_ = std::move(*opened);
    return toJson(WorkerReady{measurer_->setting(), measurer_->driverRelease()});
  }

  llvm::Expected<llvm::json::Value> visit(const llvm::json::Value& json) {
    llvm::Expected<VisitRequest> request = parseVisitRequest(json);
    if (!request) return request.takeError();
    llvm::Expected<Visit> seen = measurer_->visit(*request);
    if (!seen) return seen.takeError();
    return toJson(*seen);
  }

  Runtime::Implementation& runtime_;
  std::unique_ptr<DeviceMeasurer> measurer_;
};

} // namespace

void lathe::endWithParent(int parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // It may have ended before.
  if (::getppid() != parent) ::_exit(1);
}

llvm::Error lathe::serveWorker(Runtime::Implementation& runtime, int in, int out) {
  LinePipe pipe(in, out);
  Server server(runtime);
  while (true) {
    LineEnd end{};
    llvm::Expected<std::optional<std::string>> line = pipe.read(std::nullopt, end);
    if (!line) return line.takeError();
    if (!*line) return llvm::Error::success();
    llvm::Expected<llvm::json::Value> answer = server.answer(**line);
    if (!answer) {
      const ErrorSummary summary = takeSummary(answer.takeError());
      const llvm::json::Value reply =
          llvm::json::Object{{"error", summary.message}, {"code", static_cast<int64_t>(summary.code)}};
      if (llvm::Error error = pipe.write(llvm::formatv("{0}", reply).str())) return error;
      return makeError(summary.code, "{0}", summary.message);
    }
    if (llvm::Error error = pipe.write(llvm::formatv("{0}", *answer).str())) return error;
  }
}
