// SPDX-License-Identifier: Apache-2.0
// One step: arrays in, launches or a graph of them, and what the host wants to know out; then one synchronisation.
#include "model/cuda/model.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "model/cuda/padding.h"

namespace switchyard::model::cuda {
namespace {

// Rows that could not be scored have experts 0 ... K-1 with weights of 0.
bool unusable_row(const int32_t* expert, const float* weight, int64_t top_k) {
  for (int64_t k = 0; k < top_k; ++k) {
    if (expert[k] != k || weight[k] != 0) return false;
  }
  return true;
}

}  // namespace

std::string_view CudaModel::expert_kernel() const noexcept {
  for (size_t l = 0; l < config_.blocks.size(); ++l) {
    if (config_.blocks[l].router) return experts_[l].name();
  }
  return "dense.cuda";
}

StepShape CudaModel::shape_of(const StepInput& input) const {
  return {input.token.shape[0], static_cast<int>(input.context_len.shape[0]),
          input.logit_row.shape[0]};
}

// A graph stands for steps in which row t is sequence t's only token and wants its logits.
bool CudaModel::can_replay(const StepInput& input, const StepShape& shape) const {
  return input.decode_only && !hidden_probe_ && !host_routes_ && shape.tokens == shape.sequences &&
         shape.logit_rows == shape.sequences && shape.sequences <= kPaddedSequences.back() &&
         config_.rope.scaling != attention::RopeSpec::Scaling::dynamic;
}

Status CudaModel::replay(const StepShape& shape) {
  CudaGraph& graph = graphs_[persistent_step_ ? 0 : shape.sequences];
  if (!graph) {
    // Outside the capture first: kernels raise their limits and the library chooses its algorithms then.
    SWITCHYARD_TRY(launch(shape));
    SWITCHYARD_TRY(device_.synchronize("prepare a graph"));
    SWITCHYARD_TRY(device_.begin_capture());
    const Status launched = launch(shape);
    Result<CudaGraph> captured = device_.end_capture();
    SWITCHYARD_TRY(launched);
    SWITCHYARD_ASSIGN(graph, std::move(captured));
    log(LogLevel::debug, "captured a decode step of {} sequences", shape.sequences);
  }
  device_.replay(graph);
  return {};
}

// Padding behind the step's own tokens is not shown.
void CudaModel::observe(const StepInput& input, const StepShape& shape, RoutingObserver& observer) {
  const int64_t tokens = input.token.shape[0];
  const StepResults results(results_.results.as<int32_t>(), buffers_.logit_rows, num_picks(shape));
  for (size_t l = 0; l < config_.blocks.size(); ++l) {
    const std::optional<RouterSpec>& router = config_.blocks[l].router;
    if (!router) continue;
    const int64_t top_k = experts_[l].columns(), first = moe_layer_[l] * shape.tokens * most_picks_;
    int32_t* expert = results.expert + first;
    float* weight = results.weight + first;
    if (const HostLoads* known = experts_[l].host_loads(); known != nullptr) {
      observer.on_routing(moe_layer_[l],
                          {.expert = TensorView::of(expert, {tokens, top_k}),
                           .weight = TensorView::of(weight, {tokens, top_k}),
                           .load = TensorView::of(known->load.data(), {router->num_experts}),
                           .demand = TensorView::of(known->demand.data(), {router->num_experts}),
                           .counts = known->counts});
      continue;
    }
    std::fill_n(load_.begin(), router->num_experts, 0);
    for (int64_t i = 0; i < tokens * top_k; ++i) {
      if (expert[i] >= 0) ++load_[static_cast<size_t>(expert[i])];
    }
    RouteCounts counts;  // dropless
    for (int64_t t = 0; t < tokens; ++t) {
      counts.unusable_rows += unusable_row(expert + t * top_k, weight + t * top_k, top_k) ? 1 : 0;
    }
    const TensorView load = TensorView::of(load_.data(), {router->num_experts});
    observer.on_routing(moe_layer_[l], {.expert = TensorView::of(expert, {tokens, top_k}),
                                        .weight = TensorView::of(weight, {tokens, top_k}),
                                        .load = load,
                                        .demand = load,
                                        .counts = counts});
  }
}

// Queues the step and what comes back from it, and waits. `picks` says whether tokens are chosen here.
Status CudaModel::run(const StepInput& input, const StepShape& shape, bool as_graph, bool observed,
                      bool& picks) {
  const ZoneScope zone(stream_.tracer(), Zone::device_step);
  arrays_.send(input, shape, stream_, device_);
  if (as_graph) {
    SWITCHYARD_TRY(replay(shape));
  } else {
    SWITCHYARD_TRY(launch(shape));
  }
  logit_rows_ = input.logit_row.shape[0];
  const bool sees_experts = observed && buffers_.picks > 0;
  const StepResults results(buffers_.results, buffers_.logit_rows, num_picks(shape));
  picks = !input.sample.empty() &&
          picks_.queue(input.sample, buffers_.logits, config_.vocab, results.pick, device_);
  if (!picks) {
    device_.copy_out(results_.logits.data(), buffers_.logits, logit_rows_ * config_.vocab * 4);
  }
  if (picks || sees_experts) {
    device_.copy_out(results_.results.data(), buffers_.results,
                     sees_experts ? results.bytes : logit_rows_ * 4);
  }
  return device_.synchronize("run a step");
}

Result<StepOutput> CudaModel::forward(const StepInput& input, RoutingObserver* observer) {
  StepShape shape = shape_of(input);
  SWITCHYARD_CHECK(shape.tokens <= options_.max_step_tokens, "{} tokens in a step", shape.tokens);
  SWITCHYARD_CHECK(shape.logit_rows <= options_.max_sequences, "{} logit rows", shape.logit_rows);
  SWITCHYARD_CHECK(input.sample.empty() || std::ssize(input.sample) == shape.logit_rows,
                   "{} rows, {} ways to choose", shape.logit_rows, input.sample.size());
  device_.make_current();
  const bool as_graph = can_replay(input, shape);
  if (as_graph) {
    shape.sequences = padded(shape.sequences, options_);
    shape.tokens = shape.logit_rows = shape.sequences;
  }
  persistent_step_ = runs_persistent(input, shape);
  bool picks = false;
  SWITCHYARD_TRY(run(input, shape, as_graph, observer != nullptr, picks));
  if (observer != nullptr) observe(input, shape, *observer);
  StepOutput output;
  if (picks) {
    output.pick = TensorView::of(results_.results.as<int32_t>(), {logit_rows_});
  } else {
    output.logits = TensorView::of(results_.logits.as<float>(), {logit_rows_, config_.vocab});
  }
  return output;
}

Result<TensorView> CudaModel::read_logits() {
  device_.copy_out(results_.logits.data(), buffers_.logits, logit_rows_ * config_.vocab * 4);
  SWITCHYARD_TRY(device_.synchronize("read logits"));
  return TensorView::of(results_.logits.as<float>(), {logit_rows_, config_.vocab});
}

}  // namespace switchyard::model::cuda
