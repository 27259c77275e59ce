// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/route.h"

#include <cmath>

namespace switchyard {
namespace {

// A number of a configuration that must be finite and at least `lowest`.
Status check_number(std::string_view name, float value, float lowest) {
  if (std::isfinite(value) && value >= lowest) return {};
  return fail(Code::bad_request, "router: {} is {}, expected a finite number of at least {}", name,
              value, lowest);
}

Status check_groups(const RouterSpec& spec) {
  if (spec.num_groups < 1 || spec.num_experts % spec.num_groups != 0) {
    return fail(Code::bad_request, "router: {} groups do not divide {} experts evenly",
                spec.num_groups, spec.num_experts);
  }
  if (spec.top_groups < 1 || spec.top_groups > spec.num_groups) {
    return fail(Code::bad_request, "router: top_groups is {}, expected 1 to num_groups ({})",
                spec.top_groups, spec.num_groups);
  }
  const int reachable = spec.num_experts / spec.num_groups * spec.top_groups;
  if (spec.top_k > reachable) {
    return fail(Code::bad_request,
                "router: top_k is {}, but the {} best of {} groups hold only {} experts",
                spec.top_k, spec.top_groups, spec.num_groups, reachable);
  }
  return {};
}

Status check_capacity(const RouterSpec& spec) {
  SWITCHYARD_TRY(check_number("capacity_factor", spec.capacity_factor, 0));
  if (spec.capacity_factor > static_cast<float>(spec.num_experts)) {
    return fail(Code::bad_request,
                "router: capacity_factor is {}, but nothing is dropped from num_experts / top_k "
                "({:.4g}) on; expected at most num_experts ({}), or 0 for dropless",
                spec.capacity_factor, static_cast<double>(spec.num_experts) / spec.top_k,
                spec.num_experts);
  }
  const bool limited = spec.capacity_factor > 0;
  if (limited != (spec.overflow != Overflow::none)) {
    return fail(Code::bad_request,
                "router: capacity_factor is {} and overflow is {}; expected both or neither: a "
                "capacity needs a rule for what is dropped, and a dropless router has none",
                spec.capacity_factor, spec.overflow == Overflow::none ? "none" : "set");
  }
  return {};
}

}  // namespace

Status RouterSpec::check() const {
  if (num_experts < 1) {
    return fail(Code::bad_request, "router: num_experts is {}, expected at least 1", num_experts);
  }
  if (top_k < 1 || top_k > num_experts) {
    return fail(Code::bad_request, "router: top_k is {}, expected 1 to num_experts ({})", top_k,
                num_experts);
  }
  if (selector.empty()) {
    return fail(Code::bad_request,
                "router: no selector is named, expected one such as token_choice");
  }
  if (weigh == Weigh::softmax_after_top_k && score != Score::softmax) {
    return fail(Code::bad_request,
                "router: softmax_after_top_k weighs logits and needs the softmax score");
  }
  if (max_devices < 0) {
    return fail(Code::bad_request, "router: max_devices is {}, expected 0 (no limit) or more",
                max_devices);
  }
  SWITCHYARD_TRY(check_groups(*this));
  SWITCHYARD_TRY(check_number("renormalize_epsilon", renormalize_epsilon, 0));
  SWITCHYARD_TRY(check_number("noise", noise, 0));
  SWITCHYARD_TRY(check_number("scale", scale, 0));
  return check_capacity(*this);
}

}  // namespace switchyard
