// SPDX-License-Identifier: Apache-2.0
#include "model/cuda/results.h"

#include <algorithm>
#include <cstring>

namespace switchyard::model::cuda {

namespace k = switchyard::cuda;

Result<Results> Results::create(const std::vector<k::LayerPicks>& layers, int64_t logit_rows,
                                CudaStream& device) {
  Results results;
  int most = 0;
  for (const k::LayerPicks& layer : layers) most = std::max(most, layer.experts);
  results.num_layers_ = static_cast<int>(layers.size());
  results.layout_ = k::ResultLayout(logit_rows, std::ssize(layers), most);
  const int64_t bytes = k::kMailSlots * results.layout_.end * 4;
  const auto layer_bytes = static_cast<int64_t>(layers.size() * sizeof(k::LayerPicks));
  SWITCHYARD_ASSIGN(results.slots_, PinnedMemory::allocate(bytes, "a step's results"));
  SWITCHYARD_ASSIGN(results.turns_, CudaMemory::allocate(2 * 4, "turns"));
  SWITCHYARD_ASSIGN(results.layers_, CudaMemory::allocate(layer_bytes, "the experts' numbers"));
  device.copy_in(results.layers_.data(), layers.data(), layer_bytes);
  results.start_over(device);
  SWITCHYARD_TRY(device.synchronize("prepare a step's results"));
  return results;
}

void Results::start_over(CudaStream& device) {
  turn_ = 0;
  std::memset(slots_.data(), 0, static_cast<size_t>(slots_.size()));
  device.fill(turns_.data(), 0, turns_.size());
}

void Results::queue(const Buffers& buffers, int rows, int64_t picks, const int32_t* live,
                    const uint32_t* guesses, CudaStream& device) const {
  const StepResults results(buffers.results, buffers.logit_rows, picks);
  k::publish_step({.turn = turns_.as<uint32_t>(),
                   .slots = slots_.as<int32_t>(),
                   .layout = layout_,
                   .pick = results.pick,
                   .rows = rows,
                   .live = live,
                   .layers = num_layers_,
                   .layer = layers_.as<k::LayerPicks>(),
                   .expert = results.expert,
                   .weight = results.weight,
                   .stride = num_layers_ > 0 ? picks / num_layers_ : 0,
                   .guesses = guesses},
                  device.handle());
}

Status Results::wait(uint32_t turn, CudaStream& device) const {
  return device.wait_until(slot(turn) + k::ResultLayout::kTurn, static_cast<int32_t>(turn + 1),
                           "run a step");
}

void Results::wait_before(int64_t deadline_ns, uint32_t turn) const noexcept {
  CudaStream::wait_before(deadline_ns, slot(turn) + k::ResultLayout::kTurn,
                          static_cast<int32_t>(turn + 1));
}

}  // namespace switchyard::model::cuda
