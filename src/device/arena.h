// SPDX-License-Identifier: Apache-2.0
// Arena: the temporaries of a step. Sized once at load from declared needs, reset before each step, never freed.
#pragma once
#include <cstdint>
#include <span>

#include "base/check.h"
#include "base/result.h"
#include "tensor/storage.h"

namespace switchyard {

class Arena {
 public:
  static constexpr int64_t kAlignment = 64;

  /// Room that an array of `count` T takes.
  template <class T>
  static constexpr int64_t room(int64_t count) noexcept {
    return (count * static_cast<int64_t>(sizeof(T)) + kAlignment - 1) / kAlignment * kAlignment;
  }

  static Result<Arena> create(int64_t size_bytes);

  /// An uninitialised array; running out is a broken promise of the sizing code, hence a check.
  template <class T>
  std::span<T> take(int64_t count) {
    const int64_t need = room<T>(count);
    SWITCHYARD_CHECK(used_ + need <= storage_.size(), "arena of {} bytes: {} used, {} more asked",
                     storage_.size(), used_, need);
    T* at = reinterpret_cast<T*>(storage_.data() + used_);
    used_ += need;
    peak_ = used_ > peak_ ? used_ : peak_;
    return {at, static_cast<size_t>(count)};
  }

  /// A place to come back to: everything taken later is given up by rewind().
  int64_t mark() const noexcept { return used_; }
  void rewind(int64_t mark) noexcept { used_ = mark; }
  void reset() noexcept { used_ = 0; }
  int64_t peak() const noexcept { return peak_; }
  int64_t size() const noexcept { return storage_.size(); }

 private:
  Storage storage_;
  int64_t used_ = 0, peak_ = 0;
};

}  // namespace switchyard
