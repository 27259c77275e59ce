// SPDX-License-Identifier: Apache-2.0
// model.safetensors.index.json: which shard holds which tensor.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/result.h"

namespace switchyard::checkpoint {

struct ShardIndex {
  std::map<std::string, std::string> shard_of;  ///< tensor name to shard file name
  std::optional<uint64_t> total_bytes;          ///< metadata.total_size, when given
};

/// Reads and checks an index. Shard names must be plain names inside the folder.
Result<ShardIndex> read_index(const std::string& path);

}  // namespace switchyard::checkpoint
