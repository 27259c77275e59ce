// SPDX-License-Identifier: Apache-2.0
// The few metrics that routers, autoscalers and load generators scrape from vLLM, under its names and labels.
// Names: vLLM's metrics documentation (V1 engine). They have colons, which promtool finds fault with.
#pragma once
#include <string>
#include <string_view>

namespace switchyard::serve {

/// Made from a text of ours; what that lacks is left out.
std::string vllm_metrics(std::string_view exposition, std::string_view model_name);

}  // namespace switchyard::serve
