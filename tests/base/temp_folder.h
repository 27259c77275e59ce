// SPDX-License-Identifier: Apache-2.0
// A fresh folder for one test, removed with everything in it.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace switchyard {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "switchyard-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = std::filesystem::canonical(pattern).string();
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string path(std::string_view name) const { return path_ + "/" + std::string(name); }

  /// Writes a file, with the folders on its way, and returns its path.
  std::string write(std::string_view name, std::string_view content) const {
    const std::string at = path(name);
    std::filesystem::create_directories(std::filesystem::path(at).parent_path());
    std::ofstream(at, std::ios::binary).write(content.data(), static_cast<long>(content.size()));
    return at;
  }

 private:
  std::string path_;
};

}  // namespace switchyard
