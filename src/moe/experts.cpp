// SPDX-License-Identifier: Apache-2.0
#include "moe/experts.h"

#include "base/environment.h"

namespace switchyard::moe {
namespace {

double activation_share(const PhaseSplit& split) {
  const auto busy = static_cast<double>(split.busy_ticks.load());
  const auto epilogue = static_cast<double>(split.epilogue_ticks.load());
  return busy > 0 ? epilogue / busy : 0;
}

}  // namespace

Result<Experts> Experts::create(const ExpertsSpec& spec) {
  Experts experts;
  experts.spec_ = spec;
  const GroupedGemm::Problem up{.groups = spec.groups,
                                .n = spec.ffn_width,
                                .k = spec.width,
                                .max_rows = spec.max_rows,
                                .weight = spec.weight,
                                .fusion = Fusion::swiglu,
                                .deterministic = deterministic()};
  const GroupedGemm::Problem down{.groups = spec.groups,
                                  .n = spec.width,
                                  .k = spec.ffn_width,
                                  .max_rows = spec.max_rows,
                                  .weight = spec.weight,
                                  .deterministic = deterministic()};
  SWITCHYARD_ASSIGN(experts.gate_up_, Linear::create(up, OutLayout::follows_in));
  SWITCHYARD_ASSIGN(experts.down_, Linear::create(down));
  SWITCHYARD_CHECK(experts.gate_up_.gemm().problem().out == experts.down_.in(),
                   "{} and {} disagree on the layout of rows", experts.gate_up_.gemm().name(),
                   experts.down_.gemm().name());
  return experts;
}

int64_t Experts::hidden_bytes(int64_t rows) const noexcept {
  return row_layout_bytes(down_.in(), rows, spec_.ffn_width, spec_.groups);
}

const float* Experts::forward(const void* rows, const DispatchPlan& plan, const Step& step) const {
  const auto* offset = plan.slot_offset.as<int32_t>();
  const auto out = step.arena.take<float>(plan.rows * spec_.width);
  const int64_t mark = step.arena.mark();
  const auto hidden = step.arena.take<std::byte>(hidden_bytes(plan.rows));
  Tracer* tracer = step.stream.tracer();
  if (tracer != nullptr && tracer->on()) {
    run_gate_up_timed(rows, plan, hidden.data(), step);
  } else {
    gate_up_.run(rows, offset, hidden.data(), step.arena, step.stream);
  }
  const ZoneScope zone(tracer, Zone::gemm_down, step.layer);
  down_.run(hidden.data(), offset, out.data(), step.arena, step.stream);
  step.arena.rewind(mark);
  return out.data();
}

// The activation is fused into the first product; its share of the phase is that of the threads' time.
void Experts::run_gate_up_timed(const void* rows, const DispatchPlan& plan, std::byte* hidden,
                                const Step& step) const {
  const auto* offset = plan.slot_offset.as<int32_t>();
  const bool measured = share_.due(plan.rows);
  PhaseSplit split;
  const int64_t start = now_ns();
  gate_up_.run(rows, offset, hidden, step.arena, step.stream, measured ? &split : nullptr);
  const int64_t end = now_ns();
  if (measured) share_.value = activation_share(split);
  const int64_t border =
      end - static_cast<int64_t>(share_.value * static_cast<double>(end - start));
  Tracer& tracer = *step.stream.tracer();
  tracer.add(Zone::gemm_up, step.layer, start, border);
  tracer.add(Zone::activation, step.layer, border, end);
}

bool Experts::SampledShare::due(int64_t rows_now) {
  constexpr int kCalls = 8;
  if (rows_now == rows && ++calls < kCalls) return false;
  rows = rows_now;
  calls = 0;
  return true;
}

const float* Experts::forward_dense(const float* x, int64_t tokens, Zone zone_id,
                                    const Step& step) const {
  const ZoneScope zone(step.stream.tracer(), zone_id, step.layer);
  const int32_t offset[2] = {0, static_cast<int32_t>(tokens)};
  const auto out = step.arena.take<float>(tokens * spec_.width);
  const int64_t mark = step.arena.mark();
  const auto hidden = step.arena.take<std::byte>(hidden_bytes(tokens));
  gate_up_.run_dense(x, tokens, hidden.data(), step.arena, step.stream);
  down_.run(hidden.data(), offset, out.data(), step.arena, step.stream);
  step.arena.rewind(mark);
  return out.data();
}

int64_t Experts::room(int num_threads) const noexcept {
  return Arena::room<float>(spec_.max_rows * spec_.width) +
         Arena::room<std::byte>(hidden_bytes(spec_.max_rows)) + gate_up_.run_room(num_threads) +
         down_.run_room(num_threads);
}

int64_t Experts::dense_room(int num_threads) const noexcept {
  return room(num_threads) + gate_up_.run_dense_room(num_threads);
}

}  // namespace switchyard::moe
