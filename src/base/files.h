// SPDX-License-Identifier: Apache-2.0
// Files: read-only memory maps, whole reads with a limit, and writes that appear at once or not at all.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace switchyard {

/// A read-only map of a whole regular file. Move-only; unmapped on destruction.
class MappedFile {
 public:
  /// Maps `path`. Errors: Code::bad_file (missing, a directory, unreadable). An empty file maps to an empty span.
  static Result<MappedFile> open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }
  std::string_view text() const noexcept { return {reinterpret_cast<const char*>(data_), size_}; }
  const std::string& path() const noexcept { return path_; }

  /// Tells the kernel that these pages will not be needed again (they can be read again).
  void drop(std::span<const std::byte> range) const noexcept;

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// The whole file, refused when longer than `max_bytes`.
Result<std::string> read_text_file(const std::string& path, uint64_t max_bytes);

/// Writes a file next to its place and renames it there, so that a reader never sees half of it.
Status write_file_atomic(const std::string& path, std::string_view content);

/// Writes a file piece by piece, next to its place; commit() gives it its name. Without it the pieces are removed.
/// Errors: Code::bad_request (a path that cannot be written), out_of_memory (a full disk). Move-only.
class FileWriter {
 public:
  static Result<FileWriter> create(const std::string& path);

  FileWriter() = default;
  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&& other) noexcept;
  ~FileWriter();

  /// Buffered. After an error the file is lost: every later call gives an error too.
  Status append(std::span<const std::byte> bytes);
  Status commit();

 private:
  Status flush();

  std::string path_, temporary_, buffer_;
  int fd_ = -1;
};

bool file_exists(const std::string& path);
bool is_directory(const std::string& path);
/// Names of the directory's entries, sorted.
Result<std::vector<std::string>> list_directory(const std::string& path);

}  // namespace switchyard
