// SPDX-License-Identifier: Apache-2.0
// Storage: an owner of bytes, either fresh host memory (64-byte aligned, huge pages asked for when large) or a share
// of something else (a mapped file).
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"

namespace switchyard {

class Storage {
 public:
  Storage() = default;

  /// Zeroed host memory. Errors: Code::out_of_memory with the size asked for, also when the machine has less.
  static Result<Storage> allocate(int64_t size_bytes);
  /// Keeps `owner` alive for as long as the bytes are used.
  static Storage share(std::shared_ptr<const void> owner, std::span<const std::byte> bytes);

  std::byte* data() const noexcept { return data_; }
  int64_t size() const noexcept { return size_; }
  bool empty() const noexcept { return data_ == nullptr; }

 private:
  std::shared_ptr<const void> owner_;
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace switchyard
