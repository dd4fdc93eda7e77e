//===- cli/Verbs.h - The verbs of the lathe command ------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "cli/Session.h"

namespace lathe::cli {

/// Each adds one verb to `app`; parsing a command line that has the verb sets `action`, which must outlive `app`.
void addRunVerb(CLI::App& app, Action& action);
void addVerifyVerb(CLI::App& app, Action& action);
void addPlanVerb(CLI::App& app, Action& action);
void addEmitVerb(CLI::App& app, Action& action);
void addInspectVerb(CLI::App& app, Action& action);
void addExplainVerb(CLI::App& app, Action& action);
void addCompileVerb(CLI::App& app, Action& action);
void addTuneVerb(CLI::App& app, Action& action);
void addBenchVerb(CLI::App& app, Action& action);
void addCacheVerb(CLI::App& app, Action& action);
void addDoctorVerb(CLI::App& app, Action& action);
/// `app` must outlive the action as well: its definitions are what is completed.
void addCompletionVerb(CLI::App& app, Action& action);
void addManVerb(CLI::App& app, Action& action);

} // namespace lathe::cli
