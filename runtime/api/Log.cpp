//===- runtime/api/Log.cpp - Where warnings go ------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/api/Log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_color_sinks.h>

using namespace lathe;

std::shared_ptr<spdlog::logger> lathe::makeLogger(const Environment& environment) {
  const auto mode = environment.noColor ? spdlog::color_mode::never : spdlog::color_mode::automatic;
  auto logger = std::make_shared<spdlog::logger>("lathe", std::make_shared<spdlog::sinks::stderr_color_sink_mt>(mode));
  logger->set_pattern("%n: %^%l%$: %v");
  logger->set_level(spdlog::level::from_str(environment.logLevel));
  for (const std::string& warning : environment.warnings) logger->warn(warning);
  return logger;
}
