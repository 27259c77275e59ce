// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/index.h"

#include "base/json.h"

namespace switchyard::checkpoint {
namespace {

// Nothing that could leave the model's folder.
bool plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

}  // namespace

Result<ShardIndex> read_index(const std::string& path) {
  SWITCHYARD_ASSIGN(const Json json, read_json_file(path));
  const Json* map = json.find("weight_map");
  if (map == nullptr || !map->is_object() || map->as_object().empty()) {
    return fail(Code::bad_file, "{}: expected an object 'weight_map' with at least one tensor",
                path);
  }
  ShardIndex index;
  for (const auto& [tensor, shard] : map->as_object()) {
    if (!shard.is_string() || !plain_name(shard.as_string())) {
      return fail(Code::bad_file,
                  "{}: weight_map of '{}' must be the plain name of a file in the same folder",
                  path, tensor);
    }
    index.shard_of.emplace(tensor, shard.as_string());
  }
  const Json* metadata = json.find("metadata");
  const Json* total = metadata != nullptr ? metadata->find("total_size") : nullptr;
  if (total == nullptr) return index;
  // Some writers store the size as a float.
  if (!total->is_number() || total->as_double() < 0) {
    return fail(Code::bad_file, "{}: metadata.total_size must be a number of bytes", path);
  }
  index.total_bytes = total->is_integer() ? static_cast<uint64_t>(total->as_int())
                                          : static_cast<uint64_t>(total->as_double());
  return index;
}

}  // namespace switchyard::checkpoint
