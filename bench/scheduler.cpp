// SPDX-License-Identifier: Apache-2.0
// Host time of a decoding step outside the model: what the scheduler, and the loop around it, add to every step. One JSON
// line for each case.
//
//   bench_scheduler [case|all] [sequences] [steps] [repetitions] [model folder]
//
//   schedule   decide() and commit() alone, a block key for every sequence that has filled a block
//   urgent     the same beside an urgent request that waits: half of the others come after it and could make way, but all
//              of what they would give up is not enough
//   turn       a whole turn of the loop on a stub model: decide, batch, sample (greedy, 64 tokens to choose from), turn
//              tokens into text by the tokenizer of the model folder (models/demo), call the sinks, commit, metrics
//   routed     the same with the routings of 48 layers of 128 experts, 8 picks a token: what the statistics of the MoE
//              layers add. The stub has them ready, so that all of the time is ours
//   counted    the same with Request::moe_stats, which counts the picks of every request
//
// The time inside the stub is taken off, but for its calls of the observer. bench/scheduler_host.py runs all, counts
// instructions by callgrind (two runs of different length: the start cancels out) and keeps the record.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/result.h"
#include "engine/loop.h"
#include "text/tokenizer.h"

namespace switchyard::engine {
namespace {

constexpr int kVocab = 64, kPrompt = 33, kBlockTokens = 16, kWarmSteps = 32;
constexpr int kExperts = 128, kTopK = 8;

struct Size {
  int sequences = 256, steps = 2000, repetitions = 9;
  const char* folder = "models/demo";
};

schedule::Limits limits_of(const Size& size) {
  schedule::Limits limits;
  limits.max_sequences = size.sequences;
  limits.max_step_tokens = size.sequences * kPrompt;
  limits.block_tokens = kBlockTokens;
  const int longest = kPrompt + kWarmSteps + size.steps + 2;
  limits.num_blocks = size.sequences * schedule::blocks_for(longest, kBlockTokens);
  return limits;
}

/// Microseconds of each step.
using Times = std::vector<double>;

double at_share(Times times, double share) {
  std::sort(times.begin(), times.end());
  return times[static_cast<size_t>(share * static_cast<double>(times.size() - 1))];
}

/// Wants the whole cache, and never gets it.
void add_urgent(schedule::Scheduler& scheduler, int id) {
  const int tokens = scheduler.limits().num_blocks * kBlockTokens;
  std::vector<schedule::BlockKey> keys;
  for (int b = 0; b < tokens / kBlockTokens; ++b)
    keys.push_back({static_cast<uint64_t>(id) << 20, static_cast<uint64_t>(b)});
  scheduler
      .add({.id = static_cast<schedule::SequenceId>(id),
            .prompt_tokens = tokens,
            .max_tokens = tokens,
            .keys = keys})
      .value();
}

/// The scheduler alone, sequences out of step with each other, as they are in a server.
Times schedule_steps(const Size& size, bool urgent_waits) {
  schedule::Scheduler scheduler(limits_of(size));
  const SipKey secret{1, 2};
  std::vector<int> known(static_cast<size_t>(size.sequences));
  std::vector<int32_t> tokens(kBlockTokens, 7);
  for (int i = 0; i < size.sequences; ++i) {
    const int prompt = kPrompt - i % kBlockTokens;
    known[static_cast<size_t>(i)] = prompt;
    std::vector<schedule::BlockKey> keys;
    for (int b = 0; b < prompt / kBlockTokens; ++b)
      keys.push_back({static_cast<uint64_t>(i) << 20, static_cast<uint64_t>(b)});
    scheduler
        .add({.id = static_cast<schedule::SequenceId>(i) + 1,
              .prompt_tokens = prompt,
              .max_tokens = kPrompt + kWarmSteps + size.steps + 2,
              .priority = i % 2,
              .keys = keys})
        .value();
  }
  const std::vector<schedule::Outcome> outcomes(known.size(), schedule::Outcome::goes_on);
  schedule::BlockKey key = schedule::first_key(secret, "");
  Times times;
  for (int step = 0; step < kWarmSteps + size.steps; ++step) {
    if (urgent_waits && step == 1) add_urgent(scheduler, size.sequences + 1);
    const int64_t start = now_ns();
    const schedule::Decision& decision = scheduler.decide(step * 1e-3);
    for (const schedule::Decision::Run& run : decision.runs) {
      int& length = known[run.id - 1];
      if (++length % kBlockTokens != 0) continue;
      key = schedule::next_key(secret, key, tokens);
      scheduler.add_key(run.id, key);
    }
    scheduler.commit(decision, outcomes);
    if (step >= kWarmSteps) times.push_back(static_cast<double>(now_ns() - start) * 1e-3);
  }
  return times;
}

/// Gives every row the same logits, and every layer the same routing.
class Stub final : public ModelPort {
 public:
  Stub(const Size& size, int layers)
      : layers_(layers), logits_(static_cast<size_t>(size.sequences * kVocab)) {
    for (size_t i = 0; i < logits_.size(); ++i) logits_[i] = i % kVocab == 40 ? 2.0f : 1.0f;
    const auto tokens = static_cast<size_t>(limits_of(size).max_step_tokens);
    expert_.resize(tokens * kTopK);
    for (size_t i = 0; i < expert_.size(); ++i)
      expert_[i] = static_cast<int32_t>((i * 37 + i / kTopK) % kExperts);
    weight_.assign(expert_.size(), 0.125f);
    load_.assign(kExperts, size.sequences * kTopK / kExperts);
  }

  Result<model::StepOutput> forward(const model::StepInput& input,
                                    model::RoutingObserver* observer) override {
    const int64_t tokens = input.token.shape[0];
    Routing routing;
    routing.expert = TensorView::of(expert_.data(), {tokens, kTopK});
    routing.weight = TensorView::of(weight_.data(), {tokens, kTopK});
    routing.load = routing.demand = TensorView::of(load_.data(), {kExperts});
    for (int layer = 0; layer < layers_; ++layer) observer->on_routing(layer, routing);
    return model::StepOutput{TensorView::of(logits_.data(), {input.logit_row.shape[0], kVocab})};
  }
  void between_steps() override {}

 private:
  int layers_;
  std::vector<float> logits_, weight_;
  std::vector<int32_t> expert_, load_;
};

LoopOptions loop_options(const Size& size, int layers) {
  LoopOptions options;
  options.limits = limits_of(size);
  options.max_model_len = kPrompt + kWarmSteps + size.steps + 2;
  options.vocab = kVocab;
  options.experts.assign(static_cast<size_t>(layers), kExperts);
  return options;
}

Request request_of(int i, int max_tokens, bool moe_stats) {
  Request request;
  request.moe_stats = moe_stats;
  for (int t = 0; t < kPrompt - i % kBlockTokens; ++t)
    request.prompt_tokens.push_back((i * 31 + t) % kVocab);
  request.prompt_tokens[1] = i / kVocab % kVocab;  // no two begin alike: nobody waits for another
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

Times turn_steps(const Size& size, int layers, bool moe_stats) {
  Stub model(size, layers);
  const auto tokenizer = text::open_tokenizer(size.folder).value();
  PoolOptions one_thread;
  one_thread.num_threads = 1;
  one_thread.pin = false;
  Pool pool(one_thread);
  Tracer tracer;
  MetricRegistry metrics;
  EngineLoop loop(model, *tokenizer, loop_options(size, layers), pool, tracer, metrics);
  uint64_t events = 0;
  for (int i = 0; i < size.sequences; ++i)
    loop.submit(
            request_of(i, kWarmSteps + size.steps + 1, moe_stats), [&](const Event&) { ++events; },
            loop.reserve().value())
        .value();
  Times times;
  for (int step = 0; step < kWarmSteps + size.steps; ++step) {
    const int64_t start = now_ns();
    loop.turn();
    if (step >= kWarmSteps) times.push_back(static_cast<double>(now_ns() - start) * 1e-3);
  }
  if (events != static_cast<uint64_t>(size.sequences) * (kWarmSteps + size.steps))
    std::fprintf(stderr, "bench_scheduler: %llu events: some steps were not whole\n",
                 static_cast<unsigned long long>(events));
  return times;
}

struct Case {
  const char* name;
  Times (*steps)(const Size&);
};
constexpr Case kCases[] = {
    {"schedule", [](const Size& size) { return schedule_steps(size, false); }},
    {"urgent", [](const Size& size) { return schedule_steps(size, true); }},
    {"turn", [](const Size& size) { return turn_steps(size, 0, false); }},
    {"routed", [](const Size& size) { return turn_steps(size, 48, false); }},
    {"counted", [](const Size& size) { return turn_steps(size, 48, true); }},
};

void print(const Case& which, const Size& size) {
  Times medians, p99s;
  for (int repetition = 0; repetition < size.repetitions; ++repetition) {
    const Times times = which.steps(size);
    medians.push_back(at_share(times, 0.5));
    p99s.push_back(at_share(times, 0.99));
  }
  std::string line;
  JsonWriter json(line);
  json.begin_object().field("part", "scheduler").field("case", which.name);
  json.field("sequences", size.sequences).field("steps", size.steps);
  json.field("repetitions", size.repetitions).field("us_per_step", at_share(medians, 0.5));
  json.field("us_lowest", at_share(medians, 0)).field("us_highest", at_share(medians, 1));
  json.field("us_p99", at_share(p99s, 0.5)).end_object();
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "all";
  Size size;
  if (argc > 2) size.sequences = std::atoi(argv[2]);
  if (argc > 3) size.steps = std::atoi(argv[3]);
  if (argc > 4) size.repetitions = std::atoi(argv[4]);
  if (argc > 5) size.folder = argv[5];
  calibrate_clock();
  bool found = false;
  for (const Case& which : kCases) {
    if (name != "all" && name != which.name) continue;
    found = true;
    print(which, size);
  }
  if (found && size.sequences > 0 && size.steps > 0 && size.repetitions > 0) return 0;
  std::fprintf(
      stderr,
      "usage: bench_scheduler [all|schedule|urgent|turn|routed|counted] [sequences] [steps] "
      "[repetitions] [model folder]\n");
  return 2;
}

}  // namespace
}  // namespace switchyard::engine

int main(int argc, char** argv) { return switchyard::engine::run(argc, argv); }
