// SPDX-License-Identifier: Apache-2.0
// Arrays: prefixItems, then items, minItems to maxItems in all.
#include <algorithm>
#include <limits>
#include <vector>

#include "grammar/compiler.h"

namespace switchyard::grammar {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

struct Items {
  std::vector<int32_t> first;  // parts of the first ones
  int32_t rest = 0;            // the part of all others
  int64_t least = 0, most = kUnlimited;

  int32_t part(int64_t index) const {
    return index < std::ssize(first) ? first[static_cast<size_t>(index)] : rest;
  }
  /// Items are alike from this one on, and may end behind any: there the automaton turns in a circle.
  int64_t alike_from() const { return std::max(std::ssize(first), least); }
};

Result<Items> items_of(Compiler& to, const Node& node) {
  Items items;
  SWITCHYARD_ASSIGN(const Json* const prefix, find_array(node, "prefixItems"));
  if (prefix != nullptr)
    for (size_t i = 0; i < prefix->as_array().size(); ++i)
      items.first.push_back(to.part_of(node.child(prefix->as_array()[i], "prefixItems")
                                           .child(prefix->as_array()[i], std::to_string(i))));
  SWITCHYARD_ASSIGN(items.least, find_count(node, "minItems", 0));
  SWITCHYARD_ASSIGN(items.most, find_count(node, "maxItems", kUnlimited));
  const Json* rest = node.find("items");
  if (rest != nullptr && rest->is_array())
    return bad_keyword(node, "items", "a list is not supported: write prefixItems");
  if (rest != nullptr && rest->is_bool() && !rest->as_bool())
    items.most = std::min(items.most, std::ssize(items.first));
  else
    items.rest = rest == nullptr ? to.any_value() : to.part_of(node.child(*rest, "items"));
  if (items.least > items.most)
    return bad_keyword(node, "minItems",
                       fmt::format("{} items at least, but {} at most", items.least, items.most));
  const int64_t written = items.most == kUnlimited ? items.least : items.most;
  if (written > Budget::kMaxStates)
    return bad_keyword(
        node, items.most == kUnlimited ? "minItems" : "maxItems",
        fmt::format("{} items need more than {} states", written, Budget::kMaxStates));
  return items;
}

}  // namespace

Status compile_array(Compiler& to, const Node& node, int32_t start) {
  SWITCHYARD_ASSIGN(const Items items, items_of(to, node));
  Network& net = to.network();
  const int32_t open = net.add_state();
  net.add_edge(start, '[', '[', open);
  if (items.least == 0) net.add_edge(open, ']', ']', to.end());
  if (items.most == 0) return {};
  std::pair<int32_t, int32_t> before{open, open};  // the states from which the next item is called
  for (int64_t i = 0; i < items.most; ++i) {
    const int32_t behind = net.add_state();
    net.add_call(before.first, items.part(i), behind);
    if (before.second != before.first) net.add_call(before.second, items.part(i), behind);
    if (i + 1 >= items.least) net.add_edge(behind, ']', ']', to.end());
    if (i + 1 == items.most) break;
    const auto next = to.add_mark(behind, ',');
    if (items.most == kUnlimited && i >= items.alike_from()) {
      net.add_call(next.first, items.rest, behind);
      net.add_call(next.second, items.rest, behind);
      break;
    }
    before = next;
    SWITCHYARD_TRY(net.check_size());
  }
  return {};
}

}  // namespace switchyard::grammar
