// SPDX-License-Identifier: Apache-2.0
#include "cli/model_hash.h"

#include <filesystem>
#include <span>

#include <fmt/format.h>

#include "base/crc32c.h"
#include "base/files.h"

namespace switchyard::cli {

std::string model_hash(const std::string& folder) {
  constexpr uint64_t kMostConfigBytes = uint64_t{16} << 20;
  std::string facts = folder;
  if (auto config = read_text_file(folder + "/config.json", kMostConfigBytes); config.ok())
    facts = *std::move(config);
  const auto names = list_directory(folder);
  if (names.ok())
    for (const std::string& name : *names) {
      std::error_code error;
      const auto size = std::filesystem::file_size(std::filesystem::path(folder) / name, error);
      if (name.ends_with(".safetensors") && !error) facts += fmt::format("\n{} {}", name, size);
    }
  return fmt::format("crc32c:{:08x}", crc32c(std::as_bytes(std::span(facts))));
}

}  // namespace switchyard::cli
