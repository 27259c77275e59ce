// SPDX-License-Identifier: Apache-2.0
// Vocabulary: token text <-> id, for V ids of which a few may name nothing.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace switchyard::text {

/// No vocabulary in use comes near; a damaged id must not cost memory.
inline constexpr int64_t kMaxTokenId = (int64_t{1} << 22) - 1;
/// Published files leave out a few ids (cl100k lacks one between its words and special tokens).
inline constexpr int32_t kMaxHoles = 4096;

/// A hash with a seed of its own in each process, so that no file can choose colliding names.
struct SeededHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const noexcept;
};

/// Move-only: the list by id points into the map.
class Vocabulary {
 public:
  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  /// Errors: Code::bad_file for an id below zero or above kMaxTokenId, or an id or text given twice.
  Status add(std::string_view text, int64_t id);
  std::optional<int32_t> find(std::string_view text) const;
  /// The text of an id; empty when it names nothing.
  std::string_view text(int32_t id) const noexcept;
  bool contains(int32_t id) const noexcept;
  /// One more than the largest id.
  int32_t size() const noexcept { return static_cast<int32_t>(by_id_.size()); }
  /// How many ids name something.
  int32_t count() const noexcept { return static_cast<int32_t>(by_text_.size()); }

 private:
  using Map = std::unordered_map<std::string, int32_t, SeededHash, std::equal_to<>>;
  Map by_text_;
  std::vector<const std::string*> by_id_;  // into by_text_, whose keys stay where they are
};

}  // namespace switchyard::text
