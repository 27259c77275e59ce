// SPDX-License-Identifier: Apache-2.0
// Packs a checkpoint's matrix into panels. A model of many gigabytes passes through here at load,
// so the usual case (bf16 rows with neighbouring inputs) moves 32-bit pairs and runs at the speed
// of memory; every other source is read in the order in which its memory lies.
#include "kernels/cpu/grouped_gemm_pack.h"

#include <algorithm>
#include <cstring>

#include "kernels/ops/weight_source.h"

namespace switchyard::cpu {
namespace {

// A block of at most 32 outputs and `inputs` inputs of a matrix.
template <class From>
struct Source {
  const From* data;
  int64_t output_stride, input_stride;
  int outputs;
};

// One step of a bf16 panel: [2 tiles][16 pairs][16 outputs][2], element by element. Walks the
// source along its denser dimension. `to` is zeroed when the step is partial.
template <class From>
void pack_step(const Source<From>& source, int inputs, Bf16* to) noexcept {
  const auto place = [](int output, int input) {
    return output / 16 * 512 + input / 2 * 32 + output % 16 * 2 + input % 2;
  };
  if (source.output_stride < source.input_stride) {
    for (int input = 0; input < inputs; ++input) {
      const From* from = source.data + input * source.input_stride;
      for (int output = 0; output < source.outputs; ++output) {
        to[place(output, input)] = convert_weight<Bf16>(from[output * source.output_stride]);
      }
    }
    return;
  }
  for (int output = 0; output < source.outputs; ++output) {
    const From* from = source.data + output * source.output_stride;
    for (int input = 0; input < inputs; ++input) {
      to[place(output, input)] = convert_weight<Bf16>(from[input * source.input_stride]);
    }
  }
}

// The usual case: a whole step of bf16 whose inputs are neighbours. A pair of inputs moves as one
// 32-bit word.
void pack_step_of_pairs(const Source<Bf16>& source, Bf16* to) noexcept {
  for (int tile = 0; tile < 2; ++tile) {
    const Bf16* from = source.data + tile * 16 * source.output_stride;
    uint32_t words[16][16];  // [outputs][pairs]
    for (int output = 0; output < 16; ++output) {
      std::memcpy(words[output], from + output * source.output_stride, sizeof words[output]);
    }
    uint32_t turned[16][16];  // [pairs][outputs]
    for (int pair = 0; pair < 16; ++pair) {
      for (int output = 0; output < 16; ++output) turned[pair][output] = words[output][pair];
    }
    std::memcpy(to + tile * 512, turned, sizeof turned);
  }
}

template <class From>
void pack_bf16_panel(const Source<From>& panel, int64_t k, Bf16* to) noexcept {
  constexpr int kStepElements = kStepBytes / 2;
  for (int64_t at = 0; at < k; at += kStep, to += kStepElements) {
    Source<From> step = panel;
    step.data += at * panel.input_stride;
    const int inputs = static_cast<int>(std::min<int64_t>(kStep, k - at));
    const bool whole = inputs == kStep && panel.outputs == kPanel;
    if constexpr (std::is_same_v<From, Bf16>) {
      if (whole && panel.input_stride == 1) {
        pack_step_of_pairs(step, to);
        continue;
      }
    }
    if (!whole) std::fill_n(to, kStepElements, Bf16{});
    pack_step(step, inputs, to);
  }
}

template <class From>
void pack_f32_panel(const Source<From>& panel, int64_t k, float* to) noexcept {
  if (panel.outputs < kPanel) std::fill_n(to, k * kPanel, 0.0f);
  constexpr int64_t kRun =
      16;  // inputs visited together: a cache line of f32, so that no line is read twice
  for (int64_t at = 0; at < k; at += kRun) {
    const int64_t end = std::min(k, at + kRun);
    for (int output = 0; output < panel.outputs; ++output) {
      const From* from = panel.data + output * panel.output_stride;
      for (int64_t input = at; input < end; ++input) {
        to[input * kPanel + output] = convert_weight<float>(from[input * panel.input_stride]);
      }
    }
  }
}

// Panels of one matrix, each `stride` bytes after the one before it.
void pack_matrix(const GroupedGemm::Problem& problem, const TensorView& view, int64_t stride,
                 std::byte* to) noexcept {
  with_weight_type(view, [&](const auto* data) {
    for (int64_t n = 0; n < problem.n; n += kPanel, to += stride) {
      const Source<std::remove_cvref_t<decltype(*data)>> panel{
          data + n * view.stride[0], view.stride[0], view.stride[1],
          static_cast<int>(std::min<int64_t>(kPanel, problem.n - n))};
      if (problem.weight == DType::bf16) {
        pack_bf16_panel(panel, problem.k, reinterpret_cast<Bf16*>(to));
      } else {
        pack_f32_panel(panel, problem.k, reinterpret_cast<float*>(to));
      }
    }
  });
}

void pack(const GroupedGemm::Problem& problem, const TensorView& gate, const TensorView* up,
          std::byte* to) noexcept {
  const int64_t stride = matrices(problem) * panel_bytes(problem);
  pack_matrix(problem, gate, stride, to);
  if (up != nullptr) pack_matrix(problem, *up, stride, to + panel_bytes(problem));
}

int64_t bytes_of_slot(const GroupedGemm::Problem& problem) noexcept { return slot_bytes(problem); }

}  // namespace

const GroupedGemm::Packing kPanel32F32{"panel32_f32", bytes_of_slot, pack};
const GroupedGemm::Packing kPanel32Bf16{"panel32_bf16", bytes_of_slot, pack};

}  // namespace switchyard::cpu
