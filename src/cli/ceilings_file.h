// SPDX-License-Identifier: Apache-2.0
// The machine's ceilings, measured, or kept in a file so that several runs share one measurement.
#pragma once
#include <string>

#include "base/result.h"
#include "base/threads.h"
#include "kernels/cpu/ceilings.h"

namespace switchyard::cli {

/// With an empty path: measures. Else reads the file, or measures and writes it when there is none.
/// Errors: bad_file for a damaged file, bad_request for one of another machine or thread count.
Result<cpu::Ceilings> load_ceilings(const std::string& path, Pool& pool);

}  // namespace switchyard::cli
