// SPDX-License-Identifier: Apache-2.0
// Objects. Declared properties come in the order of the schema, optional ones or not; then others, if they are allowed.
//
//   {  -> "key j"  for every j that may come first            n properties, all optional: n^2 / 2 edges from what stands
//   key i -> ,  -> "key j"  for every j that may follow i     between them, so that states stay few
//
// What stands for any other key takes every plainly spelled string but the declared names: an escape cannot smuggle one in.
#include <algorithm>
#include <optional>
#include <vector>

#include "grammar/characters.h"
#include "grammar/compiler.h"

namespace switchyard::grammar {
namespace {

Result<std::optional<int32_t>> others_of(Compiler& to, const Node& node, bool declares) {
  const Json* more = node.find("additionalProperties");
  if (more == nullptr)
    return declares ? std::nullopt : std::optional(to.any_value());  // closed once names are given
  if (more->is_bool()) return more->as_bool() ? std::optional(to.any_value()) : std::nullopt;
  return std::optional(to.part_of(node.child(*more, "additionalProperties")));
}

Status add_required(const Node& node, ObjectContents& contents) {
  SWITCHYARD_ASSIGN(const Json* const required, find_array(node, "required"));
  if (required == nullptr) return {};
  auto& properties = contents.properties;
  std::unordered_map<std::string, size_t> index;
  for (size_t i = 0; i < properties.size(); ++i) index.emplace(properties[i].name, i);
  for (const Json& name : required->as_array()) {
    if (!name.is_string()) return bad_keyword(node, "required", "expected a list of strings");
    const auto at = index.find(name.as_string());
    if (at != index.end()) {
      properties[at->second].required = true;
      continue;
    }
    if (!contents.others)
      return bad_keyword(node, "required",
                         fmt::format("\"{}\" is not among properties, and others are not allowed",
                                     name.as_string()));
    properties.push_back({name.as_string(), *contents.others, true});
    index.emplace(properties.back().name, properties.size() - 1);
  }
  return {};
}

Result<ObjectContents> contents_of(Compiler& to, const Node& node) {
  ObjectContents contents;
  SWITCHYARD_ASSIGN(const Json* const declared, find_object(node, "properties"));
  if (declared != nullptr)
    for (const auto& [name, schema] : declared->as_object())
      contents.properties.push_back(
          {name, to.part_of(node.child(schema, "properties").child(schema, name))});
  SWITCHYARD_ASSIGN(contents.others, others_of(to, node, !contents.properties.empty()));
  SWITCHYARD_TRY(add_required(node, contents));
  return contents;
}

class ObjectWriter {
 public:
  ObjectWriter(Compiler& to, ObjectContents contents) : to_(to), is_(std::move(contents)) {}

  Status write(int32_t start) {
    for (size_t i = 0; i < is_.properties.size(); ++i) {
      keys_.push_back(net().add_state());
      behind_.push_back(net().add_state());
    }
    if (is_.others) SWITCHYARD_TRY(write_others());
    const int32_t open = net().add_state();
    net().add_edge(start, '{', '{', open);
    SWITCHYARD_TRY(go_on(open, 0));
    if (may_close(0)) net().add_edge(open, '}', '}', to_.end());
    for (size_t i = 0; i < is_.properties.size(); ++i) {
      const Property& property = is_.properties[i];
      const int32_t key = to_.add_text(keys_[i], plain_string(property.name).substr(1));
      write_value(key, property.part, behind_[i]);
      SWITCHYARD_TRY(write_between(behind_[i], i + 1));
    }
    return {};
  }

 private:
  Network& net() { return to_.network(); }

  /// Whether the properties from `from` on may all be left out.
  bool may_close(size_t from) const {
    return std::none_of(is_.properties.begin() + static_cast<std::ptrdiff_t>(from),
                        is_.properties.end(), [](const Property& p) { return p.required; });
  }

  /// Keys that may come next when those before `from` are decided.
  Status go_on(int32_t at, size_t from) {
    for (size_t j = from; j < is_.properties.size(); ++j) {
      net().add_edge(at, '"', '"', keys_[j]);
      if (is_.properties[j].required) return net().check_size();
    }
    if (is_.others) net().add_edge(at, '"', '"', other_key_);
    return net().check_size();
  }

  /// A value is complete: a comma and another key, or the end.
  Status write_between(int32_t at, size_t from) {
    if (may_close(from)) net().add_edge(at, '}', '}', to_.end());
    if (from == is_.properties.size() && !is_.others) return {};
    const auto [comma, space] = to_.add_mark(at, ',');
    SWITCHYARD_TRY(go_on(comma, from));
    return go_on(space, from);
  }

  void write_value(int32_t behind_key, int32_t part, int32_t behind) {
    const auto [colon, space] = to_.add_mark(behind_key, ':');
    net().add_call(colon, part, behind);
    net().add_call(space, part, behind);
  }

  Result<Dfa> other_keys() {
    Nfa all;
    const Fragment every = is_.properties.empty() ? add_any_string(all) : add_plain_string(all);
    SWITCHYARD_ASSIGN(Dfa keys, determinize(all, every, to_.budget()));
    if (is_.properties.empty()) return keys;
    Nfa names;
    const Fragment declared{names.add_state(), names.add_state()};
    for (const Property& property : is_.properties) {
      names.add_literal(declared.start, plain_string(property.name), declared.end);
      if (names.too_large()) return Budget::too_many_states();
    }
    SWITCHYARD_ASSIGN(const Dfa taken, determinize(names, declared, to_.budget()));
    return subtract(keys, taken, to_.budget());
  }

  Status write_others() {
    SWITCHYARD_ASSIGN(const Dfa keys, other_keys());
    const int32_t before_quote = net().add_state(), behind_key = net().add_state(),
                  behind = net().add_state();
    const std::vector<int32_t> ends = net().insert(keys, before_quote);
    other_key_ = net().state(before_quote).edges.front().target;
    const auto [colon, space] = to_.add_mark(behind_key, ':');
    for (const int32_t end : ends) net().add_edge(end, ':', ':', colon);
    net().add_call(colon, *is_.others, behind);
    net().add_call(space, *is_.others, behind);
    return write_between(behind, is_.properties.size());
  }

  Compiler& to_;
  ObjectContents is_;
  std::vector<int32_t> keys_,
      behind_;             // [properties] behind the quote of the key; behind the value
  int32_t other_key_ = 0;  // behind the quote of another key
};

}  // namespace

Status write_object(Compiler& to, ObjectContents contents, int32_t start) {
  return ObjectWriter(to, std::move(contents)).write(start);
}

Status compile_object(Compiler& to, const Node& node, int32_t start) {
  SWITCHYARD_ASSIGN(ObjectContents contents, contents_of(to, node));
  return write_object(to, std::move(contents), start);
}

}  // namespace switchyard::grammar
