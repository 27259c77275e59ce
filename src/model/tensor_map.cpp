// SPDX-License-Identifier: Apache-2.0
#include "model/tensor_map.h"

#include <charconv>

#include "base/check.h"

namespace switchyard::model {
namespace {

using checkpoint::TensorEntry;

// The number at the start of `text`, in plain decimal without leading zeros, so that each name has
// one spelling.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto length = static_cast<size_t>(end - text.data());
  if (error != std::errc{} || number < 0 || (length > 1 && text[0] == '0')) return std::nullopt;
  text.remove_prefix(length);
  return number;
}

// A role's first spelling, with its numbers filled in, for messages about what is missing.
std::string spell(const Family& family, const TensorPlace& place) {
  for (const TensorName& name : family.names) {
    if (name.role != place.role) continue;
    std::string text(name.pattern);
    const auto fill = [&](std::string_view mark, int number) {
      if (const size_t at = text.find(mark); at != std::string::npos) {
        text.replace(at, mark.size(), std::to_string(number));
      }
    };
    fill("{L}", place.layer);
    fill("{E}", place.expert);
    return text;
  }
  return "(a tensor that this family has no name for)";
}

std::optional<Shape> attention_shape(const ModelConfig& config, const attention::GqaSpec& a,
                                     TensorRole role) {
  const int64_t width = config.width, q = int64_t{a.heads} * a.head_dim,
                kv = int64_t{a.kv_heads} * a.head_dim;
  const bool full = a.qk_norm == QkNorm::full_width;
  const auto when = [](bool there, Shape shape) {
    return there ? std::optional(shape) : std::nullopt;
  };
  switch (role) {
    case TensorRole::q:
      return Shape{q, width};
    case TensorRole::k:
    case TensorRole::v:
      return Shape{kv, width};
    case TensorRole::o:
      return Shape{width, q};
    case TensorRole::q_bias:
      return when(a.qkv_bias, {q});
    case TensorRole::k_bias:
    case TensorRole::v_bias:
      return when(a.qkv_bias, {kv});
    case TensorRole::o_bias:
      return when(a.output_bias, {width});
    case TensorRole::q_norm:
      return when(a.qk_norm != QkNorm::none, {full ? q : a.head_dim});
    case TensorRole::k_norm:
      return when(a.qk_norm != QkNorm::none, {full ? kv : a.head_dim});
    default:
      return std::nullopt;
  }
}

std::optional<Shape> sparse_shape(const ModelConfig& config, const BlockSpec& block,
                                  const TensorPlace& place) {
  const int64_t width = config.width, ffn = block.ffn_width, shared = block.shared.width;
  const int64_t experts = block.router->num_experts;
  if (place.expert >= experts) return std::nullopt;
  const bool has_shared = shared > 0;
  const auto when = [](bool there, Shape shape) {
    return there ? std::optional(shape) : std::nullopt;
  };
  switch (place.role) {
    case TensorRole::router:
      return Shape{experts, width};
    case TensorRole::expert_gate:
    case TensorRole::expert_up:
      return Shape{ffn, width};
    case TensorRole::expert_down:
      return Shape{width, ffn};
    case TensorRole::experts_gate_up:
      return Shape{experts, 2 * ffn, width};
    case TensorRole::experts_down:
      return Shape{experts, width, ffn};
    case TensorRole::shared_gate:
    case TensorRole::shared_up:
      return when(has_shared, {shared, width});
    case TensorRole::shared_down:
      return when(has_shared, {width, shared});
    case TensorRole::shared_gate_up:
      return when(has_shared, {2 * shared, width});
    case TensorRole::shared_router:
      return when(has_shared && block.shared.gated, {1, width});
    default:
      return std::nullopt;
  }
}

std::optional<Shape> dense_shape(const ModelConfig& config, const BlockSpec& block,
                                 TensorRole role) {
  const int64_t width = config.width, ffn = block.ffn_width;
  switch (role) {
    case TensorRole::dense_gate:
    case TensorRole::dense_up:
      return Shape{ffn, width};
    case TensorRole::dense_down:
      return Shape{width, ffn};
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<TensorPlace> match_name(const TensorName& pattern, std::string_view name) {
  TensorPlace place{pattern.role};
  std::string_view rest = pattern.pattern;
  while (!rest.empty()) {
    if (rest.starts_with("{L}") || rest.starts_with("{E}")) {
      const std::optional<int> number = take_number(name);
      if (!number) return std::nullopt;
      (rest[1] == 'L' ? place.layer : place.expert) = *number;
      rest.remove_prefix(3);
    } else {
      if (name.empty() || name[0] != rest[0]) return std::nullopt;
      name.remove_prefix(1);
      rest.remove_prefix(1);
    }
  }
  return name.empty() ? std::optional(place) : std::nullopt;
}

std::optional<Shape> expected_shape(const ModelConfig& config, const TensorPlace& place) {
  const int64_t width = config.width, vocab = config.vocab;
  switch (place.role) {
    case TensorRole::embedding:
    case TensorRole::lm_head:
      return Shape{vocab, width};
    case TensorRole::final_norm:
      return Shape{width};
    default:
      break;
  }
  if (place.layer < 0 || place.layer >= std::ssize(config.blocks)) return std::nullopt;
  const BlockSpec& block = config.blocks[place.layer];
  if (place.role == TensorRole::attention_norm || place.role == TensorRole::ffn_norm) {
    return Shape{width};
  }
  if (auto shape = attention_shape(config, block.attention, place.role)) return shape;
  return block.router ? sparse_shape(config, block, place) : dense_shape(config, block, place.role);
}

void TensorMap::place(const Family& family, const ModelConfig& config, const TensorEntry& entry,
                      const checkpoint::Source& source, std::vector<Fault>& faults) {
  const std::string& file = source.file_of(entry);
  for (const TensorName& name : family.names) {
    const std::optional<TensorPlace> place = match_name(name, entry.name);
    if (!place) continue;
    if (place->role == TensorRole::ignored) return;
    // A tied model may carry the output matrix again; the embedding is what counts.
    if (place->role == TensorRole::lm_head && config.tied_embedding) return;
    const std::optional<Shape> shape = expected_shape(config, *place);
    if (!shape) continue;
    if (entry.shape != *shape || !is_plain_float(entry.dtype)) {
      faults.push_back(
          {"wrong_shape",
           fail(Code::bad_file,
                "{}: {}: expected {} of f32, f16 or bf16, found {} {}: the config "
                "does not match this checkpoint",
                file, entry.name, shape->text(), entry.shape.text(), dtype_name(entry.dtype))});
      return;
    }
    const auto [at, is_new] = entries_.emplace(*place, &entry);
    if (!is_new) {
      faults.push_back({"duplicate_tensor",
                        fail(Code::bad_file, "{}: {}: the same weight is also stored as {} in {}",
                             file, entry.name, at->second->name, source.file_of(*at->second))});
    }
    return;
  }
  faults.push_back(
      {"unexpected_tensor",
       fail(Code::bad_file,
            "{}: {} ({} {}): no tensor of this name belongs to family {} with this config; a "
            "weight that is left over would make the output wrong",
            file, entry.name, dtype_name(entry.dtype), entry.shape.text(), family.name)});
}

void TensorMap::require(const Family& family, const TensorPlace& place,
                        std::vector<Fault>& faults) const {
  if (entries_.contains(place)) return;
  faults.push_back(
      {"missing_tensor", fail(Code::bad_file,
                              "{}: missing from the checkpoint; it is truncated, or the "
                              "config does not match it",
                              spell(family, place))});
}

void TensorMap::require_experts(const Family& family, const ModelConfig& config, int layer,
                                std::vector<Fault>& faults) const {
  const auto fused_or_single = [&](TensorRole fused, std::initializer_list<TensorRole> single) {
    bool any_single = false, named_single = false;
    for (const TensorRole role : single) {
      any_single |= find(role, layer, 0) != nullptr;
      for (const TensorName& name : family.names) named_single |= name.role == role;
    }
    if (!named_single || (find(fused, layer) != nullptr && !any_single)) {
      return require(family, {fused, layer}, faults);
    }
    if (const auto* both = find(fused, layer); both != nullptr) {
      faults.push_back(
          {"duplicate_tensor",
           fail(Code::bad_file, "{}: the same experts are also stored one by one", both->name)});
    }
    for (int e = 0; e < config.blocks[layer].router->num_experts; ++e) {
      for (const TensorRole role : single) require(family, {role, layer, e}, faults);
    }
  };
  fused_or_single(TensorRole::experts_gate_up, {TensorRole::expert_gate, TensorRole::expert_up});
  fused_or_single(TensorRole::experts_down, {TensorRole::expert_down});
}

void TensorMap::require_block(const Family& family, const ModelConfig& config, int layer,
                              std::vector<Fault>& faults) const {
  constexpr TensorRole kFixed[] = {TensorRole::attention_norm,
                                   TensorRole::ffn_norm,
                                   TensorRole::q,
                                   TensorRole::k,
                                   TensorRole::v,
                                   TensorRole::o,
                                   TensorRole::q_bias,
                                   TensorRole::k_bias,
                                   TensorRole::v_bias,
                                   TensorRole::o_bias,
                                   TensorRole::q_norm,
                                   TensorRole::k_norm,
                                   TensorRole::router,
                                   TensorRole::shared_down,
                                   TensorRole::shared_router,
                                   TensorRole::dense_gate,
                                   TensorRole::dense_up,
                                   TensorRole::dense_down};
  for (const TensorRole role : kFixed) {
    if (expected_shape(config, {role, layer})) require(family, {role, layer}, faults);
  }
  const BlockSpec& block = config.blocks[layer];
  if (!block.router) return;
  require_experts(family, config, layer, faults);
  if (block.shared.width == 0 || find(TensorRole::shared_gate_up, layer) != nullptr) return;
  for (const TensorName& name : family.names) {
    if (name.role == TensorRole::shared_gate || name.role == TensorRole::shared_up ||
        name.role == TensorRole::shared_gate_up) {
      require(family, {name.role, layer}, faults);
    }
  }
}

TensorMap TensorMap::build(const Family& family, const ModelConfig& config,
                           const checkpoint::Source& source, std::vector<Fault>& faults) {
  TensorMap map;
  for (const TensorEntry& entry : source.tensors()) {
    map.place(family, config, entry, source, faults);
  }
  map.require(family, {TensorRole::embedding}, faults);
  map.require(family, {TensorRole::final_norm}, faults);
  if (!config.tied_embedding) map.require(family, {TensorRole::lm_head}, faults);
  for (int l = 0; l < std::ssize(config.blocks); ++l) {
    map.require_block(family, config, l, faults);
  }
  return map;
}

const TensorEntry* TensorMap::find(TensorRole role, int layer, int expert) const {
  const auto at = entries_.find({role, layer, expert});
  return at == entries_.end() ? nullptr : at->second;
}

const TensorEntry& TensorMap::at(TensorRole role, int layer, int expert) const {
  const TensorEntry* entry = find(role, layer, expert);
  SWITCHYARD_CHECK(entry != nullptr, "role {} layer {} expert {}", static_cast<int>(role), layer,
                   expert);
  return *entry;
}

Error summarize_faults(const std::vector<Fault>& faults, const std::string& folder) {
  Error error = faults[0].error;
  if (faults.size() > 1) {
    error.message +=
        fmt::format(" (and {} more faults: run `switchyard check {}`)", faults.size() - 1, folder);
  }
  return error;
}

}  // namespace switchyard::model
