// SPDX-License-Identifier: Apache-2.0
// The options of every command that opens an engine, and the opening itself with its progress and
// summary.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "switchyard/engine.h"

#include "cli/terminal.h"

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

  void declare(CLI::App& app);
};

/// Opens the engine: log sink, progress, and the summary when it is ready.
Result<std::unique_ptr<Engine>> open_engine(const ModelOptions& options);

/// The one table that says what was loaded.
std::string summary_text(const ModelSummary& summary, const EngineOptions& options,
                         const Look& look);

}  // namespace switchyard::cli
