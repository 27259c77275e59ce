// SPDX-License-Identifier: Apache-2.0
// Numbers as JSON writes them, of bounded length: whole numbers have at most 18 digits (so that they fit int64), fractions
// 17, exponents two. Otherwise a model could write digits for ever, or numbers that readers refuse.
#pragma once
#include <cstdint>

#include "grammar/regular.h"

namespace switchyard::grammar {

inline constexpr int64_t kLargestInteger = 999'999'999'999'999'999;  // 18 nines

/// low <= n <= high, both within +-kLargestInteger; -0 is not written.
Fragment add_integer(Nfa& nfa, int64_t low, int64_t high);
Fragment add_number(Nfa& nfa);

}  // namespace switchyard::grammar
