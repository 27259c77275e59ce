// SPDX-License-Identifier: Apache-2.0
// The reference entries as a table: the last resort of every operation. Seen by select.cpp alone.
#pragma once
#include "kernels/op.h"

namespace switchyard::ref {

/// The reference of an operation; defined for every op in table.cpp.
template <class Op>
const Kernel<Op>& table();

}  // namespace switchyard::ref
