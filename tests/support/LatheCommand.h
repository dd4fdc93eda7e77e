//===- tests/support/LatheCommand.h - The command for tests -----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "tests/support/RunCommand.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Process.h"

namespace lathe::test {

using Words = std::vector<std::string>;

/// The command in surroundings of its own: a scratch cache, and no GPU even where there is one.
class Lathe {
public:
  CommandResult operator()(const Words& arguments) const {
    // Of two values of a variable the first counts.
    Words environment = extra_;
    environment.push_back("LATHE_CACHE_DIR=" + cacheDir());
    environment.push_back("LATHE_LIBCUDA=/nonexistent/libcuda.so.1");
    for (const char* name : {"PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "LATHE_NVRTC"})
      if (const auto value = llvm::sys::Process::GetEnv(name)) environment.push_back(name + ("=" + *value));
    return runCommand(LATHE_CLI, arguments, environment);
  }

  /// Sets one more variable.
  void set(const std::string& variable) { extra_.push_back(variable); }
  std::string cacheDir() const { return scratch_.file("cache"); }
  std::string file(llvm::StringRef name) const { return scratch_.file(name); }

private:
  ScratchFolder scratch_;
  Words extra_;
};

/// Output that must be JSON.
inline llvm::json::Value parsed(const std::string& text) {
  llvm::Expected<llvm::json::Value> value = llvm::json::parse(text);
  if (!value) FAIL(llvm::toString(value.takeError()) << "\n" << text);
  return std::move(*value);
}

inline const llvm::json::Array& arrayIn(const llvm::json::Value& object, llvm::StringRef name) {
  REQUIRE(object.getAsObject());
  const llvm::json::Array* array = object.getAsObject()->getArray(name);
  REQUIRE(array);
  return *array;
}

inline std::string textIn(const llvm::json::Value& object, llvm::StringRef name) {
  REQUIRE(object.getAsObject());
  const auto text = object.getAsObject()->getString(name);
  REQUIRE(text);
  return text->str();
}

inline double numberIn(const llvm::json::Value& object, llvm::StringRef name) {
  REQUIRE(object.getAsObject());
  const auto number = object.getAsObject()->getNumber(name);
  REQUIRE(number);
  return *number;
}

/// The command line is wrong in a way that the message tells: nothing on standard output, one line on standard error.
inline void checkUsage(const CommandResult& result, const std::string& message) {
  CAPTURE(result.err);
  CHECK(result.exitCode == 2);
  CHECK(result.out.empty());
  CHECK_THAT(result.err, Catch::StartsWith("lathe: error: ") && Catch::Contains(message));
  CHECK(llvm::StringRef(result.err).count('\n') == 1);
}

inline Words operator+(Words left, const Words& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

} // namespace lathe::test
