// SPDX-License-Identifier: Apache-2.0
// BlockKey: the name of what a full KV block holds. A chain: the key of block i covers its own tokens and, through the
// key of block i - 1, all tokens before them and the salt; so equal keys mean equal keys and values.
//
// The hash is keyed by a secret of the engine, which stands for the model too (one engine, one model, one secret):
// nobody outside can make two prompts collide, or tell from a key what a prompt was. The salt parts users from each
// other: without it, a prompt that is answered at once tells that somebody else has sent it.
// Source: vLLM's prefix caching (hash chain, salt); CVE-2025-25183 is what a guessable hash leads to.
#pragma once
#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/siphash.h"

namespace switchyard::schedule {

struct BlockKey {
  uint64_t low = 0, high = 0;
  auto operator<=>(const BlockKey&) const = default;
};

/// The key before the first block.
BlockKey first_key(const SipKey& secret, std::string_view salt);
/// The key of the block of `tokens` [P] that follows the block of key `before`.
BlockKey next_key(const SipKey& secret, const BlockKey& before, std::span<const int32_t> tokens);

}  // namespace switchyard::schedule
