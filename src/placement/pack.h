// SPDX-License-Identifier: Apache-2.0
// Packing replicas onto ranks of equally many slots: heaviest first, each to the lightest rank that
// has a slot and does not hold its expert (longest processing time first; Graham 1969, within 4/3
// of the best without the limit on slots).
#pragma once
#include <span>
#include <vector>

#include "placement/placement.h"

namespace switchyard::placement {

/// copies [E]: replicas of each expert in all, 1 to W. Slots a rank: as few as hold them all. Equal
/// loads go by the lower expert, equal ranks by the lower rank. Cost O((E + R) W).
Placement pack(std::span<const double> load, std::span<const int> copies, int num_ranks);

/// The one with the lower predicted maximum over `load`; the first of equals.
Placement better(Placement a, Placement b, std::span<const double> load);

}  // namespace switchyard::placement
