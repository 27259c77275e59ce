// SPDX-License-Identifier: Apache-2.0
// DeviceSampling: the sampler's half of a step whose tokens the model chooses on its device. Before the step it says how each row
// is sampled; after it, rows that the device left undecided are sampled on the host, from logits that are fetched only then.
//
//   cost  O(1) a row; with penalties O(tokens of the sequence), as on the host; nothing is allocated once the lists have grown
#pragma once
#include <span>
#include <vector>

#include "engine/live.h"
#include "engine/model_port.h"
#include "engine/sampler.h"
#include "model/step.h"
#include "schedule/scheduler.h"

namespace switchyard::engine {

class DeviceSampling {
 public:
  DeviceSampling(int vocab, int max_rows);

  /// Of such a request the host needs the logits as the model gave them: the device does nothing to these.
  static bool is_host_row(const Live& live) {
    return live.params.logprobs.has_value() || !live.params.logit_bias.empty();
  }

  /// One entry for each run that samples; runs[i] is the request of decision.runs[i]. Valid until the next call.
  std::span<const model::SampleSpec> specs(const schedule::Decision& decision,
                                           std::span<const Live* const> runs);

  /// The picks of a step that had specs() of the same decision. `host` samples what is undecided.
  Result<std::span<const Pick>> picks(const model::StepOutput& output,
                                      const schedule::Decision& decision,
                                      std::span<const Live* const> runs, ModelPort& model,
                                      Sampler& host);

 private:
  void list_seen(const Live& live);
  Pick sample_on_host(float* logits, const Live& live, Sampler& host);

  int vocab_;
  std::vector<model::SampleSpec> specs_;
  std::vector<model::SeenToken> seen_;  // of all rows
  std::vector<int64_t> seen_end_;       // of each row
  std::vector<uint32_t> count_;         // [V] all zero between calls
  std::vector<Pick> picks_;
};

}  // namespace switchyard::engine
