// SPDX-License-Identifier: Apache-2.0
// src/moe/route/table.cpp: the routing algorithms that we know.
#include "moe/route/table.h"

#include "moe/route/expert_choice.h"
#include "moe/route/gshard_top_2.h"
#include "moe/route/noisy_top_k.h"
#include "moe/route/sparsemixer.h"
#include "moe/route/token_choice.h"

namespace switchyard::moe {
namespace {

constexpr Selector kSelectors[] = {
    {"token_choice",
     "top-k of softmax, sigmoid or sqrt(softplus): raw, renormalised, or softmax over the picks; "
     "selection bias; limits to groups or devices",
     check_token_choice, token_choice},
    {"noisy_top_k", "Shazeer's gate: top-k of noisy logits, with its importance and load",
     check_noisy_top_k, noisy_top_k},
    {"gshard_top_2", "GShard's gate: the best expert, and the second by chance when training",
     check_gshard_top_2, gshard_top_2},
    {"sparsemixer", "Phi-3.5-MoE's two rounds of argmax, each weighed among near experts",
     check_sparsemixer, sparsemixer},
    {"expert_choice", "experts pick tokens; only for models that say they were trained so",
     check_expert_choice, expert_choice, expert_choice_columns},
};

}  // namespace

std::span<const Selector> selectors() { return kSelectors; }

Result<const Selector*> find_selector(std::string_view name) {
  std::string known;
  for (const Selector& selector : kSelectors) {
    if (selector.name == name) return &selector;
    known += fmt::format(" {}", selector.name);
  }
  return fail(Code::unsupported, "router: no selector is called '{}'; known:{}", name, known);
}

}  // namespace switchyard::moe
