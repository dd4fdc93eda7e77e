//===- runtime/api/Log.h - Where warnings go --------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "runtime/cache/Environment.h"

#include <memory>

namespace spdlog {
class logger;
}

namespace lathe {

/// A logger to standard error at the environment's level. It belongs to whoever asked: there is no global one.
std::shared_ptr<spdlog::logger> makeLogger(const Environment& environment);

} // namespace lathe
