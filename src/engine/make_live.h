// SPDX-License-Identifier: Apache-2.0
// make_live: checks a request and makes of it what the loop works with. On the thread of the caller, so that hashing a
// long prompt takes no time of the loop's.
#pragma once
#include <memory>

#include "switchyard/request.h"

#include "base/siphash.h"
#include "engine/live.h"
#include "engine/loop_options.h"
#include "text/tokenizer.h"

namespace switchyard::engine {

/// request.prompt_tokens is the prompt. Errors: Code::bad_request.
Result<std::unique_ptr<Live>> make_live(Request request, EventSink sink, const LoopOptions& options,
                                        const text::Tokenizer& tokenizer, const SipKey& secret);

/// The request names its next block, when its tokens have filled one. Null when they have not, or when it shares
/// nothing.
const schedule::BlockKey* name_filled_block(Live& live, int block_tokens, const SipKey& secret);

}  // namespace switchyard::engine
