// SPDX-License-Identifier: Apache-2.0
// What a JSON Schema says, checked: which keywords it has, where a $ref leads, what several schemas say together. Every
// keyword is either known, or an annotation that changes nothing, or an error that names its place: a keyword that is
// passed over would leave output freer than was asked.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "grammar/regular.h"

namespace switchyard::grammar {

/// A schema inside its document. Points into trees that live as long as the compilation.
struct Node {
  const Json* schema = nullptr;
  const Json* document = nullptr;  ///< where "#" of a $ref is
  std::string at;                  ///< JSON pointer, for messages: "#/properties/a"

  Node child(const Json& child_schema, std::string_view name) const;
  const Json* find(std::string_view keyword) const { return schema->find(keyword); }
  bool has(std::string_view keyword) const { return find(keyword) != nullptr; }
};

/// An error about a keyword of a schema.
Error bad_keyword(const Node& node, std::string_view keyword, std::string_view what);

/// Whether the keyword describes and does not constrain.
bool is_annotation(std::string_view keyword);
/// Refuses keywords that are not known.
Status check_keywords(const Node& node);
/// Whether the schema says anything but annotations and the keywords listed.
bool says_more_than(const Node& node, std::initializer_list<std::string_view> keywords);

/// Keywords that must be of one kind. Absent ones are null or `otherwise`.
Result<const Json*> find_object(const Node& node, std::string_view keyword);
Result<const Json*> find_array(const Node& node, std::string_view keyword);
Result<int64_t> find_count(const Node& node, std::string_view keyword, int64_t otherwise);

/// Where $ref leads. Errors: another document, a pointer to nothing.
Result<Node> follow(const Node& node);

/// One schema that says what all parts of allOf, and what stands beside it, say. Errors: what cannot be said in one.
Result<Json> merge(const Node& node, Budget& budget);
/// The same for one branch of anyOf or oneOf and what stands beside that.
Result<Json> merge_branch(const Node& node, std::string_view keyword, const Node& branch,
                          Budget& budget);

/// Whether two values are the same text.
bool same(const Json& a, const Json& b);

}  // namespace switchyard::grammar
