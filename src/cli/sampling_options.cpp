// SPDX-License-Identifier: Apache-2.0
#include "cli/sampling_options.h"

#include <CLI/CLI.hpp>

namespace switchyard::cli {
namespace {

template <class T, class U>
void override_with(T& value, const std::optional<U>& given) {
  if (given) value = *given;
}

}  // namespace

void SamplingOptions::declare(CLI::App& app) {
  constexpr const char* kGroup = "Sampling (default: the model's generation_config.json)";
  app.add_option("-n,--max-tokens", max_tokens_, "New tokens at most")->group(kGroup);
  app.add_option("--min-tokens", min_tokens_, "No end of sequence before this many")->group(kGroup);
  auto* temperature = app.add_option("--temperature", temperature_, "0 is greedy")->group(kGroup);
  app.add_flag("--greedy", greedy_, "The same as --temperature 0")
      ->excludes(temperature)
      ->group(kGroup);
  app.add_option("--top-k", top_k_, "Keep the k likeliest tokens (0: all)")->group(kGroup);
  app.add_option("--top-p", top_p_, "Keep the fewest tokens that reach this probability")
      ->group(kGroup);
  app.add_option("--min-p", min_p_, "Keep tokens this likely relative to the likeliest")
      ->group(kGroup);
  app.add_option("--repetition-penalty", repetition_, "Of tokens seen in prompt and output")
      ->group(kGroup);
  app.add_option("--presence-penalty", presence_, "Once for tokens seen in the output")
      ->group(kGroup);
  app.add_option("--frequency-penalty", frequency_, "For each time seen in the output")
      ->group(kGroup);
  app.add_option("--seed", seed_, "Same seed, same text")->group(kGroup);
  app.add_option("--stop", stop_, "Text that ends the output; may be given several times")
      ->allow_extra_args(false)
      ->group(kGroup);
  app.add_flag("--ignore-eos", ignore_eos_, "Go on after the end of sequence")->group(kGroup);
}

SamplingParams SamplingOptions::apply(SamplingParams params) const {
  override_with(params.max_tokens, max_tokens_);
  override_with(params.min_tokens, min_tokens_);
  override_with(params.temperature, temperature_);
  override_with(params.top_k, top_k_);
  override_with(params.top_p, top_p_);
  override_with(params.min_p, min_p_);
  override_with(params.repetition_penalty, repetition_);
  override_with(params.presence_penalty, presence_);
  override_with(params.frequency_penalty, frequency_);
  if (seed_) params.seed = seed_;
  if (greedy_) params.temperature = 0;
  if (ignore_eos_) params.ignore_eos = true;
  params.stop.insert(params.stop.end(), stop_.begin(), stop_.end());
  return params;
}

}  // namespace switchyard::cli
