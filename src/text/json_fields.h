// SPDX-License-Identifier: Apache-2.0
// Fields: the members of one JSON object, each read with the type it must have, so that a member
// that nobody asked for is an error and not a surprise.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace switchyard::text {

class Fields {
 public:
  /// `where` is the object's path, for messages: "tokenizer.json: model".
  static Result<Fields> of(const Json& json, std::string where);

  const std::string& where() const noexcept { return where_; }
  std::string at(std::string_view name) const { return fmt::format("{}.{}", where_, name); }

  /// The member, or null when it is absent or null.
  const Json* find(std::string_view name);
  /// The member, which must be there.
  Result<const Json*> require(std::string_view name);

  Result<bool> boolean(std::string_view name, bool otherwise);
  Result<std::string> string(std::string_view name);
  Result<std::string> string(std::string_view name, std::string_view otherwise);
  Result<int64_t> integer(std::string_view name, int64_t otherwise);

  /// Members that have no meaning here.
  void ignore(std::initializer_list<std::string_view> names);
  /// Code::unsupported when a member was left unread.
  Status finish() const;

  Error wrong_type(std::string_view name, std::string_view expected, const Json& found) const;

 private:
  const Json* json_ = nullptr;
  std::string where_;
  std::vector<std::string_view> known_;
};

}  // namespace switchyard::text
