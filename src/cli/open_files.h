// SPDX-License-Identifier: Apache-2.0
// A connection is a file, and the usual limit of open files is low.
#pragma once
#include <cstddef>

namespace switchyard::cli {

/// Asks for as many open files as the system allows, and says how many that are.
size_t raise_open_files();

}  // namespace switchyard::cli
