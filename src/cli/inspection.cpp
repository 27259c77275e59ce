// SPDX-License-Identifier: Apache-2.0
#include "cli/inspection.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "model/family.h"
#include "model/model.h"
#include "model/tensor_map.h"

namespace switchyard::cli {
namespace {

using model::TensorRole;

constexpr const char* kParts[] = {"embedding", "attention", "router",  "experts", "shared expert",
                                  "dense ffn", "norms",     "lm head", "ignored", "unknown"};

const char* part_of(TensorRole role) {
  switch (role) {
    case TensorRole::embedding:
      return "embedding";
    case TensorRole::lm_head:
      return "lm head";
    case TensorRole::final_norm:
    case TensorRole::attention_norm:
    case TensorRole::ffn_norm:
      return "norms";
    case TensorRole::q:
    case TensorRole::k:
    case TensorRole::v:
    case TensorRole::q_bias:
    case TensorRole::k_bias:
    case TensorRole::v_bias:
    case TensorRole::o:
    case TensorRole::o_bias:
    case TensorRole::q_norm:
    case TensorRole::k_norm:
      return "attention";
    case TensorRole::router:
      return "router";
    case TensorRole::expert_gate:
    case TensorRole::expert_up:
    case TensorRole::expert_down:
    case TensorRole::experts_gate_up:
    case TensorRole::experts_down:
      return "experts";
    case TensorRole::shared_gate:
    case TensorRole::shared_up:
    case TensorRole::shared_down:
    case TensorRole::shared_gate_up:
    case TensorRole::shared_router:
      return "shared expert";
    case TensorRole::dense_gate:
    case TensorRole::dense_up:
    case TensorRole::dense_down:
      return "dense ffn";
    case TensorRole::ignored:
      return "ignored";
  }
  return "unknown";
}

/// The family's pattern that a tensor's name fits, and its part of the model.
std::pair<std::string, std::string> classify(const model::Family& family, const std::string& name) {
  for (const model::TensorName& known : family.names)
    if (model::match_name(known, name)) return {std::string(known.pattern), part_of(known.role)};
  return {name, "unknown"};
}

std::vector<TensorGroup> group_tensors(const model::Family& family,
                                       const checkpoint::Source& source) {
  std::vector<TensorGroup> groups;
  std::map<std::tuple<std::string, DType, std::string>, size_t> index;
  for (const checkpoint::TensorEntry& tensor : source.tensors()) {
    auto [pattern, part] = classify(family, tensor.name);
    const auto [at, is_new] =
        index.try_emplace({pattern, tensor.dtype, tensor.shape.text()}, groups.size());
    if (is_new) groups.push_back({pattern, part, tensor.dtype, tensor.shape, 0, 0});
    ++groups[at->second].count;
    groups[at->second].bytes += static_cast<int64_t>(tensor.bytes());
  }
  return groups;
}

std::vector<std::pair<std::string, int64_t>> sum_parts(const std::vector<TensorGroup>& groups) {
  std::vector<std::pair<std::string, int64_t>> parts;
  for (const char* part : kParts) {
    int64_t bytes = 0;
    for (const TensorGroup& group : groups) bytes += group.part == part ? group.bytes : 0;
    if (bytes > 0) parts.emplace_back(part, bytes);
  }
  return parts;
}

const RouterSpec* first_router(const model::ModelConfig& config) {
  for (const model::BlockSpec& block : config.blocks)
    if (block.router) return &*block.router;
  return nullptr;
}

std::string router_text(const RouterSpec& router) {
  constexpr const char* kScores[] = {"softmax", "sigmoid", "sqrt softplus"};
  constexpr const char* kWeighs[] = {"", ", renormalized", ", softmax over the picks"};
  return fmt::format("{} of {} experts by {}{}", router.top_k, router.num_experts,
                     kScores[static_cast<size_t>(router.score)],
                     kWeighs[static_cast<size_t>(router.weigh)]);
}

/// "bf16", or "bf16, f32" when the files mix types.
std::string dtype_text(const checkpoint::Source& source) {
  std::set<std::string_view> names;
  for (const auto& tensor : source.tensors()) names.insert(dtype_name(tensor.dtype));
  std::string text;
  for (const std::string_view name : names)
    text += fmt::format("{}{}", text.empty() ? "" : ", ", name);
  return text;
}

std::string facts_text(const Inspection& it, const Look& look) {
  const model::ModelConfig& config = it.config;
  Table table({{"", Align::left}, {"", Align::left}});
  const auto add = [&](const char* name, std::string value) {
    table.add({name, std::move(value)});
  };
  add("model", fmt::format("{} ({})", config.architecture, config.family));
  add("layers", fmt::format("{}, {} of them MoE", config.blocks.size(), config.num_moe_blocks()));
  if (const RouterSpec* router = first_router(config)) add("router", router_text(*router));
  const auto& attention = config.blocks.front().attention;
  add("sizes", fmt::format("width {}, {} query and {} key/value heads of {}, vocabulary {}, {} "
                           "positions",
                           config.width, attention.heads, attention.kv_heads, attention.head_dim,
                           config.vocab, config.max_positions));
  add("parameters", fmt::format("{}, {} active for a token", count_text(it.parameters.total),
                                count_text(it.parameters.active)));
  add("files",
      fmt::format("{} of {}, {} tensors, {}, {}", it.source.files().size(), it.source.format(),
                  it.source.tensors().size(),
                  size_text(static_cast<int64_t>(it.source.total_bytes())), dtype_text(it.source)));
  return table.text(look, Table::Titles::left_out);
}

std::string parts_text(const Inspection& it, const Look& look) {
  constexpr int kBarColumns = 30;
  const auto total = static_cast<double>(std::max<uint64_t>(it.source.total_bytes(), 1));
  std::vector<Column> columns{
      {"part", Align::left}, {"bytes", Align::right}, {"share", Align::right}};
  if (look.terminal) columns.emplace_back("", Align::left, Style::cyan);
  Table table(columns);
  for (const auto& [part, bytes] : it.part_bytes) {
    const double share = static_cast<double>(bytes) / total;
    std::vector<std::string> cells{part, size_text(bytes), fmt::format("{:.1f}%", 100 * share)};
    if (look.terminal) cells.push_back(bar(share, kBarColumns));
    table.add(std::move(cells));
  }
  return table.text(look);
}

std::string tensors_text(const Inspection& it, TensorDetail detail, const Look& look) {
  if (detail == TensorDetail::groups) {
    Table table({{"tensor", Align::left},
                 {"count", Align::right},
                 {"dtype", Align::left},
                 {"shape", Align::left},
                 {"bytes", Align::right}});
    for (const TensorGroup& group : it.groups)
      table.add({printable(group.pattern), std::to_string(group.count),
                 std::string(dtype_name(group.dtype)), group.shape.text(), size_text(group.bytes)});
    return table.text(look);
  }
  Table table({{"tensor", Align::left},
               {"dtype", Align::left},
               {"shape", Align::left},
               {"bytes", Align::right},
               {"file", Align::right},
               {"offset", Align::right}});
  for (const auto& tensor : it.source.tensors())
    table.add({printable(tensor.name), std::string(dtype_name(tensor.dtype)), tensor.shape.text(),
               size_text(static_cast<int64_t>(tensor.bytes())), std::to_string(tensor.file),
               std::to_string(tensor.begin)});
  return table.text(look);
}

void write_shape(JsonWriter& json, const Shape& shape) {
  json.key("shape").begin_array();
  for (int i = 0; i < shape.rank(); ++i) json.integer(shape[i]);
  json.end_array();
}

void write_config(JsonWriter& json, const Inspection& it) {
  const model::ModelConfig& config = it.config;
  json.field("architecture", config.architecture).field("family", config.family);
  json.field("layers", static_cast<int64_t>(config.blocks.size()));
  json.field("moe_layers", config.num_moe_blocks());
  const RouterSpec* router = first_router(config);
  json.field("experts", router != nullptr ? router->num_experts : 0);
  json.field("top_k", router != nullptr ? router->top_k : 0);
  json.field("width", config.width).field("vocab", config.vocab);
  json.field("max_positions", config.max_positions);
}

void write_parameters(JsonWriter& json, const model::ParameterCount& count) {
  json.key("parameters").begin_object();
  json.field("total", count.total).field("active", count.active);
  json.field("embedding", count.embedding).field("attention", count.attention);
  json.field("router", count.router).field("experts", count.experts);
  json.field("shared", count.shared).field("dense_ffn", count.dense_ffn);
  json.field("norms", count.norms).field("lm_head", count.lm_head);
  json.end_object();
}

void write_tensors(JsonWriter& json, const Inspection& it, TensorDetail detail) {
  json.key("tensors").begin_array();
  if (detail == TensorDetail::groups) {
    for (const TensorGroup& group : it.groups) {
      json.begin_object().field("pattern", group.pattern).field("part", group.part);
      json.field("count", group.count).field("dtype", dtype_name(group.dtype));
      write_shape(json, group.shape);
      json.field("bytes", group.bytes).end_object();
    }
  } else {
    for (const auto& tensor : it.source.tensors()) {
      json.begin_object().field("name", tensor.name).field("dtype", dtype_name(tensor.dtype));
      write_shape(json, tensor.shape);
      json.field("bytes", tensor.bytes()).field("file", tensor.file);
      json.field("offset", tensor.begin).end_object();
    }
  }
  json.end_array();
}

}  // namespace

Result<Inspection> inspect_model(const std::string& folder) {
  Inspection it;
  it.path = folder;
  SWITCHYARD_ASSIGN(it.config, model::Model::read_config(folder));
  SWITCHYARD_ASSIGN(const Json json, read_json_file(folder + "/config.json"));
  SWITCHYARD_ASSIGN(const model::Family* family, model::find_family(json));
  SWITCHYARD_ASSIGN(it.source, checkpoint::open_checkpoint(folder));
  it.parameters = model::count_parameters(it.config);
  it.groups = group_tensors(*family, it.source);
  it.part_bytes = sum_parts(it.groups);
  return it;
}

std::string inspection_text(const Inspection& it, TensorDetail detail, const Look& look) {
  return facts_text(it, look) + '\n' + parts_text(it, look) + '\n' + tensors_text(it, detail, look);
}

void write_inspection(JsonWriter& json, const Inspection& it, TensorDetail detail) {
  json.begin_object().field("path", it.path);
  write_config(json, it);
  json.field("format", it.source.format());
  json.key("files").begin_array();
  for (const std::string& file : it.source.files()) json.string(file);
  json.end_array();
  json.field("dtype", dtype_text(it.source));
  write_parameters(json, it.parameters);
  json.key("bytes").begin_object().field("total", it.source.total_bytes());
  for (const auto& [part, bytes] : it.part_bytes) json.field(part, bytes);
  json.end_object();
  write_tensors(json, it, detail);
  json.end_object();
}

}  // namespace switchyard::cli
