// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear.h"

#include <utility>

#include "kernels/select.h"

namespace switchyard {

Result<Bound<GroupedGemm>> select_grouped_gemm(GroupedGemm::Problem problem, OutLayout out) {
  const auto with_layout = [&](RowLayout in) {
    GroupedGemm::Problem p = problem;
    p.in = in;
    p.out = out == OutLayout::follows_in ? in : RowLayout::rows_f32;
    return kernels::select<GroupedGemm>(p);
  };
  if (problem.weight == DType::bf16) {
    // The reference accepts tiles as well, but then gains nothing from them and would round the
    // rows to bf16.
    Result<Bound<GroupedGemm>> tiles = with_layout(RowLayout::tiles_bf16);
    if (tiles.ok() && !tiles->name().ends_with(".ref")) return tiles;
  }
  return with_layout(RowLayout::rows_f32);
}

Result<Linear> Linear::create(const GroupedGemm::Problem& problem, OutLayout out) {
  Linear linear;
  SWITCHYARD_ASSIGN(linear.gemm_, select_grouped_gemm(problem, out));
  const GroupedGemm::Problem& chosen = linear.gemm_.problem();
  if (chosen.in == RowLayout::tiles_bf16) {
    const Gather::Problem gather{chosen.groups, chosen.k, chosen.max_rows, RowLayout::tiles_bf16};
    SWITCHYARD_ASSIGN(linear.gather_, kernels::select<Gather>(gather));
  }
  linear.slot_bytes_ = linear.gemm_.packing()->slot_bytes(chosen);
  SWITCHYARD_ASSIGN(linear.weight_, Storage::allocate(linear.slot_bytes_ * chosen.groups));
  return linear;
}

void Linear::pack(int slot, const TensorView& gate, const TensorView* up) {
  const GroupedGemm::Problem& problem = gemm_.problem();
  SWITCHYARD_CHECK(slot >= 0 && slot < problem.groups, "slot {} of {}", slot, problem.groups);
  SWITCHYARD_CHECK(gate.shape == (Shape{problem.n, problem.k}), "gate is {}", gate.shape.text());
  SWITCHYARD_CHECK((up != nullptr) == (problem.fusion == Fusion::swiglu), "wrong number of parts");
  gemm_.packing()->pack(problem, gate, up, weight_.data() + slot * slot_bytes_);
}

void Linear::set_bias(std::vector<float> bias) {
  const GroupedGemm::Problem& problem = gemm_.problem();
  SWITCHYARD_CHECK(problem.bias, "the problem has no bias");
  const int64_t parts = problem.fusion == Fusion::swiglu ? 2 : 1;
  SWITCHYARD_CHECK(std::ssize(bias) == problem.groups * parts * problem.n, "bias of {}",
                   bias.size());
  bias_ = std::move(bias);
}

void Linear::run(const void* x, const int32_t* slot_offset, void* y, Arena& arena,
                 const Stream& stream, PhaseSplit* split) const {
  const int64_t mark = arena.mark();
  const auto workspace = arena.take<std::byte>(gemm_.workspace_bytes(stream.pool().num_threads()));
  gemm_.run({.x = x,
             .slot_offset = slot_offset,
             .weight = weight_.data(),
             .bias = bias_.empty() ? nullptr : bias_.data(),
             .y = y,
             .split = split},
            workspace, stream);
  arena.rewind(mark);
}

void Linear::run_dense(const float* x, int64_t tokens, void* y, Arena& arena,
                       const Stream& stream) const {
  const int64_t mark = arena.mark();
  const GroupedGemm::Problem& problem = gemm_.problem();
  const int32_t slot_offset[2] = {0, static_cast<int32_t>(tokens)};
  const void* rows = x;
  if (gather_) {
    auto tiles = arena.take<std::byte>(row_layout_bytes(problem.in, tokens, problem.k, 1));
    auto workspace = arena.take<std::byte>(gather_.workspace_bytes(stream.pool().num_threads()));
    gather_.run({.x = x, .row_token = nullptr, .slot_offset = slot_offset, .y = tiles.data()},
                workspace, stream);
    rows = tiles.data();
  }
  run(rows, slot_offset, y, arena, stream);
  arena.rewind(mark);
}

int64_t Linear::run_room(int num_threads) const noexcept {
  return Arena::room<std::byte>(gemm_.workspace_bytes(num_threads));
}

int64_t Linear::run_dense_room(int num_threads) const noexcept {
  const GroupedGemm::Problem& problem = gemm_.problem();
  int64_t room = run_room(num_threads);
  if (gather_) {
    room += Arena::room<std::byte>(row_layout_bytes(problem.in, problem.max_rows, problem.k, 1));
    room += Arena::room<std::byte>(gather_.workspace_bytes(num_threads));
  }
  return room;
}

}  // namespace switchyard
