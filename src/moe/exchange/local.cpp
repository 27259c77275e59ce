// SPDX-License-Identifier: Apache-2.0
#include "moe/exchange/local.h"

#include "kernels/ops/permute.h"
#include "kernels/select.h"

namespace switchyard::moe {
namespace {

class LocalExchange final : public Exchange {
 public:
  LocalExchange(Bound<Gather> gather, Bound<Combine> combine) noexcept
      : gather_(gather), combine_(combine) {}

  void begin_dispatch(const float* x, const DispatchPlan& plan, const Step& step) override {
    const ZoneScope zone(step.stream.tracer(), Zone::gather, step.layer);
    const Gather::Problem& problem = gather_.problem();
    rows_ = step.arena
                .take<std::byte>(
                    row_layout_bytes(problem.out, plan.rows, problem.width, problem.groups))
                .data();
    const int64_t mark = step.arena.mark();
    gather_.run({.x = x,
                 .row_token = plan.row_token.as<int32_t>(),
                 .slot_offset = plan.slot_offset.as<int32_t>(),
                 .row_weight = plan.row_weight.empty() ? nullptr : plan.row_weight.as<float>(),
                 .y = rows_},
                scratch(gather_, step), step.stream);
    step.arena.rewind(mark);
  }

  const void* finish_dispatch(const DispatchPlan&, const Step&) override { return rows_; }

  void combine(const float* rows, const Routing& routing, const DispatchPlan& plan,
               const SharedOutput& shared, float scale, float* y, const Step& step) override {
    const ZoneScope zone(step.stream.tracer(), Zone::combine, step.layer);
    const int64_t mark = step.arena.mark();
    combine_.run({.rows = rows,
                  .pick_row = plan.pick_row.as<int32_t>(),
                  .weight = routing.weight.as<float>(),
                  .shared = shared.value,
                  .shared_weight = shared.weight,
                  .scale = scale,
                  .y = y,
                  .tokens = plan.pick_row.shape[0]},
                 scratch(combine_, step), step.stream);
    step.arena.rewind(mark);
  }

  int64_t room(const Limits& limits) const noexcept override {
    const Gather::Problem& p = gather_.problem();
    return Arena::room<std::byte>(row_layout_bytes(p.out, p.max_rows, p.width, p.groups)) +
           Arena::room<std::byte>(gather_.workspace_bytes(limits.num_threads)) +
           Arena::room<std::byte>(combine_.workspace_bytes(limits.num_threads));
  }

 private:
  template <class Op>
  static std::span<std::byte> scratch(const Bound<Op>& op, const Step& step) {
    return step.arena.take<std::byte>(op.workspace_bytes(step.stream.pool().num_threads()));
  }

  Bound<Gather> gather_;
  Bound<Combine> combine_;
  std::byte* rows_ = nullptr;  // of the dispatch under way
};

}  // namespace

Result<std::unique_ptr<Exchange>> make_local_exchange(const LocalExchangeSpec& spec) {
  const Gather::Problem gather{spec.groups, spec.width, spec.max_rows, spec.layout};
  const Combine::Problem combine{spec.width, spec.top_k};
  SWITCHYARD_ASSIGN(const Bound<Gather> bound_gather, kernels::select<Gather>(gather));
  SWITCHYARD_ASSIGN(const Bound<Combine> bound_combine, kernels::select<Combine>(combine));
  return std::unique_ptr<Exchange>(new LocalExchange(bound_gather, bound_combine));
}

}  // namespace switchyard::moe
