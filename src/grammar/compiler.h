// SPDX-License-Identifier: Apache-2.0
// Compiler: schemas to a Network. Each schema becomes one part, made once however often it is referred to, so that
// recursive schemas are calls in a circle. Work waits in a list: nothing recurses on the shape of what a client sent.
//
// Text that is accepted (docs/structured_output.md): one space or none behind , and :, no other white space between
// tokens; properties in the order of the schema, others behind them.
#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "grammar/network.h"
#include "grammar/regular.h"
#include "grammar/schema.h"

namespace switchyard::grammar {

class Compiler {
 public:
  /// The part of a schema; its states come with work().
  int32_t part_of(const Node& node);
  /// Any value; any object.
  int32_t any_value();
  int32_t any_object();
  /// Compiles all that waits.
  Status work();
  /// Cuts, measures and hands over. Errors: a circle that reads nothing, a schema that no value satisfies.
  Result<Network> finish(int32_t root);

  Network& network() noexcept { return network_; }
  Budget& budget() noexcept { return budget_; }
  /// The state that only ends.
  int32_t end();
  /// A tree that lives as long as the compiler.
  const Json& keep(Json json) { return kept_.emplace_back(std::move(json)); }

  /// Makes `start` accept what the automaton accepts.
  Status accept(int32_t start, const Nfa& nfa, Fragment whole);
  /// From `from`: a colon or comma and a space or none; then both returned states go on.
  std::pair<int32_t, int32_t> add_mark(int32_t from, char mark);
  /// From `from`: the bytes of `text`; returns the state behind them.
  int32_t add_text(int32_t from, std::string_view text);

 private:
  struct Waiting {
    Node node;
    int32_t start = 0;
  };

  Status compile(const Node& node, int32_t start);
  Status compile_all_of(const Node& node, int32_t start);
  Status compile_any_of(const Node& node, std::string_view keyword, int32_t start);
  Status compile_types(const Node& node, int32_t start);
  Status compile_type(const Node& node, std::string_view type, int32_t start);

  Network network_;
  Budget budget_;
  std::deque<Json> kept_;
  std::vector<Waiting> waiting_;
  std::unordered_map<const Json*, int32_t> parts_;
  std::vector<std::pair<int32_t, std::string>> places_;  // start of a part, its pointer
  std::optional<int32_t> end_, any_value_, any_object_;
};

struct Property {
  std::string name;
  int32_t part = 0;  ///< of its value
  bool required = false;
};

struct ObjectContents {
  std::vector<Property> properties;
  std::optional<int32_t> others;  ///< the part of values of other properties, if these are allowed
};

/// Makes `start` accept such objects.
Status write_object(Compiler& to, ObjectContents contents, int32_t start);

// One type of value each; in files of their own.
Status compile_object(Compiler& to, const Node& node, int32_t start);
Status compile_array(Compiler& to, const Node& node, int32_t start);
Status compile_string(Compiler& to, const Node& node, int32_t start);
Status compile_integer(Compiler& to, const Node& node, int32_t start);
Status compile_number(Compiler& to, const Node& node, int32_t start);
/// enum and const.
Status compile_values(Compiler& to, const Node& node, int32_t start);
/// Whether the value is of that type of a schema.
bool is_of_type(const Json& value, std::string_view type);
/// The types that a schema may have: as it says, or as its keywords suggest; none: any.
Result<std::vector<std::string>> types_of(const Node& node);

}  // namespace switchyard::grammar
