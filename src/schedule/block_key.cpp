// SPDX-License-Identifier: Apache-2.0
#include "schedule/block_key.h"

namespace switchyard::schedule {
BlockKey first_key(const SipKey& secret, std::string_view salt) {
  const auto [low, high] = siphash_128(secret, std::as_bytes(std::span(salt)));
  return {low, high};
}

BlockKey next_key(const SipKey& secret, const BlockKey& before, std::span<const int32_t> tokens) {
  const uint64_t head[] = {before.low, before.high};
  const auto [low, high] = siphash_128(secret, std::as_bytes(tokens), head);
  return {low, high};
}

}  // namespace switchyard::schedule
