// SPDX-License-Identifier: Apache-2.0
// One step: arrays in, launches or a graph of them, and what the host wants to know out, by a word in pinned memory where no
// copy is asked for, else with one synchronisation.
#include "model/cuda/model.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "model/cuda/padding.h"

namespace switchyard::model::cuda {
std::string_view CudaModel::expert_kernel() const noexcept {
  for (size_t l = 0; l < config_.blocks.size(); ++l) {
    if (config_.blocks[l].router) return experts_[l].name();
  }
  return "dense.cuda";
}

CudaModel::~CudaModel() {
  if (device_.handle() == nullptr) return;  // was not opened
  device_.make_current();
  const Status ended = device_.synchronize("end");  // what runs ahead still uses the memory
  (void)ended;
}

CudaModel::Step CudaModel::plan(const StepInput& input, const RoutingObserver* observer) {
  Step step;
  step.shape = {input.token.shape[0], static_cast<int>(input.context_len.shape[0]),
                input.logit_row.shape[0]};
  step.rows = static_cast<int>(input.logit_row.shape[0]);
  step.as_graph = can_replay(input, step.shape);
  if (step.as_graph) {
    step.shape.sequences = padded(step.shape.sequences, options_);
    step.shape.tokens = step.shape.logit_rows = step.shape.sequences;
  }
  step.asked = picks_.pack(input.sample);
  step.shape.samples = step.asked.picks && (step.asked.draws || step.asked.adjusts);
  step.persistent = runs_persistent(input, step.shape);
  step.shows_picks = observer != nullptr && buffers_.picks > 0 && observer->wants_picks();
  return step;
}

void CudaModel::queue_choice(const Step& step) {
  const switchyard::cuda::StepHead head = head_of(step);
  if (head.pick != nullptr && runs_in_head(head)) return;  // is made already
  picks_.queue(step.asked, step.rows_with_padding(), arrays_.pointers(step.shape).sample,
               buffers_.logits, config_.vocab, buffers_.results, device_);
}

void CudaModel::queue_end(const Step& step) {
  results_.queue(buffers_, step.asked.picks ? step.rows_with_padding() : 0, num_picks(step.shape),
                 arrays_.pointers(step.shape).live, guess_counts(), device_);
}

// All of a step, in whose turn its arrays were posted.
Status CudaModel::queue(const Step& step) {
  if (step.as_graph) {
    SWITCHYARD_TRY(replay(step));
  } else {
    SWITCHYARD_TRY(launch(step));
    if (step.asked.picks) queue_choice(step);
    queue_end(step);
  }
  results_.next_turn();
  return {};
}

// What the step's last launch does not tell is copied. The turn is looked at in any case: it shows that device and host count alike.
Status CudaModel::wait(const Step& step, uint32_t turn) {
  if (step.asked.picks && !step.shows_picks) return results_.wait(turn, device_);
  if (!step.asked.picks) {
    const int64_t bytes = step.rows * config_.vocab * 4;
    device_.copy_out(host_results_.logits.data(), buffers_.logits, bytes);
  }
  if (step.shows_picks) {
    const int64_t bytes = StepResults(nullptr, buffers_.logit_rows, num_picks(step.shape)).bytes;
    device_.copy_out(host_results_.results.data(), buffers_.results, bytes);
  }
  SWITCHYARD_TRY(device_.synchronize("run a step"));
  return results_.wait(turn, device_);
}

// Padding behind the step's own tokens is not shown.
void CudaModel::observe(const StepInput& input, const Step& step, uint32_t turn,
                        RoutingObserver& observer) {
  const int64_t tokens = input.token.shape[0], stride = step.shape.tokens * most_picks_;
  const StepResults copied(host_results_.results.as<int32_t>(), buffers_.logit_rows,
                           num_picks(step.shape));
  for (size_t l = 0; l < config_.blocks.size(); ++l) {
    const std::optional<RouterSpec>& router = config_.blocks[l].router;
    if (!router) continue;
    const int layer = moe_layer_[l];
    const int64_t first = layer * stride, top_k = experts_[l].columns();
    Routing routing;
    routing.expert =
        TensorView::of(step.shows_picks ? copied.expert + first : nullptr, {tokens, top_k});
    routing.weight =
        TensorView::of(step.shows_picks ? copied.weight + first : nullptr, {tokens, top_k});
    if (const HostLoads* known = experts_[l].host_loads(); known != nullptr) {
      routing.load = TensorView::of(known->load.data(), {router->num_experts});
      routing.demand = TensorView::of(known->demand.data(), {router->num_experts});
      routing.counts = known->counts;
    } else {
      routing.load = TensorView::of(results_.count(turn, layer), {router->num_experts});
      routing.demand = routing.load;  // dropless
      routing.counts.unusable_rows = results_.unusable(turn, layer);
    }
    observer.on_routing(layer, routing);
  }
}

Result<StepOutput> CudaModel::run(const StepInput& input, RoutingObserver* observer) {
  const ZoneScope zone(stream_.tracer(), Zone::device_step);
  const Step step = plan(input, observer);
  const bool known = takes_ahead(input, step);
  captured_ = false;
  arrays_.pack(input, picks_.rows(), step.shape);
  begun_ns_ = known ? ended_ns_ : now_ns();
  if (!known) {
    arrays_.post(results_.turn(), input, stream_, device_);
    SWITCHYARD_TRY(queue(step));
  }
  last_ = step;
  turn_ = results_.turn() - 1;
  SWITCHYARD_TRY(device_.launched("run a step"));
  if (wants_ahead(input, step)) go_ahead(step);
  SWITCHYARD_TRY(wait(step, turn_));
  ended_ns_ = now_ns();
  learn_time(step);
  count_guesses(turn_);
  if (observer != nullptr) observe(input, step, turn_, *observer);
  StepOutput output;
  if (step.asked.picks) {
    output.pick = TensorView::of(results_.pick(turn_), {step.rows});
  } else {
    output.logits = TensorView::of(host_results_.logits.as<float>(), {step.rows, config_.vocab});
  }
  return output;
}

// Turns on the device and here may differ after a step that was not queued whole.
void CudaModel::start_over() {
  ahead_.forget();
  const Status ended = device_.synchronize("end a step that has failed");
  (void)ended;
  results_.start_over(device_);
  arrays_.forget_tables();
}

Result<StepOutput> CudaModel::forward(const StepInput& input, RoutingObserver* observer) {
  const int64_t tokens = input.token.shape[0], rows = input.logit_row.shape[0];
  SWITCHYARD_CHECK(tokens <= options_.max_step_tokens, "{} tokens in a step", tokens);
  SWITCHYARD_CHECK(rows <= options_.max_sequences, "{} logit rows", rows);
  SWITCHYARD_CHECK(input.sample.empty() || std::ssize(input.sample) == rows,
                   "{} rows, {} ways to choose", rows, input.sample.size());
  device_.make_current();
  Result<StepOutput> output = run(input, observer);
  if (!output.ok()) start_over();
  return output;
}

Result<TensorView> CudaModel::read_logits() {
  device_.make_current();
  Result<TensorView> logits = last_logits();
  if (!logits.ok()) start_over();
  return logits;
}

Result<TensorView> CudaModel::last_logits() {
  if (ahead_.queued()) SWITCHYARD_TRY(repeat_last());
  const int64_t bytes = last_.rows * config_.vocab * 4;
  device_.copy_out(host_results_.logits.data(), buffers_.logits, bytes);
  SWITCHYARD_TRY(device_.synchronize("read logits"));
  return TensorView::of(host_results_.logits.as<float>(), {last_.rows, config_.vocab});
}

}  // namespace switchyard::model::cuda
