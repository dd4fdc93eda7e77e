//===- tuning/Worker.h - The process that measures --------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/api/RuntimeImplementation.h"

namespace lathe {

/// Answers requests from the descriptor `in` on the descriptor `out` until `in` ends; see WorkerProtocol.h. The error
/// was sent as well.
llvm::Error serveWorker(Runtime::Implementation& runtime, int in, int out);

/// Asks the system to kill this process when its parent, which is `parent`, ends. A worker whose device hangs would
/// never notice the end of its pipe.
void endWithParent(int parent);

} // namespace lathe
