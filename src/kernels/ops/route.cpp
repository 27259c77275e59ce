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

// The best `top` of `parts` equal parts of the experts must hold what a token picks.
Status check_parts(const RouterSpec& spec, std::string_view what, int parts, std::string_view limit,
                   int top) {
  if (parts < 1 || spec.num_experts % parts != 0) {
    return fail(Code::bad_request, "router: {} {} do not divide {} experts evenly", parts, what,
                spec.num_experts);
  }
  if (top < 1 || top > parts) {
    return fail(Code::bad_request, "router: {} is {}, expected 1 to num_{} ({})", limit, top, what,
                parts);
  }
  const int reachable = spec.num_experts / parts * top;
  if (spec.top_k > reachable) {
    return fail(Code::bad_request,
                "router: top_k is {}, but the {} best of {} {} hold only {} experts", spec.top_k,
                top, parts, what, reachable);
  }
  return {};
}

Status check_groups(const RouterSpec& spec) {
  SWITCHYARD_TRY(check_parts(spec, "groups", spec.num_groups, "top_groups", spec.top_groups));
  if (spec.max_devices < 0) {
    return fail(Code::bad_request, "router: max_devices is {}, expected 0 (no limit) or more",
                spec.max_devices);
  }
  SWITCHYARD_TRY(check_parts(spec, "devices", spec.num_devices, "max_devices",
                             spec.max_devices == 0 ? spec.num_devices : spec.max_devices));
  if (spec.num_groups > 1 && spec.max_devices > 0) {
    return fail(Code::bad_request,
                "router: {} groups and a limit of {} devices; expected one kind of limit: no model "
                "defines their order",
                spec.num_groups, spec.max_devices);
  }
  if (spec.group_score == GroupScore::sum_top_2 && spec.num_experts / spec.num_groups < 2) {
    return fail(Code::bad_request,
                "router: sum_top_2 sums the two best of a group, but {} groups of {} experts have "
                "one each",
                spec.num_groups, spec.num_experts);
  }
  return {};
}

Status check_weights(const RouterSpec& spec) {
  SWITCHYARD_TRY(check_number("renormalize_epsilon", spec.renormalize_epsilon, 0));
  SWITCHYARD_TRY(check_number("renormalize_minimum", spec.renormalize_minimum, 0));
  SWITCHYARD_TRY(check_number("norm_order", spec.norm_order, 1));
  SWITCHYARD_TRY(check_number("scale", spec.scale, 0));
  SWITCHYARD_TRY(check_number("noise", spec.noise, 0));
  SWITCHYARD_TRY(check_number("jitter", spec.jitter, 0));
  if (spec.weigh != Weigh::renormalize &&
      (spec.renormalize_epsilon != 0 || spec.renormalize_minimum != 0 || spec.norm_order != 1)) {
    return fail(Code::bad_request,
                "router: renormalize_epsilon, renormalize_minimum and norm_order shape the divisor "
                "of renormalize, but these weights are not renormalized");
  }
  if (spec.weigh != Weigh::softmax_after_top_k) return {};
  if (spec.score != Score::softmax) {
    return fail(Code::bad_request,
                "router: softmax_after_top_k weighs logits and needs the softmax score");
  }
  if (spec.selection_bias || (spec.num_groups > 1 && spec.group_score == GroupScore::sum_top_2)) {
    return fail(Code::bad_request,
                "router: softmax_after_top_k picks by the logits alone; a selection bias or "
                "sum_top_2 would pick by scores");
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

// |w|_p; large powers are taken of ratios, so that they cannot overflow.
float norm(const float* w, int k, float p) noexcept {
  float sum = 0, largest = 0;
  for (int i = 0; i < k; ++i) {
    sum += w[i];
    largest = std::max(largest, w[i]);
  }
  if (p == 1 || largest == 0) return sum;
  float powers = 0;
  for (int i = 0; i < k; ++i) powers += std::pow(w[i] / largest, p);
  return largest * std::pow(powers, 1 / p);
}

// What the picks' scores are divided by, the softmax' own divisor included.
float divisor(const RouterSpec& spec, float sum, const float* score) noexcept {
  if (spec.weigh == Weigh::softmax_after_top_k) return norm(score, spec.top_k, 1);
  if (spec.weigh == Weigh::raw) return sum;
  const float length = norm(score, spec.top_k, spec.norm_order);
  if (spec.renormalize_epsilon == 0 && spec.renormalize_minimum == 0) return length;
  return sum * std::max(length / sum + spec.renormalize_epsilon, spec.renormalize_minimum);
}

}  // namespace

bool weighs_by_sum(const RouterSpec& spec) noexcept {
  if (spec.score != Score::softmax || spec.weigh == Weigh::softmax_after_top_k) return false;
  return spec.weigh == Weigh::raw || spec.renormalize_epsilon != 0 || spec.renormalize_minimum != 0;
}

void finish_weights(const RouterSpec& spec, float sum, float* weight) noexcept {
  const float by = divisor(spec, sum, weight);
  for (int i = 0; i < spec.top_k; ++i) weight[i] = by == 0 ? 0 : weight[i] / by * spec.scale;
}

Status RouterSpec::check() const {
  if (num_experts < 1 || num_experts > kMaxExperts) {
    return fail(Code::bad_request, "router: num_experts is {}, expected 1 to {}", num_experts,
                kMaxExperts);
  }
  if (top_k < 1 || top_k > num_experts) {
    return fail(Code::bad_request, "router: top_k is {}, expected 1 to num_experts ({})", top_k,
                num_experts);
  }
  if (selector.empty()) {
    return fail(Code::bad_request,
                "router: no selector is named, expected one such as token_choice");
  }
  SWITCHYARD_TRY(check_groups(*this));
  SWITCHYARD_TRY(check_weights(*this));
  return check_capacity(*this);
}

}  // namespace switchyard
