// SPDX-License-Identifier: Apache-2.0
// How far two tensors are apart: normalised mean square error, largest error, first bad index.
#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace switchyard {

struct Comparison {
  double nmse = 0;            ///< sum (a-b)^2 / sum b^2; infinity when anything is not finite
  double max_error = 0;       ///< largest |a-b|
  double relative_error = 0;  ///< sqrt(nmse): relative L2 error
  int64_t worst_index = -1;   ///< index of max_error, or of the first non-finite value
  bool finite = true;         ///< both sides are finite everywhere
  std::string text() const;   ///< one line with the values at worst_index
  float found = 0, expected = 0;
};

Comparison compare(std::span<const float> found, std::span<const float> expected);

}  // namespace switchyard
