// SPDX-License-Identifier: Apache-2.0
// The report after a run: which experts worked, and where the time went.
#pragma once
#include <string>
#include <vector>

#include "switchyard/engine.h"

#include "cli/terminal.h"

namespace switchyard::cli {

/// Per MoE layer: experts touched and imbalance (hottest over mean) over the run and per step, and
/// the busiest experts. Empty when the model has no MoE layer or nothing ran.
std::string expert_report(const EngineStats& stats, const Look& look);

/// A prompt and where its tokens went.
struct PromptExperts {
  std::string prompt;  ///< printable
  const RequestMoe* moe = nullptr;
};

/// The busiest experts of each prompt, in the layer where the prompts differ most. Empty for one
/// prompt.
std::string prompt_report(const std::vector<PromptExperts>& prompts, const Look& look);

/// Time by phase; empty when phases were not summed.
std::string phase_report(const EngineStats& stats, const Look& look);

/// Time by layer and phase, in milliseconds a step; empty when phases were not summed.
std::string layer_phase_report(const EngineStats& stats, const Look& look);

}  // namespace switchyard::cli
