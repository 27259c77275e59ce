// SPDX-License-Identifier: Apache-2.0
// A short name of a model's contents, so that a record of its routing is not taken for another model's.
#pragma once
#include <string>

namespace switchyard::cli {

/// "crc32c:" and eight digits, of config.json and of the names and sizes of the weight files; of the path alone when there
/// is no config.json. Reads no weights: it tells models apart, and proves nothing.
std::string model_hash(const std::string& folder);

}  // namespace switchyard::cli
