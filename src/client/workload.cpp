// SPDX-License-Identifier: Apache-2.0
#include "client/workload.h"

#include <charconv>
#include <cmath>

#include "base/json.h"
#include "base/random.h"

namespace switchyard::client {
namespace {

/// What a word is drawn for: draws of one purpose do not shift those of another.
enum class Purpose : uint32_t { lengths, ids, cancel, gap, prompts };

PhiloxBlock draw(const Workload& workload, uint32_t stream, uint32_t index, Purpose purpose,
                 uint32_t number = 0) {
  return philox4x32(
      {index, number, stream, static_cast<uint32_t>(purpose)},
      {static_cast<uint32_t>(workload.seed), static_cast<uint32_t>(workload.seed >> 32)});
}

/// Uniform in [0, bound); the bias is below 2^-32 * bound.
uint32_t below(uint32_t word, uint32_t bound) {
  return static_cast<uint32_t>((uint64_t{word} * bound) >> 32);
}

int in_range(uint32_t word, const Range& range) {
  return range.low +
         static_cast<int>(below(word, static_cast<uint32_t>(range.high - range.low) + 1));
}

void write_random_ids(JsonWriter& json, const Workload& workload, uint32_t stream, uint32_t index,
                      int count) {
  json.key("prompt").begin_array();
  PhiloxBlock words{};
  for (int i = 0; i < count; ++i) {
    if (i % 4 == 0)
      words = draw(workload, stream, index, Purpose::ids, static_cast<uint32_t>(i / 4));
    json.integer(below(words[static_cast<size_t>(i) % 4], static_cast<uint32_t>(workload.vocab)));
  }
  json.end_array();
}

void write_prompt(JsonWriter& json, const Workload& workload, uint32_t stream, uint32_t index,
                  int count) {
  if (workload.prompts.empty()) return write_random_ids(json, workload, stream, index, count);
  // Each point begins elsewhere, so that a prefix cache does not know its prompts from the point before.
  const size_t first = draw(workload, stream, 0, Purpose::prompts)[0];
  const std::string& prompt = workload.prompts[(first + index) % workload.prompts.size()];
  if (workload.endpoint == Endpoint::completions) {
    json.field("prompt", prompt);
    return;
  }
  json.key("messages").begin_array().begin_object();
  json.field("role", "user").field("content", prompt).end_object().end_array();
}

/// Half of them early, wherever the request then is; half in the middle of the answer.
void draw_cancel(const PhiloxBlock& words, double rate, int output_tokens, Drawn& drawn) {
  if (unit_double(words[0], 0) >= rate) return;
  if (words[1] % 2 == 0)
    drawn.cancel_after_s = unit_double(words[2], 0);
  else
    drawn.cancel_at_text = 1 + below(words[2], static_cast<uint32_t>(output_tokens));
}

}  // namespace

Result<Range> parse_range(std::string_view text, std::string_view what) {
  Range range;
  const size_t colon = text.find(':');
  const auto number = [](std::string_view digits, int& out) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
    return error == std::errc() && end == digits.data() + digits.size();
  };
  bool good = number(text.substr(0, colon), range.low);
  range.high = range.low;
  if (good && colon != std::string_view::npos) good = number(text.substr(colon + 1), range.high);
  if (!good || range.low < 1 || range.high < range.low || range.high > 1 << 24)
    return fail(Code::bad_request,
                "{}: expected a number of tokens, as 128, or a range, as 64:256; found '{}'", what,
                text);
  return range;
}

Drawn draw_request(const Workload& workload, uint32_t stream, uint32_t index) {
  const PhiloxBlock lengths = draw(workload, stream, index, Purpose::lengths);
  const int output = in_range(lengths[1], workload.output_tokens);
  Drawn drawn;
  const bool chat = workload.endpoint == Endpoint::chat;
  drawn.path = chat ? "/v1/chat/completions" : "/v1/completions";
  JsonWriter json(drawn.body);
  json.begin_object().field("model", workload.model);
  write_prompt(json, workload, stream, index, in_range(lengths[0], workload.input_tokens));
  json.field("max_tokens", output).field("temperature", workload.temperature);
  json.field("stream", true);
  json.key("stream_options").begin_object().field("include_usage", true).end_object();
  if (workload.ignore_eos) json.field("ignore_eos", true);
  json.end_object();
  draw_cancel(draw(workload, stream, index, Purpose::cancel), workload.cancel_rate, output, drawn);
  return drawn;
}

double draw_gap_s(const Workload& workload, uint32_t stream, uint32_t index, double rate) {
  const PhiloxBlock words = draw(workload, stream, index, Purpose::gap);
  return -std::log1p(-unit_double(words[0], words[1])) / rate;
}

}  // namespace switchyard::client
