// SPDX-License-Identifier: Apache-2.0
#include "placement/table.h"

namespace switchyard::placement {
namespace {

constexpr const Policy* kPolicies[] = {&kRoundRobin, &kGreedy, &kReplicateHot, &kEplb};

}  // namespace

std::span<const Policy* const> policies() { return kPolicies; }

}  // namespace switchyard::placement
