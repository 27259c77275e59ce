// SPDX-License-Identifier: Apache-2.0
// World: a loop on a scripted model with all that it needs, and what its requests have given.
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/result.h"
#include "engine/fake_model.h"
#include "engine/loop.h"

namespace switchyard::engine {

/// What a request has given.
struct Received {
  std::string text;
  std::vector<int32_t> tokens;
  std::vector<Event> events;  // copies, in order

  const Event& last() const { return events.back(); }
  FinishReason finish() const { return events.empty() ? FinishReason::none : last().finish; }
  EventSink sink() {
    return [this](const Event& event) {
      text += event.text;
      tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
      events.push_back(event);
    };
  }
};

struct WorldShape {
  int max_sequences = 4, max_step_tokens = 16, block_tokens = 4, num_blocks = 64;
  int max_model_len = 200;
  bool prefix_cache = true;
  schedule::QueueLimits queue = {};
  int min_decode_batch = 0;
  double decode_wait_s = 0;
};

/// A loop with all that it needs.
struct World {
  explicit World(const WorldShape& shape = {})
      : model(shape.num_blocks, shape.block_tokens, shape.max_step_tokens, shape.max_sequences),
        tokenizer(*text::open_tokenizer(SWITCHYARD_SOURCE_DIR "/models/demo")),
        pool(pool_options()),
        loop(model, *tokenizer, options(shape), pool, tracer, metrics) {}

  static PoolOptions pool_options() {
    PoolOptions options;
    options.num_threads = 1;
    options.pin = false;
    return options;
  }

  static LoopOptions options(const WorldShape& shape) {
    LoopOptions options;
    options.limits.max_sequences = shape.max_sequences;
    options.limits.max_step_tokens = shape.max_step_tokens;
    options.limits.block_tokens = shape.block_tokens;
    options.limits.num_blocks = shape.num_blocks;
    options.max_model_len = std::min(shape.max_model_len, shape.num_blocks * shape.block_tokens);
    options.limits.min_decode_batch = shape.min_decode_batch;
    options.limits.decode_wait_s = shape.decode_wait_s;
    options.queue = shape.queue;
    options.prefix_cache = shape.prefix_cache;
    options.vocab = FakeModel::kVocab;
    options.experts.assign(FakeModel::kMoeLayers, FakeModel::kExperts);
    options.eos_ids = {0, 2};
    return options;
  }

  /// As an engine does it.
  Result<RequestId> try_submit(Request request, EventSink sink) {
    SWITCHYARD_ASSIGN(Ticket ticket, loop.reserve());
    return loop.submit(std::move(request), std::move(sink), std::move(ticket));
  }
  Result<RequestId> try_submit(std::vector<int32_t> prompt, const SamplingParams& params,
                               EventSink sink) {
    Request request;
    request.prompt_tokens = std::move(prompt);
    request.sampling = params;
    return try_submit(std::move(request), std::move(sink));
  }
  RequestId submit(Request request, Received& received) {
    auto id = try_submit(std::move(request), received.sink());
    EXPECT_TRUE(id.ok()) << id.error().message;
    return id.ok() ? *id : 0;
  }
  RequestId submit(std::vector<int32_t> prompt, const SamplingParams& params, Received& received) {
    Request request;
    request.prompt_tokens = std::move(prompt);
    request.sampling = params;
    return submit(std::move(request), received);
  }
  void turn_until_idle() {
    for (int i = 0; loop.turn(); ++i) ASSERT_LT(i, 100000);
  }

  FakeModel model;
  std::unique_ptr<text::Tokenizer> tokenizer;
  Pool pool;
  Tracer tracer;
  MetricRegistry metrics;
  EngineLoop loop;
};

inline SamplingParams greedy(int max_tokens) {
  SamplingParams params;
  params.temperature = 0;
  params.max_tokens = max_tokens;
  return params;
}

inline std::vector<int32_t> prompt_of(int first, int length) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < length; ++i) prompt.push_back(100 + (first * 37 + i * 11) % 150);
  return prompt;
}

}  // namespace switchyard::engine
