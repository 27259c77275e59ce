// SPDX-License-Identifier: Apache-2.0
// safetensors: u64 little-endian header length, JSON header {name: {dtype, shape, data_offsets}},
// then the data. Offsets count from the end of the header; together the tensors cover the data
// without holes or overlaps. Tensors of zero elements may share an offset with anything. Source:
// the safetensors format description (Hugging Face).
#pragma once
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "checkpoint/source.h"
#include "tensor/view.h"

namespace switchyard::checkpoint {

/// Largest header that is read; the format's own limit.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;

/// Parses the header of a whole mapped file. Entries come sorted by name, with data pointing into
/// `file` and file index 0. `name` starts every message. Errors: Code::bad_file with the tensor,
/// what was found and expected.
Result<std::vector<TensorEntry>> parse_safetensors(std::span<const std::byte> file,
                                                   std::string_view name);

/// Writes dense tensors in the given order, at once or not at all.
Status write_safetensors(const std::string& path,
                         const std::vector<std::pair<std::string, TensorView>>& tensors,
                         const std::map<std::string, std::string>& metadata = {});

}  // namespace switchyard::checkpoint
