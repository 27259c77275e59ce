// SPDX-License-Identifier: Apache-2.0
#include "moe/trace/expert_load.h"

#include <fstream>
#include <utility>

#include "base/files.h"
#include "base/json.h"

namespace switchyard::moe {
namespace {

constexpr const char* kFormat = "switchyard-expert-load";
constexpr uint64_t kMostBytes = uint64_t{1} << 30;
constexpr size_t kMostWindows = 4096;
constexpr int64_t kMostTokens = int64_t{1} << 48;  // sums of that many picks stay exact in a double

/// Reads members of one object; the first that is wrong is kept.
class Members {
 public:
  Members(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  int64_t integer(const char* name, int64_t low, int64_t high) {
    const Json* const found = object_.find(name);
    if (found != nullptr && found->is_integer() && found->as_int() >= low &&
        found->as_int() <= high)
      return found->as_int();
    refuse(name, fmt::format("an integer in [{}, {}]", low, high), found);
    return low;
  }
  std::string text(const char* name) {
    const Json* const found = object_.find(name);
    if (found != nullptr && found->is_string()) return found->as_string();
    refuse(name, "a string", found);
    return {};
  }
  const Json::Array& array(const char* name, size_t low, size_t high) {
    static const Json::Array none;
    const Json* const found = object_.find(name);
    if (found != nullptr && found->is_array() && found->as_array().size() >= low &&
        found->as_array().size() <= high)
      return found->as_array();
    refuse(name,
           low == high ? fmt::format("an array of {}", low)
                       : fmt::format("an array of {} to {}", low, high),
           found);
    return none;
  }
  std::vector<uint64_t> counts(const Json& from, const char* name, size_t size) {
    std::vector<uint64_t> counts;
    if (!from.is_array() || from.as_array().size() != size) {
      refuse(name, fmt::format("an array of {} counts", size), &from);
      return counts;
    }
    for (const Json& count : from.as_array()) {
      const bool good = count.is_integer() && count.as_int() >= 0 && count.as_int() <= kMostTokens;
      if (!good) refuse(name, fmt::format("counts in [0, {}]", kMostTokens), &count);
      counts.push_back(good ? static_cast<uint64_t>(count.as_int()) : 0);
    }
    return counts;
  }
  std::vector<std::vector<uint64_t>> matrix(const char* name, const TraceHeader& header) {
    const auto layers = static_cast<size_t>(header.num_layers);
    std::vector<std::vector<uint64_t>> rows;
    for (const Json& row : array(name, layers, layers))
      rows.push_back(counts(row, name, static_cast<size_t>(header.num_experts)));
    return rows;
  }

  void refuse(const char* name, std::string_view expected, const Json* found) {
    if (status_.ok())
      status_ = fail(Code::bad_file, "{}: expected '{}' to be {}, found {}", where_, name, expected,
                     found == nullptr ? "nothing" : json_text(*found));
  }
  const Status& status() const noexcept { return status_; }

 private:
  const Json& object_;
  const std::string where_;
  Status status_;
};

Status check_sums(const ExpertLoad& load, std::string_view name) {
  int64_t steps = 0, tokens = 0;
  auto sums = load.counts;
  for (auto& row : sums) row.assign(row.size(), 0);
  for (const ExpertLoadWindow& window : load.windows) {
    steps += window.steps;
    tokens += window.tokens;
    for (size_t l = 0; l < sums.size(); ++l)
      for (size_t e = 0; e < sums[l].size(); ++e) sums[l][e] += window.counts[l][e];
  }
  if (steps == load.steps && tokens == load.tokens && sums == load.counts) return {};
  return fail(Code::bad_file,
              "{}: the windows do not sum to the whole: {} steps and {} tokens of {} and {}, or "
              "other counts",
              name, steps, tokens, load.steps, load.tokens);
}

Status read_head(Members& members, ExpertLoad& load) {
  load.header.num_layers = static_cast<int>(members.integer("num_moe_layers", 1, kMaxTraceLayers));
  load.header.num_experts = static_cast<int>(members.integer("num_experts", 1, kMaxTraceExperts));
  load.header.top_k = static_cast<int>(members.integer("top_k", 1, load.header.num_experts));
  load.header.model = members.text("model");
  load.header.producer = members.text("producer");
  load.model_hash = members.text("model_hash");
  load.stage = members.text("stage");
  load.steps = members.integer("steps", 0, kMostTokens);
  load.tokens = members.integer("tokens", 0, kMostTokens);
  return members.status();
}

}  // namespace

bool looks_like_expert_load(const std::string& path) {
  constexpr size_t kHeadBytes = 256;  // the format is the first member
  std::ifstream file(path, std::ios::binary);
  std::string head(kHeadBytes, '\0');
  file.read(head.data(), kHeadBytes);
  return head.starts_with('{') && head.find(kFormat) != std::string::npos;
}

Result<ExpertLoad> parse_expert_load(std::string_view text, std::string_view name) {
  SWITCHYARD_ASSIGN(const Json json, parse_json(text, name));
  Members members(json, std::string(name));
  if (members.text("format") != kFormat)
    return fail(Code::bad_file,
                "{}: expected 'format' to be \"{}\": what POST "
                "/v1/moe/record/dump answers",
                name, kFormat);
  (void)members.integer("version", 1, 1);
  ExpertLoad load;
  SWITCHYARD_TRY(read_head(members, load));
  if (load.steps == 0)
    return fail(Code::bad_file, "{}: holds no step: nothing ran while it was recorded", name);
  const auto layers = static_cast<size_t>(load.header.num_layers);
  load.dropped = members.counts(Json(members.array("dropped", layers, layers)), "dropped", layers);
  load.counts = members.matrix("counts", load.header);
  const Json::Array& windows = members.array("windows", 1, kMostWindows);
  SWITCHYARD_TRY(members.status());
  for (size_t i = 0; i < windows.size(); ++i) {
    Members of(windows[i], fmt::format("{}: windows[{}]", name, i));
    load.windows.push_back({of.integer("steps", 1, kMostTokens),
                            of.integer("tokens", 0, kMostTokens),
                            of.matrix("counts", load.header)});
    SWITCHYARD_TRY(of.status());
  }
  SWITCHYARD_TRY(check_sums(load, name));
  return load;
}

Result<ExpertLoad> read_expert_load(const std::string& path) {
  SWITCHYARD_ASSIGN(const std::string text, read_text_file(path, kMostBytes));
  return parse_expert_load(text, path);
}

}  // namespace switchyard::moe
