//===- tuning/WorkerMeasurer.cpp - Measuring in a process apart ------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tuning/WorkerMeasurer.h"

#include "generator/CanonicalJson.h"

#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

extern char** environ;

using namespace lathe;

namespace {

llvm::Error startError(llvm::StringRef what, int code) {
  return makeError(ErrorCode::Io, "cannot {0}: {1}", what, std::error_code(code, std::generic_category()).message());
}

/// Two ends of a pipe that no child inherits, closed at the end unless taken.
struct Pipe {
  int ends[2] = {-1, -1};

  Pipe() = default;
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    for (const int end : ends)
      if (end >= 0) ::close(end);
  }
  int take(int index) { return std::exchange(ends[index], -1); }
};

} // namespace

llvm::Expected<std::unique_ptr<WorkerProcess>> WorkerProcess::start(const WorkerCommand& command) {
  // The write to a worker that died is to fail, not to end this process.
  ::signal(SIGPIPE, SIG_IGN);
  Pipe requests, answers;
  if (::pipe2(requests.ends, O_CLOEXEC) != 0 || ::pipe2(answers.ends, O_CLOEXEC) != 0)
    return startError("make a pipe for a worker", errno);
  std::vector<char*> words;
  words.push_back(const_cast<char*>(command.program.c_str()));
  for (const std::string& argument : command.arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, requests.ends[0], STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, answers.ends[1], STDOUT_FILENO);
  pid_t pid = 0;
  const int code = ::posix_spawn(&pid, command.program.c_str(), &actions, nullptr, words.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (code != 0) return startError("start the worker " + command.program, code);
  return std::unique_ptr<WorkerProcess>(new WorkerProcess(pid, answers.take(0), requests.take(1)));
}

WorkerProcess::~WorkerProcess() {
  ::close(out_);
  ::close(in_);
  if (ended_) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::string WorkerProcess::describeEnd() {
  int status = 0;
  for (int attempt = 0; attempt < 100; ++attempt) {
    const pid_t done = ::waitpid(pid_, &status, WNOHANG);
    if (done == pid_) {
      ended_ = true;
      break;
    }
    if (done < 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (ended_ && WIFSIGNALED(status)) return llvm::formatv("it ended by signal {0}", WTERMSIG(status));
  if (ended_) return llvm::formatv("it ended with exit code {0}", WEXITSTATUS(status));
  return "it closed its pipe";
}

WorkerProcess::Reply WorkerProcess::ask(const llvm::json::Value& request, double seconds) {
  if (llvm::Error error = pipe_.write(llvm::formatv("{0}", request).str())) {
    llvm::consumeError(std::move(error));
    return {std::nullopt, "the process that measured it is gone: " + describeEnd()};
  }
  LineEnd end{};
  llvm::Expected<std::optional<std::string>> line = pipe_.read(seconds, end);
  if (!line) return {std::nullopt, takeSummary(line.takeError()).message};
  if (!*line && end == LineEnd::TimedOut)
    return {std::nullopt, llvm::formatv("it did not end within {0} s, and was killed", seconds)};
  if (!*line) return {std::nullopt, "the process that measured it is gone: " + describeEnd()};
  llvm::Expected<llvm::json::Value> json = parseJson(**line);
  if (!json) return {std::nullopt, "the answer of its worker is no JSON: " + takeSummary(json.takeError()).message};
  const llvm::json::Object* object = json->getAsObject();
  if (!object) return {std::nullopt, "the answer of its worker is no object"};
  if (const auto error = object->getString("error")) return {std::nullopt, error->str()};
  return {std::move(*json), ""};
}

WorkerMeasurer::WorkerMeasurer(Runtime::Implementation& runtime, WorkerCommand command, WorkerOpen open, Target target)
    : command_(std::move(command)), open_(std::move(open)), target_(target) {
  if (runtime.environment().cacheDir) compiler_.emplace(runtime);
}

llvm::Expected<std::unique_ptr<WorkerMeasurer>> WorkerMeasurer::open(Runtime::Implementation& runtime,
                                                                     WorkerCommand command, const WorkerOpen& open,
                                                                     const Target& target) {
  std::unique_ptr<WorkerMeasurer> measurer(new WorkerMeasurer(runtime, std::move(command), open, target));
  if (llvm::Error error = measurer->startWorker()) return error;
  return measurer;
}

llvm::Error WorkerMeasurer::startWorker() {
  llvm::Expected<std::unique_ptr<WorkerProcess>> started = WorkerProcess::start(command_);
  if (!started) return started.takeError();
  ++starts_;
  const WorkerProcess::Reply reply = (*started)->ask(toJson(open_), command_.openSeconds);
  if (!reply.answer) return makeError(ErrorCode::Driver, "a worker for measuring cannot start: {0}", reply.failure);
  llvm::Expected<WorkerReady> ready = parseWorkerReady(*reply.answer);
  if (!ready) return ready.takeError();
  if (starts_ > 1 && ready->setting != ready_.setting)
    return makeError(ErrorCode::Driver, "the device, driver or NVRTC changed while it was tuned; begin again");
  ready_ = std::move(*ready);
  process_ = std::move(*started);
  return llvm::Error::success();
}

llvm::Expected<PlanGraph> WorkerMeasurer::graphOf(const PlanChoices& choices) const {
  return buildPlan(open_.set.workload, open_.set.shape, target_, choices);
}

void WorkerMeasurer::prepare(llvm::ArrayRef<VisitRequest> candidates) {
  if (!compiler_) return;
  for (const VisitRequest& candidate : candidates) {
    llvm::Expected<PlanGraph> graph = graphOf(candidate.choices);
    // What is wrong with it shows when it is visited.
    if (graph)
      compiler_->submit(*graph);
    else
      llvm::consumeError(graph.takeError());
  }
}

llvm::Expected<Visit> WorkerMeasurer::visit(const VisitRequest& request) {
  Visit visit;
  llvm::Expected<PlanGraph> graph = graphOf(request.choices);
  if (!graph) {
    visit.failure = takeSummary(graph.takeError()).message;
    return visit;
  }
  if (compiler_) visit.failure = compiler_->wait(*graph);
  if (!visit.failure.empty()) return visit;
  if (!process_)
    if (llvm::Error error = startWorker()) return error;
  const WorkerProcess::Reply reply = process_->ask(toJson(request), command_.visitSeconds);
  if (reply.answer) {
    llvm::Expected<Visit> seen = parseVisit(*reply.answer);
    if (seen) return seen;
    visit.failure = takeSummary(seen.takeError()).message;
  } else {
    visit.failure = reply.failure;
  }
  // Whatever it was, the worker's context may be lost.
  process_.reset();
  return visit;
}
