// SPDX-License-Identifier: Apache-2.0
// Source: the tensors of a checkpoint, found by name, read from memory maps. Opening reads headers
// alone: no page of weights is touched.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "tensor/storage.h"
#include "tensor/view.h"

namespace switchyard::checkpoint {

struct TensorEntry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  int file = 0;                     ///< index into Source::files()
  uint64_t begin = 0, end = 0;      ///< bytes of the file
  const std::byte* data = nullptr;  ///< in the map; may be unaligned

  uint64_t bytes() const noexcept { return end - begin; }
};

class Source {
 public:
  Source() = default;
  Source(std::vector<std::shared_ptr<MappedFile>> files, std::vector<TensorEntry> tensors,
         std::string format);
  // Move-only: a copy would have entries of its own, and those who hold pointers could not tell.
  Source(Source&&) = default;
  Source& operator=(Source&&) = default;

  std::span<const TensorEntry> tensors() const noexcept { return tensors_; }  ///< sorted by name
  const TensorEntry* find(std::string_view name) const noexcept;
  /// Paths of the shards, in the order that TensorEntry::file counts.
  std::vector<std::string> files() const;
  const std::string& file_of(const TensorEntry& entry) const noexcept;
  uint64_t total_bytes() const noexcept;                          ///< of all tensors
  const std::string& format() const noexcept { return format_; }  ///< "safetensors"

  /// Bytes that keep their shard mapped for as long as they are held.
  Storage share(const TensorEntry& entry) const;
  /// Tells the system that the tensor's pages are not needed any more.
  void drop(const TensorEntry& entry) const noexcept;

 private:
  std::vector<std::shared_ptr<MappedFile>> files_;
  std::vector<TensorEntry> tensors_;
  std::string format_;
};

/// A folder (model.safetensors.index.json, else model.safetensors, else the only *.safetensors) or
/// one file. Errors: Code::bad_file with file, tensor, offset, found and expected.
Result<Source> open_checkpoint(const std::string& path);

}  // namespace switchyard::checkpoint
