// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_moe_draw.h"

#include <algorithm>
#include <numeric>

#include "device/arena.h"
#include "moe/capacity.h"

namespace switchyard::cli {
namespace {

std::vector<int32_t> count_loads(const std::vector<int32_t>& expert, int num_experts) {
  std::vector<int32_t> load(static_cast<size_t>(num_experts), 0);
  for (const int32_t e : expert)
    if (e >= 0) ++load[static_cast<size_t>(e)];
  return load;
}

RouterSpec limited_router(const MoeShape& shape, double factor) {
  RouterSpec spec;
  spec.num_experts = shape.num_experts;
  spec.top_k = shape.top_k;
  spec.capacity_factor = static_cast<float>(factor);
  spec.overflow = factor > 0 ? Overflow::drop_lowest : Overflow::none;
  return spec;
}

/// Drops, in place, what exceeds the capacity of any expert of any rank.
Status limit(const MoeShape& shape, double factor, moe::Picks& picks, int64_t tokens,
             std::vector<int32_t>& demand, const Stream& stream) {
  const RouterSpec spec = limited_router(shape, factor);
  SWITCHYARD_ASSIGN(Arena arena, Arena::create(moe::limit_load_room(spec, tokens) + 64));
  Routing routing{TensorView::of(picks.expert.data(), {tokens, shape.top_k}),
                  TensorView::of(picks.weight.data(), {tokens, shape.top_k}),
                  TensorView::of(demand.data(), {shape.num_experts}),
                  TensorView::of(demand.data(), {shape.num_experts}),
                  {}};
  moe::limit_load(spec, routing, {stream, arena});
  return {};
}

}  // namespace

Result<MoeDraw> MoeDraw::make(const MoeShape& shape, const moe::Traffic& traffic, int layer,
                              int64_t tokens, uint32_t step, double factor, const Stream& stream) {
  MoeDraw draw;
  draw.tokens_ = tokens;
  draw.top_k_ = shape.top_k;
  draw.picks_ = traffic.draw(layer, tokens, step);
  std::vector<int32_t> demand = count_loads(draw.picks_.expert, shape.num_experts);
  SWITCHYARD_TRY(limit(shape, factor, draw.picks_, tokens, demand, stream));
  const int slots = shape.num_slots();
  for (int32_t& e : draw.picks_.expert)
    if (e >= slots) e = -1;  // on another rank
  draw.load_ = count_loads(draw.picks_.expert, slots);
  draw.demand_.assign(demand.begin(), demand.begin() + slots);
  draw.capacity_ = std::max(*std::max_element(draw.load_.begin(), draw.load_.end()), 1);
  if (factor > 0) {
    const RouterSpec spec = limited_router(shape, factor);
    SWITCHYARD_ASSIGN(const moe::CapacityRounding* rounding,
                      moe::find_capacity_rounding(spec.capacity_rounding));
    draw.capacity_ = moe::expert_capacity(*rounding, tokens, shape.top_k, shape.num_experts,
                                          spec.capacity_factor);
  }
  return draw;
}

Routing MoeDraw::routing() const {
  return {TensorView::of(picks_.expert.data(), {tokens_, top_k_}),
          TensorView::of(picks_.weight.data(), {tokens_, top_k_}),
          TensorView::of(load_.data(), {std::ssize(load_)}),
          TensorView::of(demand_.data(), {std::ssize(demand_)}),
          {}};
}

int MoeDraw::touched() const noexcept {
  return static_cast<int>(
      std::count_if(load_.begin(), load_.end(), [](int32_t n) { return n > 0; }));
}

int64_t MoeDraw::picks() const noexcept {
  return std::accumulate(demand_.begin(), demand_.end(), int64_t{0});
}

int64_t MoeDraw::kept_picks() const noexcept {
  return std::accumulate(load_.begin(), load_.end(), int64_t{0});
}

double MoeDraw::imbalance() const noexcept {
  const int64_t all = picks();
  if (all == 0) return 0;
  const int32_t hottest = *std::max_element(demand_.begin(), demand_.end());
  return double{1} * hottest * static_cast<double>(demand_.size()) / static_cast<double>(all);
}

MoeLoad mean_load(const std::vector<MoeDraw>& draws) {
  MoeLoad mean;
  int counted = 0;  // draws with any pick here: the others have no imbalance
  for (const MoeDraw& draw : draws) {
    mean.touched += draw.touched();
    mean.imbalance += draw.imbalance();
    mean.picks += static_cast<double>(draw.picks());
    mean.kept_picks += static_cast<double>(draw.kept_picks());
    mean.mean_capacity += static_cast<double>(draw.capacity());
    mean.max_capacity = std::max(mean.max_capacity, draw.capacity());
    counted += draw.picks() > 0 ? 1 : 0;
  }
  const auto count = static_cast<double>(draws.size());
  mean.touched /= count;
  mean.imbalance /= std::max(counted, 1);
  mean.picks /= count;
  mean.kept_picks /= count;
  mean.mean_capacity /= count;
  return mean;
}

}  // namespace switchyard::cli
