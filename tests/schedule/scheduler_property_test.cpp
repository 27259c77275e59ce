// SPDX-License-Identifier: Apache-2.0
// Properties of the scheduler over random traffic with priorities, deadlines, aborts, shared prefixes and tiny pools,
// against a naive model: a memory of what was written where, and a list of who asked for what. Every request ends
// exactly once, no budget is exceeded, no block leaks, whatever a run reads is what its own text would have written,
// nobody writes what another owns, nobody is admitted past one that comes first, deadlines are met to the step, and the
// same calls give the same decisions.
#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "schedule/small_cases.h"

namespace switchyard::schedule {
namespace {

struct Request {
  int prompt = 0, output = 0;  // tokens; output is where it will end by itself
  int common = 0;              // leading tokens that all requests have alike
  int priority = 0;
  double arrived_s = 0, queue_deadline_s = kNever, deadline_s = kNever;
  int known = 0, computed = 0;
  bool has_keys = false, added = false, started = false, running = false;
  int ends = 0;
};

struct Mix {
  int num_requests = 30, cancel_percent = 10, fail_percent = 2, deadline_percent = 20;
};

/// A world that plays requests against a scheduler and checks what must hold after every decision.
class World {
 public:
  World(const Limits& limits, uint32_t seed)
      : limits_(limits),
        scheduler_(limits),
        random_(seed),
        memory_(static_cast<size_t>(limits.num_blocks * limits.block_tokens), -1) {}

  void play(const Mix& mix) {
    for (int i = 0; i < mix.num_requests; ++i) requests_.push_back(draw_request(mix));
    size_t next = 0;
    for (int step = 0; next < requests_.size() || alive() > 0; ++step) {
      ASSERT_LT(step, 400 * mix.num_requests + 1000) << "starvation: the traffic does not drain";
      for (int n = draw(3); n > 0 && next < requests_.size(); --n) add(next++);
      if (draw(100) < mix.cancel_percent) cancel_any();
      play_step(mix);
      if (::testing::Test::HasFatalFailure()) return;
      now_s_ += 0.01 * draw(3);
    }
    for (const Request& request : requests_) EXPECT_EQ(request.ends, 1);
    const Counts counts = scheduler_.counts();
    EXPECT_EQ(counts.blocks_free + counts.blocks_cached, limits_.num_blocks);
    EXPECT_EQ(counts.blocks_used, 0);
  }

  const std::vector<Decision>& history() const { return history_; }
  Counts counts() const { return scheduler_.counts(); }
  int expired() const { return expired_; }

 private:
  int draw(int below) {
    return std::uniform_int_distribution<int>(0, std::max(0, below - 1))(random_);
  }
  int alive() const { return scheduler_.counts().running + scheduler_.counts().waiting; }
  static SequenceId id_of(size_t index) { return index + 1; }
  Request& of(SequenceId id) { return requests_[id - 1]; }
  bool is_alive(const Request& request) const { return request.added && request.ends == 0; }

  Request draw_request(const Mix& mix) {
    const int capacity = limits_.num_blocks * limits_.block_tokens;
    Request request;
    request.prompt = request.known = 1 + draw(capacity * 2 / 3);
    request.output = 1 + draw(capacity - request.prompt);
    request.common = draw(capacity);
    request.priority = draw(4) - 1;
    request.has_keys = draw(5) > 0;
    if (draw(100) < mix.deadline_percent) request.queue_deadline_s = 0.01 * draw(100);
    if (draw(100) < mix.deadline_percent) request.deadline_s = 0.01 * (20 + draw(200));
    return request;
  }

  /// What stands at a position of a request's text: the same for all within its common part.
  static int32_t token(SequenceId id, const Request& request, int position) {
    return position < request.common ? position : static_cast<int32_t>(id) * 100000 + position;
  }
  BlockKey key(SequenceId id, int block) {
    constexpr SipKey kSecret{3, 4};
    BlockKey key = first_key(kSecret, "");
    for (int b = 0; b <= block; ++b) {
      std::vector<int32_t> tokens;
      for (int i = 0; i < limits_.block_tokens; ++i)
        tokens.push_back(token(id, of(id), b * limits_.block_tokens + i));
      key = next_key(kSecret, key, tokens);
    }
    return key;
  }

  void add(size_t index) {
    Request& request = requests_[index];
    const SequenceId id = id_of(index);
    std::vector<BlockKey> keys;
    if (request.prompt < limits_.block_tokens) request.has_keys = false;
    for (int b = 0; request.has_keys && (b + 1) * limits_.block_tokens <= request.prompt; ++b)
      keys.push_back(key(id, b));
    request.arrived_s = now_s_;
    request.queue_deadline_s += now_s_;
    request.deadline_s += now_s_;
    ASSERT_TRUE(scheduler_
                    .add({.id = id,
                          .prompt_tokens = request.prompt,
                          .max_tokens = request.prompt + request.output,
                          .now_s = now_s_,
                          .priority = request.priority,
                          .queue_deadline_s = request.queue_deadline_s,
                          .deadline_s = request.deadline_s,
                          .keys = keys})
                    .ok());
    request.added = true;
  }

  void cancel_any() {
    std::vector<SequenceId> live;
    for (size_t i = 0; i < requests_.size(); ++i)
      if (is_alive(requests_[i])) live.push_back(id_of(i));
    if (live.empty()) return;
    const SequenceId id = live[static_cast<size_t>(draw(static_cast<int>(live.size())))];
    EXPECT_TRUE(scheduler_.cancel(id));
    ++of(id).ends;
    EXPECT_EQ(scheduler_.find(id), nullptr);
  }

  void play_step(const Mix& mix) {
    const Decision& decision = scheduler_.decide(now_s_);
    history_.push_back(decision);
    check_deadlines(decision);
    for (const SequenceId id : decision.preempted) {
      of(id).computed = 0;
      of(id).running = false;
    }
    if (decision.idle()) {
      ASSERT_TRUE(alive() == 0 || decision.wake_s <= now_s_ + limits_.decode_wait_s + 1e-9)
          << "idle although there is work";
      if (alive() > 0) now_s_ = std::max(now_s_, decision.wake_s);
      return;
    }
    check(decision);
    std::vector<Outcome> outcomes;
    for (const Decision::Run& run : decision.runs) outcomes.push_back(advance(run, mix));
    scheduler_.commit(decision, outcomes);
    check_blocks();
  }

  /// Everybody who is late, and nobody else, is named; once.
  void check_deadlines(const Decision& decision) {
    std::vector<SequenceId> late, named;
    for (const Decision::Expiry& gone : decision.expired) named.push_back(gone.id);
    for (size_t i = 0; i < requests_.size(); ++i) {
      Request& request = requests_[i];
      const bool queue = !request.started && request.queue_deadline_s <= now_s_;
      if (!is_alive(request) || !(queue || request.deadline_s <= now_s_)) continue;
      late.push_back(id_of(i));
      ++request.ends;
      ++expired_;
    }
    ASSERT_EQ(named, late);
  }

  Outcome advance(const Decision::Run& run, const Mix& mix) {
    Request& request = of(run.id);
    write(run);
    request.computed += run.num_tokens;
    if (draw(100) < mix.fail_percent) {
      ++request.ends;
      return Outcome::failed;
    }
    if (!run.samples) return Outcome::goes_on;
    ++request.known;
    if (request.has_keys && request.known % limits_.block_tokens == 0)
      scheduler_.add_key(run.id, key(run.id, request.known / limits_.block_tokens - 1));
    if (request.known < request.prompt + request.output) return Outcome::goes_on;
    ++request.ends;
    return Outcome::ended;
  }

  int32_t& cell(const Sequence& sequence, int position) {
    const auto block =
        static_cast<size_t>(sequence.blocks[static_cast<size_t>(position / limits_.block_tokens)]);
    return memory_[block * static_cast<size_t>(limits_.block_tokens) +
                   static_cast<size_t>(position % limits_.block_tokens)];
  }

  void write(const Decision::Run& run) {
    const Sequence& sequence = *scheduler_.find(run.id);
    for (int position = run.first_token; position < run.first_token + run.num_tokens; ++position)
      cell(sequence, position) = token(run.id, of(run.id), position);
  }

  void check(const Decision& decision) {
    int tokens = 0, samples = 0;
    std::set<SequenceId> seen;
    for (const Decision::Run& run : decision.runs) {
      ASSERT_TRUE(is_alive(of(run.id))) << "runs an ended request";
      ASSERT_TRUE(seen.insert(run.id).second) << "runs twice in a step";
      check_admission(run);
      check_run(run);
      tokens += run.num_tokens;
      samples += run.samples ? 1 : 0;
    }
    ASSERT_EQ(tokens, decision.num_tokens);
    ASSERT_EQ(samples, decision.num_samples);
    ASSERT_LE(tokens, limits_.max_step_tokens);
    ASSERT_LE(static_cast<int>(decision.runs.size()), limits_.max_sequences);
    ASSERT_LE(scheduler_.counts().running, limits_.max_sequences);
    check_first_runs(seen);
    check_blocks();
    check_writes(decision);
  }

  void check_run(const Decision::Run& run) {
    Request& request = of(run.id);
    const Sequence& sequence = *scheduler_.find(run.id);
    ASSERT_GT(run.num_tokens, 0);
    ASSERT_EQ(run.first_token, request.computed);
    ASSERT_LE(run.first_token + run.num_tokens, request.known);
    ASSERT_EQ(run.samples, run.first_token + run.num_tokens == request.known);
    ASSERT_GE(static_cast<int>(sequence.blocks.size()) * limits_.block_tokens,
              run.first_token + run.num_tokens)
        << "a token without a block";
    for (int position = 0; position < run.first_token; ++position)
      ASSERT_EQ(cell(sequence, position), token(run.id, request, position))
          << "request " << run.id << " reads another text at " << position;
  }

  double place(const Request& request) const {
    return request.arrived_s + request.priority * limits_.ageing_s;
  }
  bool comes_before(size_t a, size_t b) const {
    const double place_a = place(requests_[a]), place_b = place(requests_[b]);
    return place_a != place_b ? place_a < place_b : a < b;
  }

  /// One who comes in finds what is shared, and leaves nobody waiting who comes before it.
  void check_admission(const Decision::Run& run) {
    Request& request = of(run.id);
    if (request.running) return;
    request.running = request.started = true;
    ASSERT_EQ(run.first_token % limits_.block_tokens, 0);
    ASSERT_TRUE(request.has_keys || run.first_token == 0) << "shares without keys";
    request.computed = run.first_token;
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (!is_alive(requests_[i]) || id_of(i) == run.id) continue;
      const Sequence& other = *scheduler_.find(id_of(i));
      ASSERT_TRUE(other.state == Sequence::State::running || !comes_before(i, run.id - 1))
          << run.id << " was admitted past " << id_of(i);
    }
  }

  /// No starvation: the first of those who run is in every step.
  void check_first_runs(const std::set<SequenceId>& seen) {
    size_t first = requests_.size();
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (!is_alive(requests_[i]) || !requests_[i].running) continue;
      if (first == requests_.size() || comes_before(i, first)) first = i;
    }
    if (first < requests_.size()) {
      ASSERT_TRUE(seen.count(id_of(first))) << id_of(first) << " is the first and stands still";
    }
  }

  std::map<int32_t, int> owners() const {
    std::map<int32_t, int> owners;
    for (size_t i = 0; i < requests_.size(); ++i) {
      const Sequence* sequence = scheduler_.find(id_of(i));
      if (sequence == nullptr) continue;
      for (const int32_t block : sequence->blocks) ++owners[block];
    }
    return owners;
  }

  void check_blocks() {
    const Counts counts = scheduler_.counts();
    ASSERT_EQ(counts.blocks_used, static_cast<int>(owners().size())) << "a leaked block";
    ASSERT_EQ(counts.blocks_used + counts.blocks_cached + counts.blocks_free, limits_.num_blocks);
  }

  void check_writes(const Decision& decision) {
    const std::map<int32_t, int> owned = owners();
    for (const Decision::Run& run : decision.runs) {
      const Sequence& sequence = *scheduler_.find(run.id);
      for (int position = run.first_token; position < run.first_token + run.num_tokens;
           ++position) {
        const int32_t block = sequence.blocks[static_cast<size_t>(position / limits_.block_tokens)];
        ASSERT_EQ(owned.at(block), 1) << "request " << run.id << " writes what another owns";
      }
    }
  }

  Limits limits_;
  Scheduler scheduler_;
  std::mt19937 random_;
  std::vector<int32_t> memory_;  // [blocks, P] tokens
  std::vector<Request> requests_;
  std::vector<Decision> history_;
  double now_s_ = 0;
  int expired_ = 0;
};

Limits random_limits(std::mt19937& random) {
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  Limits limits;
  limits.max_sequences = draw(1, 9);
  limits.max_step_tokens = limits.max_sequences + draw(0, 20);
  limits.block_tokens = draw(1, 6);
  limits.num_blocks = draw(2, 25);
  limits.ageing_s = 0.01 * draw(1, 100);
  if (draw(0, 2) == 0) {
    limits.min_decode_batch = draw(1, 5);
    limits.decode_wait_s = 0.01 * draw(1, 4);
  }
  return limits;
}

TEST(SchedulerProperty, RandomTrafficKeepsEveryPromise) {
  Counts sum;
  int expired = 0;
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 random(seed);
    World world(random_limits(random), seed);
    world.play({.cancel_percent = static_cast<int>(seed % 4) * 5});
    const Counts counts = world.counts();
    sum.preemptions += counts.preemptions;
    sum.prefix_hit_tokens += counts.prefix_hit_tokens;
    sum.evictions += counts.evictions;
    sum.held_steps += counts.held_steps;
    expired += world.expired();
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(sum.preemptions, 500u) << "the traffic does not exercise preemption";
  EXPECT_GT(sum.prefix_hit_tokens, 5000u);
  EXPECT_GT(sum.evictions, 1000u);
  EXPECT_GT(sum.held_steps, 100u);
  EXPECT_GT(expired, 300);
}

TEST(SchedulerProperty, SameCallsSameDecisions) {
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    std::mt19937 one(seed), two(seed);
    World first(random_limits(one), seed), second(random_limits(two), seed);
    first.play({});
    second.play({});
    ASSERT_EQ(first.history().size(), second.history().size());
    for (size_t i = 0; i < first.history().size(); ++i) {
      const Decision &a = first.history()[i], &b = second.history()[i];
      ASSERT_EQ(a.preempted, b.preempted);
      ASSERT_EQ(a.wake_s, b.wake_s);
      ASSERT_TRUE(std::equal(a.runs.begin(), a.runs.end(), b.runs.begin(), b.runs.end(),
                             [](const Decision::Run& x, const Decision::Run& y) {
                               return x.id == y.id && x.first_token == y.first_token &&
                                      x.num_tokens == y.num_tokens && x.samples == y.samples;
                             }));
    }
  }
}

}  // namespace
}  // namespace switchyard::schedule
