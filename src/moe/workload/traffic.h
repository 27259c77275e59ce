// SPDX-License-Identifier: Apache-2.0
// Traffic: where the routing of a benchmark or a simulation comes from, made or recorded.
//
//   uniform, zipf:S, powerlaw:A   drawn (popularity.h); every layer has its own popular experts
//   trace:FILE                    a recording (trace/format.h): T tokens that follow each other in
//                                 the file, as when prompts are computed; the next step goes on
//                                 where this one ended
//   trace-mixed:FILE              the same tokens, chosen at random over the whole file, as when
//                                 each belongs to another sequence
// A recording without picks gives its loads: each expert keeps the share of tokens that it had in a
// recorded step, and who gets which token is drawn. Layers beyond the recorded ones start again.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "moe/trace/reader.h"
#include "moe/workload/popularity.h"

namespace switchyard::moe {

/// Who got T tokens, before any capacity.
struct Picks {
  std::vector<int32_t> expert;  ///< [T, K], -1 where the recording had dropped it
  std::vector<float> weight;    ///< [T, K]: recorded, else 1 / K
};

class Traffic {
 public:
  /// Errors: bad_request for an unknown text or a recording of other sizes, bad_file for a damaged
  /// one.
  static Result<Traffic> open(std::string_view text, int num_experts, int top_k, uint64_t seed);

  Picks draw(int layer, int64_t tokens, uint32_t step) const;
  const std::string& text() const noexcept { return text_; }
  /// Tokens of the recording; 0 when the traffic is drawn.
  int64_t recorded_tokens() const noexcept { return trace_ ? trace_->num_tokens() : 0; }

 private:
  struct Place {
    int64_t step, token;
  };

  Picks replay(int layer, int64_t tokens, uint32_t step) const;
  Picks resample(int layer, int64_t tokens, uint32_t step) const;
  Place find_token(int64_t index) const;

  std::string text_;
  Popularity popularity_;
  int num_experts_ = 0, top_k_ = 0;
  uint64_t seed_ = 0;
  bool mixed_ = false;
  std::shared_ptr<const TraceReader> trace_;
  std::vector<int64_t> step_start_;  // first token of each recorded step that has any, and the end
  std::vector<int64_t> step_index_;  // which step of the file that is
};

}  // namespace switchyard::moe
