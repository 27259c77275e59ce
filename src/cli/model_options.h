// SPDX-License-Identifier: Apache-2.0
// The options of every command that opens an engine, and the opening itself with its progress and
// summary.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "switchyard/engine.h"

#include "cli/terminal.h"
#include "model/capacity_limit.h"

namespace CLI {
class App;
}

namespace switchyard::cli {

/// Events that a Chrome trace keeps: about a minute of a small model.
inline constexpr int64_t kChromeTraceEvents = 1'000'000;

struct ModelOptions {
  EngineOptions engine;
  std::string dtype = "bf16";
  bool quiet = false;    ///< nothing on standard error but errors
  bool verbose = false;  ///< the library's debug messages too
  /// Gets every message as a line of JSON, and nobody the summary; empty: standard error gets text.
  std::function<void(std::string)> json_lines;

  void declare(CLI::App& app);
  /// Parts of it, for commands that have no use for the rest: the model, its arithmetic and its
  /// steps; how an expert over its capacity drops picks.
  void declare_model(CLI::App& app);
  void declare_capacity_rules(CLI::App& app);
  /// After declare(): a geometry's name may stand instead of the folder.
  void declare_random(CLI::App& app);

  /// What was given, as the engine wants it.
  EngineOptions engine_options() const;
  model::CapacityLimit capacity_limit(float factor) const;
  /// The library's messages go to standard error from now on.
  void install_log() const;
};

/// Opens the engine: log sink, progress, and the summary when it is ready.
Result<std::unique_ptr<Engine>> open_engine(const ModelOptions& options);

/// The one table that says what was loaded.
std::string summary_text(const ModelSummary& summary, const EngineOptions& options,
                         const Look& look);

}  // namespace switchyard::cli
