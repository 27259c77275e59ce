// SPDX-License-Identifier: Apache-2.0
// The CPU kernels as tables, best first. Seen by select.cpp alone.
#pragma once
#include <span>

#include "kernels/op.h"

namespace switchyard::cpu {

/// The entries of an operation; defined for every op in table.cpp.
template <class Op>
std::span<const Kernel<Op>> table();

}  // namespace switchyard::cpu
