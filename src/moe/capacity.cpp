// SPDX-License-Identifier: Apache-2.0
// src/moe/capacity.cpp: the rounding rules that we know, and the dropping.
#include "moe/capacity.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include <fmt/format.h>

namespace switchyard::moe {
namespace {

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t round_ceil(int64_t factor, int64_t tokens, int64_t top_k, int64_t num_experts) {
  return divide_up(factor * tokens * top_k, num_experts * kCapacityUnit);
}

int64_t round_floor(int64_t factor, int64_t tokens, int64_t top_k, int64_t num_experts) {
  return factor * tokens * top_k / (num_experts * kCapacityUnit);
}

int64_t round_gshard(int64_t factor, int64_t tokens, int64_t top_k, int64_t num_experts) {
  return divide_up(factor * tokens, kCapacityUnit) * top_k / num_experts;
}

int64_t round_tutel(int64_t factor, int64_t tokens, int64_t top_k, int64_t num_experts) {
  return top_k * (factor * divide_up(tokens, num_experts) / kCapacityUnit);
}

constexpr CapacityRounding kRoundings[] = {
    {"ceil", "ceil(c K T / E), as DeepSpeed and Megatron-LM", round_ceil},
    {"floor", "floor(c K T / E), as MegaBlocks, but at least 1", round_floor},
    {"gshard", "floor(ceil(c T) K / E), as the GShard gate of FastMoE, but at least 1",
     round_gshard},
    {"tutel", "K floor(c ceil(T / E)), as Tutel, but at least 1", round_tutel},
};

const CapacityRounding* find(std::string_view name) {
  for (const CapacityRounding& rounding : kRoundings)
    if (rounding.name == name) return &rounding;
  return nullptr;
}

/// Counts the picks that each expert keeps, in token order, and drops the rest.
void drop_last(int64_t capacity, std::span<int32_t> expert, std::span<int32_t> load) {
  std::fill(load.begin(), load.end(), 0);
  for (int32_t& e : expert) {
    if (e < 0) continue;
    if (load[e] == capacity) {
      e = -1;
    } else {
      ++load[e];
    }
  }
}

/// Rank of a weight; one that is not a number comes last.
float rank(float weight) {
  return std::isnan(weight) ? -std::numeric_limits<float>::infinity() : weight;
}

/// Collects the picks of the overfull experts, side by side, and drops the lightest of each. The
/// order of (weight, pick) is total, so the dropped set does not depend on the selection algorithm.
void drop_lowest(int64_t capacity, std::span<int32_t> expert, const float* weight,
                 const int32_t* demand, std::span<int32_t> load, Arena& arena) {
  const auto end = arena.take<int32_t>(static_cast<int64_t>(load.size()));
  const auto picks = arena.take<int32_t>(static_cast<int64_t>(expert.size()));
  int32_t used = 0;
  for (size_t e = 0; e < load.size(); ++e) {
    end[e] = used;
    if (demand[e] > capacity) used += demand[e];
  }
  for (size_t pick = 0; pick < expert.size(); ++pick) {
    const int32_t e = expert[pick];
    if (e >= 0 && demand[e] > capacity) picks[end[e]++] = static_cast<int32_t>(pick);
  }
  for (size_t e = 0; e < load.size(); ++e) {
    load[e] = std::min(demand[e], static_cast<int32_t>(capacity));
    if (demand[e] <= capacity) continue;
    int32_t* const last = picks.data() + end[e];
    int32_t* const first = last - demand[e];
    std::nth_element(first, first + capacity, last, [weight](int32_t a, int32_t b) {
      const float x = rank(weight[a]), y = rank(weight[b]);
      return x != y ? x > y : a < b;
    });
    for (int32_t* at = first + capacity; at < last; ++at) expert[*at] = -1;
  }
}

int64_t count_unrouted(std::span<const int32_t> expert, int64_t top_k) {
  int64_t unrouted = 0;
  for (size_t at = 0; at < expert.size(); at += top_k) {
    const auto picks = expert.subspan(at, top_k);
    unrouted += std::all_of(picks.begin(), picks.end(), [](int32_t e) { return e < 0; }) ? 1 : 0;
  }
  return unrouted;
}

}  // namespace

std::span<const CapacityRounding> capacity_roundings() { return kRoundings; }

Result<const CapacityRounding*> find_capacity_rounding(std::string_view name) {
  if (const CapacityRounding* rounding = find(name)) return rounding;
  std::string known;
  for (const CapacityRounding& rounding : kRoundings) known += fmt::format(" {}", rounding.name);
  return fail(Code::bad_request, "router: no capacity rounding is called '{}'; known:{}", name,
              known);
}

Result<Overflow> find_overflow(std::string_view name) {
  if (name == "drop_last") return Overflow::drop_last;
  if (name == "drop_lowest") return Overflow::drop_lowest;
  return fail(Code::bad_request,
              "router: no overflow rule is called '{}'; known: drop_last drop_lowest", name);
}

int64_t expert_capacity(const CapacityRounding& rounding, int64_t tokens, int top_k,
                        int num_experts, float factor) {
  if (tokens == 0) return 0;
  const auto units =
      static_cast<int64_t>(std::llround(static_cast<double>(factor) * kCapacityUnit));
  return std::max<int64_t>(rounding.round(units, tokens, top_k, num_experts), 1);
}

void limit_load(const RouterSpec& spec, Routing& routing, const Step& step) {
  if (spec.capacity_factor == 0) return;
  const ZoneScope zone(step.stream.tracer(), Zone::sort, step.layer);
  const int64_t tokens = routing.expert.shape[0], top_k = routing.expert.shape[1];
  const int64_t num_experts = routing.demand.shape[0];
  const auto* demand = routing.demand.as<int32_t>();
  const CapacityRounding* rounding = find(spec.capacity_rounding);
  SWITCHYARD_CHECK(rounding != nullptr, "capacity rounding {}", spec.capacity_rounding);
  const int64_t capacity =
      expert_capacity(*rounding, tokens, spec.top_k, spec.num_experts, spec.capacity_factor);
  int64_t dropped = 0;
  for (int64_t e = 0; e < num_experts; ++e) dropped += std::max(demand[e] - capacity, int64_t{0});
  if (dropped == 0) return;
  const auto load = step.arena.take<int32_t>(num_experts);
  const int64_t mark = step.arena.mark();
  const std::span expert(routing.expert.as<int32_t>(), static_cast<size_t>(tokens * top_k));
  if (spec.overflow == Overflow::drop_last) {
    drop_last(capacity, expert, load);
  } else {
    drop_lowest(capacity, expert, routing.weight.as<float>(), demand, load, step.arena);
  }
  step.arena.rewind(mark);
  routing.load = TensorView::of(load.data(), {num_experts});
  routing.counts.dropped += dropped;
  routing.counts.unrouted_tokens = count_unrouted(expert, top_k);
}

int64_t limit_load_room(const RouterSpec& spec, int64_t max_tokens) noexcept {
  if (spec.capacity_factor == 0) return 0;
  return 2 * Arena::room<int32_t>(spec.num_experts) + Arena::room<int32_t>(max_tokens * spec.top_k);
}

}  // namespace switchyard::moe
