// SPDX-License-Identifier: Apache-2.0
#include "engine/generation_config.h"

#include <limits>
#include <optional>

#include "base/files.h"
#include "base/log.h"

namespace switchyard::engine {
namespace {

constexpr int kDefaultTopK = 50;
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 20;

/// A key that is absent, or null, says nothing.
const Json* find_value(const Json& json, std::string_view key) {
  const Json* value = json.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

Error wrong_kind(std::string_view name, std::string_view key, const Json& found,
                 std::string_view expected) {
  return fail(Code::bad_file, "{}: {} is {}, expected {}", name, key, found.kind_name(), expected);
}

Status read(const Json& json, std::string_view name, std::string_view key, float& to) {
  const Json* value = find_value(json, key);
  if (value == nullptr) return {};
  if (!value->is_number()) return wrong_kind(name, key, *value, "a number");
  to = static_cast<float>(value->as_double());
  return {};
}

Status read(const Json& json, std::string_view name, std::string_view key, int& to) {
  const Json* value = find_value(json, key);
  if (value == nullptr) return {};
  if (!value->is_integer()) return wrong_kind(name, key, *value, "an integer");
  if (value->as_int() < 0 || value->as_int() > std::numeric_limits<int>::max())
    return fail(Code::bad_file, "{}: {} is {}, expected an integer in [0, {}]", name, key,
                value->as_int(), std::numeric_limits<int>::max());
  to = static_cast<int>(value->as_int());
  return {};
}

Status read(const Json& json, std::string_view name, std::string_view key, bool& to) {
  const Json* value = find_value(json, key);
  if (value == nullptr) return {};
  if (!value->is_bool()) return wrong_kind(name, key, *value, "true or false");
  to = value->as_bool();
  return {};
}

Status append_token_id(const Json& value, std::string_view name, std::vector<int32_t>& to) {
  if (!value.is_integer())
    return wrong_kind(name, "eos_token_id", value, "a token id or a list of token ids");
  if (value.as_int() < 0 || value.as_int() > std::numeric_limits<int32_t>::max())
    return fail(Code::bad_file, "{}: eos_token_id holds {}, expected a token id", name,
                value.as_int());
  to.push_back(static_cast<int32_t>(value.as_int()));
  return {};
}

Result<std::vector<int32_t>> read_eos_ids(const Json& json, std::string_view name) {
  std::vector<int32_t> ids;
  const Json* value = find_value(json, "eos_token_id");
  if (value == nullptr) return ids;
  if (!value->is_array()) {
    SWITCHYARD_TRY(append_token_id(*value, name, ids));
    return ids;
  }
  for (const Json& item : value->as_array()) SWITCHYARD_TRY(append_token_id(item, name, ids));
  return ids;
}

/// Settings of the reference framework that change what is generated and that this engine does not
/// have.
struct Unsupported {
  std::string_view key;
  double neutral;  // the value with which it does nothing
};
constexpr Unsupported kUnsupported[] = {
    {"num_beams", 1},
    {"num_beam_groups", 1},
    {"no_repeat_ngram_size", 0},
    {"typical_p", 1},
    {"epsilon_cutoff", 0},
    {"eta_cutoff", 0},
    {"diversity_penalty", 0},
    {"encoder_repetition_penalty", 1},
    {"penalty_alpha", 0},
    {"guidance_scale", 1},
    {"top_h", 0},
};
constexpr std::string_view kUnsupportedLists[] = {"bad_words_ids",         "suppress_tokens",
                                                  "begin_suppress_tokens", "sequence_bias",
                                                  "forced_bos_token_id",   "forced_eos_token_id"};

void warn_unsupported(const Json& json, std::string_view name) {
  const auto warn = [&](std::string_view key) {
    log(LogLevel::warning, "{}: {} is ignored: this engine does not have it", name, key);
  };
  for (const Unsupported& entry : kUnsupported) {
    const Json* value = find_value(json, entry.key);
    if (value != nullptr && value->is_number() && value->as_double() != entry.neutral)
      warn(entry.key);
  }
  for (const std::string_view key : kUnsupportedLists)
    if (find_value(json, key) != nullptr) warn(key);
}

}  // namespace

Result<GenerationDefaults> parse_generation_config(const Json& json, std::string_view name) {
  if (!json.is_object())
    return fail(Code::bad_file, "{}: the file holds {}, expected an object", name,
                json.kind_name());
  GenerationDefaults defaults;
  SamplingParams& sampling = defaults.sampling;
  sampling.top_k = kDefaultTopK;
  bool do_sample = false;
  SWITCHYARD_TRY(read(json, name, "do_sample", do_sample));
  SWITCHYARD_TRY(read(json, name, "temperature", sampling.temperature));
  SWITCHYARD_TRY(read(json, name, "top_k", sampling.top_k));
  SWITCHYARD_TRY(read(json, name, "top_p", sampling.top_p));
  SWITCHYARD_TRY(read(json, name, "min_p", sampling.min_p));
  SWITCHYARD_TRY(read(json, name, "repetition_penalty", sampling.repetition_penalty));
  SWITCHYARD_TRY(read(json, name, "max_new_tokens", sampling.max_tokens));
  SWITCHYARD_ASSIGN(defaults.eos_ids, read_eos_ids(json, name));
  if (const Status status = sampling.check(); !status.ok())
    return fail(Code::bad_file, "{}: {}", name, status.error().message);
  if (!do_sample) sampling.temperature = 0;
  warn_unsupported(json, name);
  return defaults;
}

Result<GenerationDefaults> read_generation_config(const std::string& folder) {
  const std::string path = folder + "/generation_config.json";
  if (!file_exists(path)) return parse_generation_config(Json(Json::Object{}), path);
  SWITCHYARD_ASSIGN(const Json json, read_json_file(path, kMaxFileBytes));
  return parse_generation_config(json, path);
}

}  // namespace switchyard::engine
