// SPDX-License-Identifier: Apache-2.0
// The map owns the texts; its nodes do not move, so that the list by id can point at them.
#include "text/vocabulary.h"

#include <random>

namespace switchyard::text {

size_t SeededHash::operator()(std::string_view text) const noexcept {
  static const uint64_t seed = std::random_device{}() | uint64_t{std::random_device{}()} << 32;
  uint64_t hash = seed;
  for (const char c : text) {
    // FNV-1a, with the high half folded in at each step so that the seed reaches every bit.
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
    hash ^= hash >> 32;
  }
  return hash;
}

Status Vocabulary::add(std::string_view text, int64_t id) {
  if (id < 0 || id > kMaxTokenId) {
    return fail(Code::bad_file, "the token \"{}\" has the id {}: expected 0 to {}", text, id,
                kMaxTokenId);
  }
  const auto index = static_cast<size_t>(id);
  if (index >= by_id_.size()) by_id_.resize(index + 1);
  if (by_id_[index] != nullptr) {
    return fail(Code::bad_file, "the id {} is given twice: to \"{}\" and to \"{}\"", id,
                *by_id_[index], text);
  }
  const auto [place, inserted] = by_text_.emplace(text, static_cast<int32_t>(id));
  if (!inserted) {
    return fail(Code::bad_file, "the token \"{}\" is given twice: as {} and as {}", text,
                place->second, id);
  }
  by_id_[index] = &place->first;
  return {};
}

std::optional<int32_t> Vocabulary::find(std::string_view text) const {
  const auto place = by_text_.find(text);
  if (place == by_text_.end()) return std::nullopt;
  return place->second;
}

std::string_view Vocabulary::text(int32_t id) const noexcept {
  return contains(id) ? std::string_view(*by_id_[static_cast<size_t>(id)]) : std::string_view();
}

bool Vocabulary::contains(int32_t id) const noexcept {
  return id >= 0 && static_cast<size_t>(id) < by_id_.size() &&
         by_id_[static_cast<size_t>(id)] != nullptr;
}

}  // namespace switchyard::text
