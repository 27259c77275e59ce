// SPDX-License-Identifier: Apache-2.0
// One pass in double; the first non-finite value ends the search for the worst index.
#include "tensor/compare.h"

#include <cmath>
#include <limits>

#include "base/check.h"

namespace switchyard {

Comparison compare(std::span<const float> found, std::span<const float> expected) {
  SWITCHYARD_CHECK(found.size() == expected.size(), "{} values against {}", found.size(),
                   expected.size());
  Comparison c;
  double error = 0, power = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double difference =
        std::fabs(static_cast<double>(found[i]) - static_cast<double>(expected[i]));
    const bool finite = std::isfinite(found[i]) && std::isfinite(expected[i]);
    if (c.finite && (!finite || difference > c.max_error || c.worst_index < 0)) {
      c.worst_index = static_cast<int64_t>(i);
      c.max_error = finite ? difference : std::numeric_limits<double>::infinity();
      c.found = found[i];
      c.expected = expected[i];
    }
    c.finite &= finite;
    error += difference * difference;
    power += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
  }
  if (!c.finite || (power == 0 && error > 0)) {
    c.nmse = std::numeric_limits<double>::infinity();
  } else if (power > 0) {
    c.nmse = error / power;
  }
  c.relative_error = std::sqrt(c.nmse);
  return c;
}

std::string Comparison::text() const {
  return fmt::format(
      "relative error {:.3g}, largest error {:.3g} at index {}: found {}, expected {}",
      relative_error, max_error, worst_index, found, expected);
}

}  // namespace switchyard
