// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_moe_layer.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

namespace switchyard::testing {
namespace {

std::vector<float> normals(int64_t count, float deviation, std::mt19937& random) {
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

MoeFfn::Problem problem_of(const cases::MoeFfnCase& which) {
  MoeFfn::Problem problem;
  problem.rule.experts = which.experts;
  problem.rule.top_k = which.top_k;
  problem.rule.weigh = RouteRule::Weigh::renormalize;
  problem.width = which.width;
  problem.ffn_width = which.ffn_width;
  problem.activation = which.activation;
  problem.weight_on_input = which.weight_on_input;
  problem.max_tokens = std::max<int64_t>(which.tokens, 1);
  return problem;
}

}  // namespace

std::vector<float> random_logits(cases::Popularity popularity, int64_t tokens, int experts,
                                 int top_k, std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(1e-6f, 1.0f);
  std::vector<float> logits(tokens * experts);
  std::mt19937 of_experts(static_cast<unsigned>(experts));
  const std::vector<float> means = normals(experts, 2.5f, of_experts);
  for (int64_t i = 0; i < tokens * experts; ++i) {
    const int e = static_cast<int>(i % experts);
    float bias = 0;
    if (popularity == cases::Popularity::zipf) bias = -std::log(static_cast<float>(e + 1));
    if (popularity == cases::Popularity::one && e == experts - 1) bias = 50;
    if (popularity == cases::Popularity::few_only && e < top_k) bias = 50;
    if (popularity == cases::Popularity::uneven) bias = means[static_cast<size_t>(e)];
    logits[i] = bias - std::log(-std::log(uniform(random)));
  }
  return logits;
}

L2Sides some_sides(uint32_t mask) {
  L2Sides sides{.mask = mask};
  for (uint32_t& word : sides.near) word = 0x3a5c96e1;
  return sides;
}

RoutingArrays::RoutingArrays(int64_t tokens, const RouteRule& rule)
    : expert(tokens * rule.top_k),
      pick_row(tokens * rule.top_k),
      row_token(tokens * rule.top_k),
      slot_offset(rule.experts + 1),
      hit(rule.experts),
      num_hit(1),
      unusable(1),
      weight(tokens * rule.top_k) {
  unusable.bytes().zero();
}
DeviceRouting RoutingArrays::view() const {
  return {expert.data(),      weight.data(), pick_row.data(), row_token.data(),
          slot_offset.data(), hit.data(),    num_hit.data(),  unusable.data()};
}
void RoutingArrays::poison() {
  for (DeviceArray<int32_t>* array :
       {&expert, &pick_row, &row_token, &slot_offset, &hit, &num_hit}) {
    array->bytes().poison();
  }
  weight.bytes().poison();
}
bool RoutingArrays::guards_are_intact() const {
  bool intact = weight.bytes().guards_are_intact();
  for (const DeviceArray<int32_t>* array :
       {&expert, &pick_row, &row_token, &slot_offset, &hit, &num_hit, &unusable}) {
    intact = intact && array->bytes().guards_are_intact();
  }
  return intact;
}

MoeLayerOnDevice::MoeLayerOnDevice(const cases::MoeFfnCase& which, unsigned seed, int sm)
    : problem(problem_of(which)),
      tokens(which.tokens),
      logits(tokens * which.experts),
      y(tokens * which.width),
      shared(tokens * which.width),
      shared_weight(tokens),
      next_norm(which.width),
      up_bias(int64_t{which.experts} * 2 * which.ffn_width),
      down_bias(which.experts * which.width),
      x(tokens * which.width),
      gate(which.experts * which.width * which.ffn_width),
      up(which.experts * which.width * which.ffn_width),
      down(which.experts * which.width * which.ffn_width),
      next_x(tokens * which.width),
      live(1),
      w13(which.experts * MoePack::w13_bytes(which.width, which.ffn_width)),
      w2(which.experts * MoePack::w2_bytes(which.width, which.ffn_width)),
      workspace(moe_layer_workspace(problem, sm)),
      sync(MoeFfn::kSyncWords * 4),
      w13_in_use(w13.data()),
      w2_in_use(w2.data()),
      routing(tokens, problem.rule),
      with_shared(which.shared),
      with_norm(which.next_norm),
      with_bias(which.bias) {
  std::mt19937 random(seed);
  logits_before = random_logits(which.popularity, tokens, which.experts, which.top_k, random);
  y_before = normals(tokens * which.width, 1, random);
  norm_weights = normals(which.width, 1, random);
  logits.set(logits_before);
  if (which.shared) shared.set(normals(tokens * which.width, 1, random));
  if (which.shared) shared_weight.set(normals(tokens, 1, random));
  next_norm.set(norm_weights);
  up_bias.set(normals(up_bias.size(), 1, random));
  down_bias.set(normals(down_bias.size(), 1, random));
  const auto fill = [&](DeviceArray<uint16_t>& array, int64_t fan_in) {
    fill_normals(array.data(), array.size(), 1 / std::sqrt(static_cast<double>(fan_in)),
                 static_cast<unsigned>(random()));
  };
  fill(x, 1);
  fill(gate, which.width);
  fill(up, which.width);
  fill(down, which.ffn_width);
  live.set({static_cast<int32_t>(tokens - which.dead_tokens)});
  sync.zero();
  pack(w13.data(), w2.data());
}

void MoeLayerOnDevice::pack(char* w13_to, char* w2_to) {
  const int64_t width = problem.width, ffn_width = problem.ffn_width;
  for (int64_t e = 0; e < problem.rule.experts; ++e) {
    const int64_t first = e * width * ffn_width;
    moe_pack_w13_on_device(gate.data() + first, up.data() + first, width, ffn_width,
                           w13_to + e * MoePack::w13_bytes(width, ffn_width), nullptr);
    moe_pack_w2_on_device(down.data() + first, width, ffn_width,
                          w2_to + e * MoePack::w2_bytes(width, ffn_width), nullptr);
  }
}

void MoeLayerOnDevice::place_by(const L2Sides& to) {
  sides = to;
  w13_in_use = w13.data();
  w2_in_use = w2.data();
  if (sides.mask == 0) return;
  // As memory of a device has it: a kernel may do more with what is aligned well.
  constexpr int64_t kAlignment = 64 << 10;
  const auto aligned = [](char* at) {
    return at + -reinterpret_cast<intptr_t>(at) % kAlignment + kAlignment;
  };
  if (!placed) placed.emplace(w13.size() + w2.size() + 3 * kAlignment);
  w13_in_use = aligned(placed->data());
  w2_in_use = aligned(w13_in_use + w13.size());
  pack(w13_in_use, w2_in_use);
  const int64_t inputs = MoePack::padded(problem.width),
                hidden = MoePack::padded(problem.ffn_width);
  const DeviceBytes scratch(4 * inputs * hidden);
  moe_place_on_device(w13_in_use, problem.rule.experts, 2 * hidden, inputs, sides, scratch.data(),
                      nullptr);
  moe_place_on_device(w2_in_use, problem.rule.experts, inputs, hidden, sides, scratch.data(),
                      nullptr);
  EXPECT_EQ(cuda_error(), "");  // before scratch is gone
}

MoeFfn::Args MoeLayerOnDevice::args() {
  MoeFfn::Args args;
  args.x = x.data();
  args.tokens = tokens;
  args.routing = routing.view();
  args.logits = picks_are_given ? nullptr : logits.data();
  args.live_tokens = live.data();
  args.w13 = w13_in_use;
  args.w2 = w2_in_use;
  args.sides = sides;
  if (with_bias) {
    args.up_bias = up_bias.data();
    args.down_bias = down_bias.data();
  }
  if (with_shared) {
    args.shared = shared.data();
    args.shared_weight = shared_weight.data();
  }
  args.scale = 0.75f;
  args.y = y.data();
  if (with_norm) {
    args.next_norm = next_norm.data();
    args.next_epsilon = 1e-5f;
    args.next_x = next_x.data();
  }
  args.sync = reinterpret_cast<uint32_t*>(sync.data());
  args.workspace = workspace.data();
  return args;
}

void MoeLayerOnDevice::run(const MoeFfn::Kernel& kernel) {
  if (!picks_are_given) routing.poison();
  workspace.poison();
  next_x.bytes().poison();
  y.set(y_before);
  run_moe_layer(kernel, problem, args(), nullptr);
}

std::vector<double> MoeLayerOnDevice::reference() {
  const std::vector<double> before(y_before.begin(), y_before.end());
  const DeviceArray<double> result(before);
  const DeviceArray<double> hidden(tokens * problem.rule.top_k * problem.ffn_width);
  reference_moe_ffn(problem, args(), {gate.data(), up.data(), down.data()}, hidden.data(),
                    result.data());
  return result.host();
}

bool MoeLayerOnDevice::guards_are_intact() const {
  return y.bytes().guards_are_intact() && next_x.bytes().guards_are_intact() &&
         w13.guards_are_intact() && w2.guards_are_intact() && workspace.guards_are_intact() &&
         sync.guards_are_intact() && routing.guards_are_intact() &&
         (!placed || placed->guards_are_intact());
}

}  // namespace switchyard::testing
