// SPDX-License-Identifier: Apache-2.0
// The index is a stranger's word: every name and number in it is checked before use.
#include "checkpoint/index.h"

#include <cmath>

#include "base/json.h"

namespace switchyard::checkpoint {
namespace {

// Nothing that could leave the model's folder.
bool plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

/// A whole number of bytes; some writers store it as a float.
std::optional<uint64_t> byte_count(const Json& number) {
  if (number.is_integer() && number.as_int() >= 0) return static_cast<uint64_t>(number.as_int());
  if (number.kind() != Json::Kind::real) return std::nullopt;
  constexpr double kExact = 0x1p53;  // up to here a double holds every integer
  const double value = number.as_double();
  if (value < 0 || value > kExact || value != std::floor(value)) return std::nullopt;
  return static_cast<uint64_t>(value);
}

}  // namespace

Result<ShardIndex> read_index(const std::string& path) {
  SWITCHYARD_ASSIGN(const Json json, read_json_file(path));
  const Json* map = json.find("weight_map");
  if (map == nullptr || !map->is_object() || map->as_object().empty()) {
    return fail(Code::bad_file,
                "{}: expected an object 'weight_map' with at least one tensor, found {}; fetch the "
                "file again",
                path,
                map == nullptr     ? "none"
                : map->is_object() ? "an empty one"
                                   : map->kind_name());
  }
  ShardIndex index;
  for (const auto& [tensor, shard] : map->as_object()) {
    if (!shard.is_string() || !plain_name(shard.as_string())) {
      return fail(
          Code::bad_file,
          "{}: weight_map of '{}' must be the plain name of a file in the same folder, found "
          "{}; do not trust this index",
          path, tensor, json_text(shard));
    }
    index.shard_of.emplace(tensor, shard.as_string());
  }
  const Json* metadata = json.find("metadata");
  const Json* total = metadata != nullptr ? metadata->find("total_size") : nullptr;
  if (total == nullptr) return index;
  index.total_bytes = byte_count(*total);
  if (!index.total_bytes) {
    return fail(Code::bad_file,
                "{}: metadata.total_size must be a number of bytes, found {}; delete the field or "
                "fetch the file again",
                path, json_text(*total));
  }
  return index;
}

}  // namespace switchyard::checkpoint
