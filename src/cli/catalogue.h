// SPDX-License-Identifier: Apache-2.0
// The tables of what this build knows: model families, routers, checkpoint formats, kernels by
// operation. README shows the same text, and a test compares them.
#pragma once
#include <string>

namespace switchyard::cli {

std::string catalogue_markdown();

}  // namespace switchyard::cli
