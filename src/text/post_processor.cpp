// SPDX-License-Identifier: Apache-2.0
// Only the template for one text matters here: nothing in this program encodes pairs.
#include "text/post_processor.h"

#include "text/json_fields.h"
#include "text/vocabulary.h"

namespace switchyard::text {
namespace {

/// The ids of "special_tokens": {name: {"id": name, "ids": [..], "tokens": [..]}}.
Result<std::vector<int32_t>> ids_of(const Json& specials, const std::string& name,
                                    const std::string& where) {
  const Json* entry = specials.find(name);
  const Json* ids = entry == nullptr ? nullptr : entry->find("ids");
  if (ids == nullptr || !ids->is_array()) {
    return fail(Code::bad_file, "{}.special_tokens lacks the ids of \"{}\"", where, name);
  }
  std::vector<int32_t> out;
  for (const Json& id : ids->as_array()) {
    if (!id.is_integer() || id.as_int() < 0 || id.as_int() > kMaxTokenId) {
      return fail(Code::bad_file, "{}.special_tokens[\"{}\"].ids: expected ids from 0 to {}", where,
                  name, kMaxTokenId);
    }
    out.push_back(static_cast<int32_t>(id.as_int()));
  }
  return out;
}

Result<SpecialsAround> read_template(Fields& fields) {
  SWITCHYARD_ASSIGN(const Json* items, fields.require("single"));
  SWITCHYARD_ASSIGN(const Json* specials, fields.require("special_tokens"));
  if (!items->is_array()) return fields.wrong_type("single", "an array", *items);
  fields.ignore({"pair"});
  SpecialsAround around;
  bool seen = false;
  for (const Json& item : items->as_array()) {
    const Json* special = item.find("SpecialToken");
    const Json* text = item.find("Sequence");
    const Json* part = special != nullptr ? special : text;
    const Json* id = part == nullptr ? nullptr : part->find("id");
    if (id == nullptr || !id->is_string()) {
      return fail(Code::bad_file, "{}: expected items SpecialToken or Sequence with an id",
                  fields.at("single"));
    }
    if (special == nullptr) {
      if (seen || id->as_string() != "A") {
        return fail(Code::bad_file, "{}: expected the Sequence A once", fields.at("single"));
      }
      seen = true;
      continue;
    }
    SWITCHYARD_ASSIGN(const std::vector<int32_t> ids,
                      ids_of(*specials, id->as_string(), fields.where()));
    std::vector<int32_t>& side = seen ? around.after : around.before;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (!seen) return fail(Code::bad_file, "{} lacks the Sequence A", fields.at("single"));
  return around;
}

Result<SpecialsAround> read_any(const Json& json, const std::string& where);

Result<SpecialsAround> read_sequence(Fields& fields) {
  SWITCHYARD_ASSIGN(const Json* list, fields.require("processors"));
  if (!list->is_array()) return fields.wrong_type("processors", "an array", *list);
  SpecialsAround around;
  size_t index = 0;
  for (const Json& item : list->as_array()) {
    SWITCHYARD_ASSIGN(SpecialsAround outer,
                      read_any(item, fmt::format("{}.processors[{}]", fields.where(), index++)));
    // A later processor puts its tokens around those of the earlier ones.
    outer.before.insert(outer.before.end(), around.before.begin(), around.before.end());
    around.after.insert(around.after.end(), outer.after.begin(), outer.after.end());
    around.before = std::move(outer.before);
  }
  return around;
}

Result<SpecialsAround> read_any(const Json& json, const std::string& where) {
  SWITCHYARD_ASSIGN(Fields fields, Fields::of(json, where));
  SWITCHYARD_ASSIGN(const std::string type, fields.string("type"));
  SpecialsAround around;
  if (type == "TemplateProcessing") {
    SWITCHYARD_ASSIGN(around, read_template(fields));
  } else if (type == "Sequence") {
    SWITCHYARD_ASSIGN(around, read_sequence(fields));
  } else if (type == "ByteLevel") {
    fields.ignore({"add_prefix_space", "trim_offsets", "use_regex"});
  } else {
    return fail(Code::unsupported, "{}: the post-processor \"{}\" is not supported", where, type);
  }
  SWITCHYARD_TRY(fields.finish());
  return around;
}

}  // namespace

Result<SpecialsAround> read_post_processor(const Json* json, const std::string& where) {
  if (json == nullptr) return SpecialsAround{};
  return read_any(*json, where);
}

}  // namespace switchyard::text
