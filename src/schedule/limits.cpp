// SPDX-License-Identifier: Apache-2.0
#include "schedule/limits.h"

#include <cmath>

namespace switchyard::schedule {
namespace {

bool is_duration(double seconds) { return seconds >= 0 && std::isfinite(seconds); }

}  // namespace

Status Limits::check() const {
  if (max_sequences < 1)
    return fail(Code::bad_request, "max_sequences is {}, expected at least 1", max_sequences);
  if (block_tokens < 1)
    return fail(Code::bad_request, "block_tokens is {}, expected at least 1", block_tokens);
  if (max_step_tokens < max_sequences)
    return fail(
        Code::bad_request,
        "max_step_tokens is {}, but {} sequences may decode one token each in a step: raise "
        "it or lower max_sequences",
        max_step_tokens, max_sequences);
  if (num_blocks < 1)
    return fail(Code::bad_request, "the KV cache has {} blocks, expected at least 1", num_blocks);
  if (!is_duration(ageing_s) || ageing_s == 0)
    return fail(Code::bad_request,
                "ageing_s is {}, expected seconds above 0: without ageing, a steady stream of "
                "urgent requests would keep others waiting for ever",
                ageing_s);
  if (min_decode_batch < 0)
    return fail(Code::bad_request, "min_decode_batch is {}, expected at least 0", min_decode_batch);
  if (!is_duration(decode_wait_s))
    return fail(Code::bad_request, "decode_wait_s is {}, expected seconds of at least 0",
                decode_wait_s);
  return {};
}

}  // namespace switchyard::schedule
