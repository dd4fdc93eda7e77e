//===- tuning/LinePipe.cpp - Lines over pipes -------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tuning/LinePipe.h"

#include "tuning/WorkerProtocol.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <poll.h>
#include <unistd.h>

using namespace lathe;

namespace {

llvm::Error ioError(const char* what) {
  return makeError(ErrorCode::Io, "cannot {0} the pipe of a worker: {1}", what,
                   std::error_code(errno, std::generic_category()).message());
}

} // namespace

llvm::Expected<std::optional<std::string>> LinePipe::read(std::optional<double> seconds, LineEnd& end) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  while (true) {
    if (const size_t at = rest_.find('\n'); at != std::string::npos) {
      std::string line = rest_.substr(0, at);
      rest_.erase(0, at + 1);
      return std::optional(std::move(line));
    }
    if (rest_.size() > kLongestLine)
      return makeError(ErrorCode::Corrupt, "a worker sent more than {0} bytes without an end of line", kLongestLine);
    int wait = -1;
    if (seconds) {
      const double left = *seconds - std::chrono::duration<double>(Clock::now() - begin).count();
      if (left <= 0) {
        end = LineEnd::TimedOut;
        return std::optional<std::string>();
      }
      wait = static_cast<int>(std::min(left * 1000 + 1, 1e6));
    }
    pollfd entry{in_, POLLIN, 0};
    const int ready = ::poll(&entry, 1, wait);
    if (ready < 0 && errno != EINTR) return ioError("wait for");
    if (ready <= 0) continue;
    char buffer[4096];
    const ssize_t got = ::read(in_, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ioError("read");
    if (got == 0) {
      end = LineEnd::Closed;
      return std::optional<std::string>();
    }
    rest_.append(buffer, static_cast<size_t>(got));
  }
}

llvm::Error LinePipe::write(llvm::StringRef line) const {
  const std::string bytes = (line + "\n").str();
  for (llvm::StringRef left = bytes; !left.empty();) {
    const ssize_t written = ::write(out_, left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ioError("write");
    left = left.drop_front(static_cast<size_t>(written));
  }
  return llvm::Error::success();
}
