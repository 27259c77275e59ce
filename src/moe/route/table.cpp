// SPDX-License-Identifier: Apache-2.0
// src/moe/route/table.cpp: the routing algorithms that we know.
#include "moe/route/table.h"

#include "moe/route/token_choice.h"

namespace switchyard::moe {
namespace {

constexpr Selector kSelectors[] = {
    {"token_choice", "softmax top-k: raw, renormalised, or softmax over the picks",
     check_token_choice, token_choice},
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
