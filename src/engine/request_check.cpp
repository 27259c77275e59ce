// SPDX-License-Identifier: Apache-2.0
// Refusals of sampling parameters, and the names of finish reasons.
#include <cmath>
#include <limits>
#include <string_view>

#include "switchyard/request.h"

#include "base/result.h"
#include "base/utf8.h"

namespace switchyard {
namespace {

constexpr size_t kMaxStopStrings = 16;
constexpr size_t kMaxStopBytes = 1024;
constexpr size_t kMaxBiases = 1024;
constexpr int kMaxLogprobs = 20;

/// One number with the range that it must lie in; NaN and infinity lie in none.
struct NumberRule {
  const char* field;
  double value, low, high;
  bool low_excluded;
};

Status check_number(const NumberRule& rule) {
  const bool above = rule.low_excluded ? rule.value > rule.low : rule.value >= rule.low;
  if (above && rule.value <= rule.high && std::isfinite(rule.value)) return {};
  if (std::isinf(rule.high)) {
    return fail(Code::bad_request, "{} is {}, expected a finite number {} {}", rule.field,
                rule.value, rule.low_excluded ? "above" : "of at least", rule.low);
  }
  return fail(Code::bad_request, "{} is {}, expected a number in {}{}, {}]", rule.field, rule.value,
              rule.low_excluded ? '(' : '[', rule.low, rule.high);
}

bool valid_utf8(std::string_view text) {
  while (!text.empty()) {
    size_t skip = 0;
    const size_t length = utf8_length(text, &skip);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

Status check_stop_strings(const std::vector<std::string>& stops) {
  if (stops.size() > kMaxStopStrings)
    return fail(Code::bad_request, "stop has {} strings, expected at most {}", stops.size(),
                kMaxStopStrings);
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty())
      return fail(Code::bad_request, "stop[{}] is empty: it would end every text at once", i);
    if (stops[i].size() > kMaxStopBytes)
      return fail(Code::bad_request, "stop[{}] has {} bytes, expected at most {}", i,
                  stops[i].size(), kMaxStopBytes);
    if (!valid_utf8(stops[i]))
      return fail(Code::bad_request, "stop[{}] is not valid UTF-8, so it could never match", i);
  }
  return {};
}

Status check_biases(const std::vector<TokenBias>& biases) {
  if (biases.size() > kMaxBiases)
    return fail(Code::bad_request, "logit_bias has {} entries, expected at most {}", biases.size(),
                kMaxBiases);
  for (const TokenBias& bias : biases)
    if (!(bias.bias >= -100 && bias.bias <= 100))
      return fail(Code::bad_request,
                  "logit_bias of token {} is {}, expected a number in [-100, 100]", bias.token,
                  bias.bias);
  return {};
}

Status check_lengths(const SamplingParams& params) {
  if (params.max_tokens < 1)
    return fail(Code::bad_request, "max_tokens is {}, expected at least 1", params.max_tokens);
  if (params.min_tokens < 0 || params.min_tokens > params.max_tokens)
    return fail(Code::bad_request, "min_tokens is {}, expected 0 to max_tokens ({})",
                params.min_tokens, params.max_tokens);
  for (const int32_t token : params.stop_token_ids)
    if (token < 0)
      return fail(Code::bad_request, "stop_token_ids holds {}, expected token ids", token);
  return {};
}

}  // namespace

Status SamplingParams::check() const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto wide = [](float value) { return static_cast<double>(value); };
  const NumberRule rules[] = {
      {"temperature", wide(temperature), 0, kInfinity, false},
      {"top_k", static_cast<double>(top_k), 0, kInfinity, false},
      {"top_p", wide(top_p), 0, 1, true},
      {"min_p", wide(min_p), 0, 1, false},
      {"repetition_penalty", wide(repetition_penalty), 0, kInfinity, true},
      {"presence_penalty", wide(presence_penalty), -2, 2, false},
      {"frequency_penalty", wide(frequency_penalty), -2, 2, false},
  };
  for (const NumberRule& rule : rules) SWITCHYARD_TRY(check_number(rule));
  SWITCHYARD_TRY(check_lengths(*this));
  SWITCHYARD_TRY(check_biases(logit_bias));
  if (logprobs && (*logprobs < 0 || *logprobs > kMaxLogprobs))
    return fail(Code::bad_request, "logprobs is {}, expected 0 to {}", *logprobs, kMaxLogprobs);
  return check_stop_strings(stop);
}

const char* finish_reason_name(FinishReason reason) {
  constexpr const char* kNames[] = {"none", "stop", "length", "cancelled", "error"};
  return kNames[static_cast<size_t>(reason)];
}

}  // namespace switchyard
