// SPDX-License-Identifier: Apache-2.0
#include "moe/baseline/naive.h"

#include <algorithm>
#include <bit>

#include "base/environment.h"
#include "kernels/select.h"

namespace switchyard::moe {
namespace {

constexpr int64_t kActivationGrain = 8192;  // values that are worth waking a thread for

// e^x for x in [-87, 87] within 2 units in the last place, in steps that compilers turn into vector
// code, which std::exp is not: x = n ln 2 + r, e^r by its Taylor polynomial on |r| <= ln 2 / 2.
inline float fast_exp(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  const float n = (x * kLog2E + kRound) - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1;
  p = p * r + 1;
  return p * std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
}

// x within [-87, 87], its bits compared as integers: a comparison of floats is a branch to the
// compiler, which gives up on vector code.
inline float clamp(float x) {
  constexpr int32_t kSign = INT32_MIN, kLimit = std::bit_cast<int32_t>(87.0f);
  const auto bits = std::bit_cast<int32_t>(x);
  return std::bit_cast<float>(std::min(bits & ~kSign, kLimit) | (bits & kSign));
}

void silu_multiply_range(float* __restrict g, const float* __restrict u, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    g[i] = g[i] / (1 + fast_exp(clamp(-g[i]))) * u[i];
  }
}

Result<Linear> one_group(int64_t n, int64_t k, int64_t max_rows, DType weight) {
  return Linear::create({.groups = 1,
                         .n = n,
                         .k = k,
                         .max_rows = max_rows,
                         .weight = weight,
                         .deterministic = deterministic()});
}

}  // namespace

void silu_multiply(float* g, const float* u, int64_t count, Pool& pool) {
  pool.for_range(count, kActivationGrain, [&](int64_t begin, int64_t end, int) {
    silu_multiply_range(g + begin, u + begin, end - begin);
  });
}

Result<NaiveExperts> NaiveExperts::create(const ExpertsSpec& spec, int64_t max_expert_rows) {
  NaiveExperts experts;
  experts.spec_ = spec;
  experts.max_expert_rows_ = max_expert_rows;
  for (int s = 0; s < spec.groups; ++s) {
    Slot slot;
    SWITCHYARD_ASSIGN(slot.gate,
                      one_group(spec.ffn_width, spec.width, max_expert_rows, spec.weight));
    SWITCHYARD_ASSIGN(slot.up, one_group(spec.ffn_width, spec.width, max_expert_rows, spec.weight));
    SWITCHYARD_ASSIGN(slot.down,
                      one_group(spec.width, spec.ffn_width, max_expert_rows, spec.weight));
    experts.slots_.push_back(std::move(slot));
  }
  const Gather::Problem gather{1, spec.width, max_expert_rows, experts.gate().in()};
  SWITCHYARD_ASSIGN(experts.gather_, kernels::select<Gather>(gather));
  return experts;
}

void NaiveExperts::pack(int slot, const TensorView& gate, const TensorView& up,
                        const TensorView& down) {
  Slot& linears = slots_[static_cast<size_t>(slot)];
  linears.gate.pack(0, gate);
  linears.up.pack(0, up);
  linears.down.pack(0, down);
}

const float* NaiveExperts::forward(const float* x, const DispatchPlan& plan,
                                   const Step& step) const {
  const auto* offset = plan.slot_offset.as<int32_t>();
  const auto* row_token = plan.row_token.as<int32_t>();
  const auto out = step.arena.take<float>(plan.rows * spec_.width);
  const int64_t mark = step.arena.mark();
  for (size_t s = 0; s < slots_.size(); ++s) {
    const int64_t rows = offset[s + 1] - offset[s];
    if (rows == 0) continue;
    run_slot(slots_[s], x, row_token + offset[s], rows, out.data() + offset[s] * spec_.width, step);
    step.arena.rewind(mark);
  }
  return out.data();
}

void NaiveExperts::run_slot(const Slot& slot, const float* x, const int32_t* tokens, int64_t rows,
                            float* out, const Step& step) const {
  Tracer* tracer = step.stream.tracer();
  const int32_t offset[2] = {0, static_cast<int32_t>(rows)};
  const Gather::Problem& layout = gather_.problem();
  const auto in = step.arena.take<std::byte>(row_layout_bytes(layout.out, rows, layout.width, 1));
  const auto gate = step.arena.take<float>(rows * spec_.ffn_width);
  const auto up = step.arena.take<float>(rows * spec_.ffn_width);
  {
    const ZoneScope zone(tracer, Zone::gather, step.layer);
    const int64_t mark = step.arena.mark();
    gather_.run(
        {.x = x, .row_token = tokens, .slot_offset = offset, .y = in.data()},
        step.arena.take<std::byte>(gather_.workspace_bytes(step.stream.pool().num_threads())),
        step.stream);
    step.arena.rewind(mark);
  }
  {
    const ZoneScope zone(tracer, Zone::gemm_up, step.layer);
    slot.gate.run(in.data(), offset, gate.data(), step.arena, step.stream);
    slot.up.run(in.data(), offset, up.data(), step.arena, step.stream);
  }
  {
    const ZoneScope zone(tracer, Zone::activation, step.layer);
    silu_multiply(gate.data(), up.data(), rows * spec_.ffn_width, step.stream.pool());
  }
  const ZoneScope zone(tracer, Zone::gemm_down, step.layer);
  slot.down.run_dense(gate.data(), rows, out, step.arena, step.stream);
}

int64_t NaiveExperts::weight_bytes() const noexcept {
  int64_t bytes = 0;
  for (const Slot& slot : slots_) {
    bytes += slot.gate.weight_bytes() + slot.up.weight_bytes() + slot.down.weight_bytes();
  }
  return bytes;
}

int64_t NaiveExperts::room(int num_threads) const noexcept {
  const Gather::Problem& layout = gather_.problem();
  const Slot& slot = slots_.front();
  return Arena::room<float>(spec_.max_rows * spec_.width) +
         Arena::room<std::byte>(row_layout_bytes(layout.out, max_expert_rows_, layout.width, 1)) +
         2 * Arena::room<float>(max_expert_rows_ * spec_.ffn_width) +
         Arena::room<std::byte>(gather_.workspace_bytes(num_threads)) +
         slot.gate.run_room(num_threads) + slot.up.run_room(num_threads) +
         slot.down.run_dense_room(num_threads);
}

}  // namespace switchyard::moe
