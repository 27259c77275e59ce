// SPDX-License-Identifier: Apache-2.0
// Steps as graphs, and steps ahead of their time. Between two decode steps the host reads tokens, tells its callers, plans, and queues:
// some tens of microseconds in which the device would wait. So where a step's caller expects the next one to go on with the same
// sequences and the tokens of this one, that next step is queued before this one has ended, with arrays that the device makes itself.
// When the call comes, it is compared with what was foreseen: either the step is well on its way, or it was for nothing.
//
// For nothing means a step's time for all, no harm: it wrote keys and values one position behind its sequences, which are right for those
// tokens, and whoever else gets that block writes a position before reading it, later on the same stream. News of the host's
// (a newcomer, a cancel) seldom cost that time, as the decision is made as late as can be: shortly before the step at hand should end,
// by the time that such steps took before. A sequence that ends by its tokens does: the caller weighs that, and a pause follows.
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "model/cuda/model.h"
#include "model/cuda/padding.h"

namespace switchyard::model::cuda {
namespace {

// Which graph a step replays: by sequences (0: all layers are a single launch), and by what goes along.
int graph_key(int sequences, bool samples, bool whole, bool advances) {
  return sequences * 8 + (samples ? 4 : 0) + (whole ? 2 : 0) + (advances ? 1 : 0);
}

}  // namespace

// A graph stands for steps in which row t is sequence t's only token and wants its logits.
bool CudaModel::can_replay(const StepInput& input, const StepShape& shape) const {
  return input.decode_only && !hidden_probe_ && !host_routes_ && shape.tokens == shape.sequences &&
         shape.logit_rows == shape.sequences && shape.sequences <= kPaddedSequences.back() &&
         config_.rope.scaling != attention::RopeSpec::Scaling::dynamic;
}

// Penalties and masks come in lists of any length, so choices with them stay outside of the graph, as does what ends such a step.
Status CudaModel::replay(const Step& step) {
  const bool whole = step.asked.picks && !step.asked.adjusts;
  CudaGraph& graph = graphs_[graph_key(step.persistent ? 0 : step.shape.sequences,
                                       step.shape.samples, whole, step.advances)];
  if (!graph) {
    if (!step.advances) {
      // Outside the capture first: kernels raise their limits and the library chooses its algorithms then.
      SWITCHYARD_TRY(launch(step));
      if (whole) queue_choice(step);
      SWITCHYARD_TRY(device_.synchronize("prepare a graph"));
    }
    captured_ = true;
    SWITCHYARD_TRY(device_.begin_capture());
    const Status launched = launch(step);
    if (whole) {
      queue_choice(step);
      queue_end(step);
    }
    Result<CudaGraph> captured = device_.end_capture();
    SWITCHYARD_TRY(launched);
    SWITCHYARD_ASSIGN(graph, std::move(captured));
    log(LogLevel::debug, "captured a decode step of {} sequences", step.shape.sequences);
  }
  device_.replay(graph);
  if (whole) return {};
  if (step.asked.picks) queue_choice(step);
  queue_end(step);
  return {};
}

// Whether the step at hand was queued already, by go_ahead().
bool CudaModel::is_ahead(const StepInput& input, const Step& step) const {
  return ahead_.queued() && step.as_graph && step.asked.picks && !step.asked.adjusts &&
         !step.shows_picks && step.asked.draws == last_.asked.draws &&
         step.persistent == last_.persistent &&
         arrays_.is_next(input, picks_.rows(), results_.pick(turn_));
}

// The same, and then no step is ahead any more.
bool CudaModel::takes_ahead(const StepInput& input, const Step& step) {
  const bool known = is_ahead(input, step);
  ahead_.take(known, step.as_graph);
  return known;
}

// Whether to queue the step after this one. Also waits until shortly before the step's end, if that is of use.
bool CudaModel::wants_ahead(const StepInput& input, const Step& step) {
  const bool can = input.goes_on_unless != nullptr && step.as_graph && step.asked.picks &&
                   !step.asked.adjusts && !step.shows_picks && arrays_.can_go_on();
  const std::optional<int64_t> by = ahead_.decide_by(begun_ns_, step.shape.sequences);
  if (!can || !by) return false;
  results_.wait_before(*by, turn_);
  return !input.goes_on_unless->load(std::memory_order_relaxed);
}

// The step at hand does not fail with the one ahead: that is a single graph, which is launched or is not, and its turn counts only then.
void CudaModel::go_ahead(const Step& step) {
  Step next = step;
  next.advances = true;
  Status queued = replay(next);
  const Status launched = device_.launched("queue a step ahead");
  if (queued.ok()) queued = launched;
  if (queued.ok()) {
    ahead_.went();
    results_.next_turn();
  } else {
    ahead_.failed();
    log(LogLevel::warning,
        "decode steps are queued in turn from now on, which is a little slower: {}",
        queued.error().message);
  }
}

// The making of a graph does not count.
void CudaModel::learn_time(const Step& step) {
  if (step.as_graph && !captured_) ahead_.learn(step.shape.sequences, now_ns() - begun_ns_);
}

// Of a step that another one has followed already, the logits are made again: the same bits, from the same arrays.
Status CudaModel::repeat_last() {
  ahead_.repeat();
  arrays_.post_again(results_.turn());
  SWITCHYARD_TRY(launch(last_));
  queue_end(last_);
  results_.next_turn();
  return {};
}

}  // namespace switchyard::model::cuda
