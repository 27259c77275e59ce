// SPDX-License-Identifier: Apache-2.0
// Partial selection over a row of logits: its finite check, its largest entry, and its few best
// entries in order, without sorting the vocabulary.
#pragma once
#include <cstdint>
#include <span>

namespace switchyard::engine {

struct Candidate {
  float logit = 0;
  int32_t token = 0;
};

/// Better first: the higher logit, and of equal ones the lower token.
constexpr bool better(const Candidate& a, const Candidate& b) noexcept {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

/// Turns a logit into a probability, as a multiple of the likeliest token's.
struct Weigher {
  double largest = 0;  ///< the largest logit
  double inverse_temperature = 1;
  double operator()(float logit) const noexcept;
};

/// False when any of the logits is NaN or infinite.
bool all_finite(std::span<const float> logits) noexcept;

/// The largest logit with the lowest token that has it. logits [V] without NaN, not empty.
Candidate find_largest(std::span<const float> logits) noexcept;

/// Writes the `count` best candidates into `to`, best first, and says how many there are: fewer
/// only when fewer logits are above minus infinity. `to` has V entries, of which all may be
/// overwritten. Keeps those above a rising threshold in a buffer and halves it when it is full: O(V
/// + count log count) expected.
int64_t select_best(std::span<const float> logits, int64_t count, std::span<Candidate> to) noexcept;

/// Moves the fewest best candidates whose weights sum to `mass` to the front, in no order, and says how many there
/// are: all of them when even their sum is less. A quickselect by weight: O(V) expected.
int64_t select_mass(std::span<Candidate> candidates, double mass, const Weigher& weigh) noexcept;

}  // namespace switchyard::engine
