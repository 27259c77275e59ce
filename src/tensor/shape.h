// SPDX-License-Identifier: Apache-2.0
// Shapes and strides of at most five dimensions, held by value.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "base/check.h"

namespace switchyard {

inline constexpr int kMaxRank = 5;

/// Extents, outermost first. Rank 0 is a scalar of one element.
class Shape {
 public:
  constexpr Shape() = default;
  Shape(std::initializer_list<int64_t> extents) {
    SWITCHYARD_CHECK(extents.size() <= kMaxRank, "rank {}", extents.size());
    for (const int64_t extent : extents) extents_[rank_++] = extent;
  }

  int rank() const noexcept { return rank_; }
  int64_t operator[](int i) const noexcept { return extents_[i]; }
  void append(int64_t extent) {
    SWITCHYARD_CHECK(rank_ < kMaxRank, "rank {}", rank_ + 1);
    extents_[rank_++] = extent;
  }
  /// Number of elements; only for shapes whose product is known to fit (see checked_elements).
  int64_t elements() const noexcept;
  /// Number of elements, or nothing when an extent is negative or the product overflows int64.
  std::optional<int64_t> checked_elements() const noexcept;
  /// "[1408, 2048]"
  std::string text() const;
  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

/// Distance in elements between neighbours of each dimension.
using Strides = std::array<int64_t, kMaxRank>;

/// Strides of a dense row-major tensor.
Strides row_major(const Shape& shape) noexcept;

}  // namespace switchyard
