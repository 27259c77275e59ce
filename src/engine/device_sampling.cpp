// SPDX-License-Identifier: Apache-2.0
#include "engine/device_sampling.h"

#include "base/check.h"

namespace switchyard::engine {
namespace {

std::span<const int32_t> output_of(const Live& live) {
  return std::span(live.tokens).subspan(static_cast<size_t>(live.prompt_tokens));
}

model::SampleSpec spec_of(const Live& live) {
  const SamplingParams& params = live.params;
  model::SampleSpec spec;
  if (DeviceSampling::is_host_row(live)) {
    spec.temperature = 0;
    return spec;
  }
  spec.temperature = params.temperature;
  spec.top_p = params.top_p;
  spec.min_p = params.min_p;
  spec.top_k = params.top_k;
  spec.repetition = params.repetition_penalty;
  spec.presence = params.presence_penalty;
  spec.frequency = params.frequency_penalty;
  spec.seed = live.seed;
  spec.position = live.tokens.size();
  if (live.output_tokens() < params.min_tokens) spec.masked = live.end_tokens;
  return spec;
}

}  // namespace

DeviceSampling::DeviceSampling(int vocab, int max_rows)
    : vocab_(vocab), count_(static_cast<size_t>(vocab)) {
  specs_.reserve(static_cast<size_t>(max_rows));
  seen_end_.reserve(static_cast<size_t>(max_rows));
  picks_.reserve(static_cast<size_t>(max_rows));
}

// Distinct tokens of the sequence, or of its output alone when nothing asks about the prompt.
void DeviceSampling::list_seen(const Live& live) {
  constexpr uint32_t kListed = 1u << 31;
  if (is_host_row(live)) return;
  const SamplingParams& params = live.params;
  const bool repetition = params.repetition_penalty != 1.0f;
  if (!repetition && params.presence_penalty == 0.0f && params.frequency_penalty == 0.0f) return;
  const std::span<const int32_t> output = output_of(live);
  const std::span<const int32_t> tokens = repetition ? std::span(live.tokens) : output;
  for (const int32_t token : output) ++count_[static_cast<size_t>(token)];
  for (const int32_t token : tokens) {
    uint32_t& count = count_[static_cast<size_t>(token)];
    if ((count & kListed) != 0) continue;
    seen_.push_back({token, count});
    count |= kListed;
  }
  for (const int32_t token : tokens) count_[static_cast<size_t>(token)] = 0;
}

std::span<const model::SampleSpec> DeviceSampling::specs(const schedule::Decision& decision,
                                                         std::span<const Live* const> runs) {
  specs_.clear();
  seen_.clear();
  seen_end_.clear();
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!decision.runs[i].samples) continue;
    specs_.push_back(spec_of(*runs[i]));
    list_seen(*runs[i]);
    seen_end_.push_back(std::ssize(seen_));
  }
  int64_t begin = 0;  // the list no longer moves
  for (size_t i = 0; i < specs_.size(); ++i) {
    specs_[i].seen = {seen_.data() + begin, static_cast<size_t>(seen_end_[i] - begin)};
    begin = seen_end_[i];
  }
  return specs_;
}

// The device has penalised and masked these logits already. Masks are done again, from a finite value.
Pick DeviceSampling::sample_on_host(float* logits, const Live& live, Sampler& host) {
  if (is_host_row(live)) {
    SampleRow row{{logits, static_cast<size_t>(vocab_)},
                  live.tokens,
                  live.prompt_tokens,
                  &live.params,
                  live.end_tokens,
                  live.seed,
                  live.allowed,
                  live.logprobs.get()};
    return host.pick({&row, 1})[0];
  }
  SamplingParams params = live.params;
  params.repetition_penalty = 1;
  params.presence_penalty = params.frequency_penalty = 0;
  if (live.output_tokens() < params.min_tokens) {
    for (const int32_t token : live.end_tokens) logits[token] = 0;
  }
  SampleRow row{{logits, static_cast<size_t>(vocab_)},
                live.tokens,
                live.prompt_tokens,
                &params,
                live.end_tokens,
                live.seed,
                live.allowed};
  return host.pick({&row, 1})[0];
}

Result<std::span<const Pick>> DeviceSampling::picks(const model::StepOutput& output,
                                                    const schedule::Decision& decision,
                                                    std::span<const Live* const> runs,
                                                    ModelPort& model, Sampler& host) {
  const auto* pick = output.pick.as<int32_t>();
  TensorView logits;
  picks_.clear();
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!decision.runs[i].samples) continue;
    const auto row = picks_.size();
    SWITCHYARD_CHECK(std::ssize(picks_) < output.pick.shape[0] && pick[row] < vocab_,
                     "pick {} of {} is {}", row, output.pick.shape[0], pick[row]);
    picks_.push_back({pick[row], pick[row] == model::kPickNonFinite});
    // The device knows no constraints, biases and reports: what it chose of all tokens is chosen again.
    const bool again = pick[row] >= 0 && (!runs[i]->allowed.empty() || is_host_row(*runs[i]));
    if (pick[row] != model::kPickUndecided && !again) continue;
    if (logits.empty()) {
      SWITCHYARD_ASSIGN(logits, model.read_logits());
    }
    picks_[row] =
        sample_on_host(logits.as<float>() + static_cast<int64_t>(row) * vocab_, *runs[i], host);
  }
  return std::span<const Pick>(picks_);
}

}  // namespace switchyard::engine
