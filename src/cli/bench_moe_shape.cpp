// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_moe_shape.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace switchyard::cli {
namespace {

// From the models' published configurations.
const MoeShape kShapes[] = {
    {"mixtral-8x7b", 8, 2, 4096, 14336, 32, 1},
    {"qwen3-30b-a3b", 128, 8, 2048, 768, 48, 1},
    {"olmoe-1b-7b", 64, 8, 2048, 1024, 16, 1},
    {"deepseek-v3-ep8", 256, 8, 7168, 2048, 58, 8},
    {"demo", 32, 4, 256, 64, 6, 1},
};
constexpr int64_t kMaxExperts = 4096, kMaxWidth = 1 << 17;

/// The four numbers of "E/KxDxF".
std::optional<std::array<int64_t, 4>> parse_numbers(std::string_view text) {
  constexpr std::string_view kSeparators = "/xx";
  std::array<int64_t, 4> numbers{};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto [stop, error] = std::from_chars(at, end, numbers[i]);
    if (error != std::errc()) return std::nullopt;
    at = stop;
    if (i + 1 == numbers.size()) break;
    if (at == end || *at != kSeparators[i]) return std::nullopt;
    ++at;
  }
  if (at != end) return std::nullopt;
  return numbers;
}

Status check_size(std::string_view shape, std::string_view name, int64_t value, int64_t most) {
  if (value >= 1 && value <= most) return {};
  return fail(Code::bad_request, "shape {}: {} is {}, expected 1 to {}", shape, name, value, most);
}

}  // namespace

std::string MoeShape::known_names() {
  std::string names;
  for (const MoeShape& shape : kShapes) names += (names.empty() ? "" : ", ") + shape.name;
  return names;
}

Result<MoeShape> MoeShape::parse(std::string_view text) {
  for (const MoeShape& shape : kShapes)
    if (shape.name == text) return shape;
  const auto numbers = parse_numbers(text);
  if (!numbers)
    return fail(Code::bad_request,
                "no shape is called '{}'; known: {}, or experts/picks x width x expert width as in "
                "64/8x2048x1024",
                text, known_names());
  const auto [experts, picks, width, ffn_width] = *numbers;
  SWITCHYARD_TRY(check_size(text, "experts", experts, kMaxExperts));
  if (picks < 1 || picks > experts)
    return fail(Code::bad_request,
                "shape {}: {} picks of {} experts; a token picks each expert at most once, so "
                "expected 1 to {} picks",
                text, picks, experts, experts);
  SWITCHYARD_TRY(check_size(text, "width", width, kMaxWidth));
  SWITCHYARD_TRY(check_size(text, "expert width", ffn_width, kMaxWidth));
  constexpr int kManyLayers = 64;  // as many copies as it takes to leave the caches
  return MoeShape{std::string(text),
                  static_cast<int>(experts),
                  static_cast<int>(picks),
                  width,
                  ffn_width,
                  kManyLayers,
                  1};
}

}  // namespace switchyard::cli
