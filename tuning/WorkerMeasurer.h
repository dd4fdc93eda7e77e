//===- tuning/WorkerMeasurer.h - Measuring in a process apart ---*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "tuning/BackgroundCompiler.h"
#include "tuning/LinePipe.h"
#include "tuning/WorkerProtocol.h"

namespace lathe {

/// How to start a worker.
struct WorkerCommand {
  std::string program;
  std::vector<std::string> arguments;
  /// Seconds that a visit may take, and the start: it makes inputs and compiles.
  double visitSeconds = 15;
  double openSeconds = 300;
};

/// A running worker, killed at the end.
class WorkerProcess {
public:
  /// From the first start on this process ignores SIGPIPE: a worker that died is an error of a write.
  static llvm::Expected<std::unique_ptr<WorkerProcess>> start(const WorkerCommand& command);
  ~WorkerProcess();

  /// What came of a request: an answer, or why there is none, after which the worker is of no use.
  struct Reply {
    std::optional<llvm::json::Value> answer;
    std::string failure;
  };
  Reply ask(const llvm::json::Value& request, double seconds);

private:
  WorkerProcess(int pid, int in, int out) : pid_(pid), in_(in), out_(out), pipe_(in, out) {}

  /// Waits for the end of the process, for at most a second; `it ended by signal 11`.
  std::string describeEnd();

  int pid_;
  int in_;
  int out_;
  bool ended_ = false;
  LinePipe pipe_;
};

/// Measures candidates in a worker. One that does not answer in time is killed, and so much for its candidate; the next
/// visit starts another. Kernels are compiled here, and reach the worker through the cache on disk; without one it
/// compiles them itself.
class WorkerMeasurer : public Measurer {
public:
  /// Starts the first worker. `runtime` must outlive this.
  static llvm::Expected<std::unique_ptr<WorkerMeasurer>> open(Runtime::Implementation& runtime, WorkerCommand command,
                                                              const WorkerOpen& open, const Target& target);

  void prepare(llvm::ArrayRef<VisitRequest> candidates) override;
  llvm::Expected<Visit> visit(const VisitRequest& request) override;

  const WorkerReady& ready() const { return ready_; }
  /// Workers that were started so far.
  int starts() const { return starts_; }

private:
  WorkerMeasurer(Runtime::Implementation& runtime, WorkerCommand command, WorkerOpen open, Target target);

  llvm::Error startWorker();
  llvm::Expected<PlanGraph> graphOf(const PlanChoices& choices) const;

  WorkerCommand command_;
  WorkerOpen open_;
  Target target_;
  WorkerReady ready_;
  int starts_ = 0;
  std::unique_ptr<WorkerProcess> process_;
  /// None where there is no cache on disk.
  std::optional<BackgroundCompiler> compiler_;
};

} // namespace lathe
