// SPDX-License-Identifier: Apache-2.0
// Properties of the scheduler over random traffic: every request ends exactly once, no budget is
// exceeded, no block leaks or is owned twice, the oldest always advances, and the same calls give
// the same decisions.
#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "schedule/scheduler.h"

namespace switchyard::schedule {
namespace {

struct Request {
  int prompt = 0, output = 0;  // tokens; output is where it will end by itself
  int known = 0, computed = 0;
  bool added = false, ended = false;
};

/// A world that plays requests against a scheduler and checks what must hold after every decision.
class World {
 public:
  World(const Limits& limits, uint32_t seed) : limits_(limits), scheduler_(limits), random_(seed) {}

  void play(int num_requests, int cancel_percent) {
    const int capacity = limits_.num_blocks * limits_.block_tokens;
    for (int i = 0; i < num_requests; ++i) {
      const int prompt = 1 + draw(capacity * 2 / 3);
      requests_.push_back({prompt, 1 + draw(capacity - prompt), prompt, 0, false, false});
    }
    size_t next = 0;
    for (int step = 0; next < requests_.size() || scheduler_.counts().running > 0 ||
                       scheduler_.counts().waiting > 0;
         ++step) {
      ASSERT_LT(step, 200 * num_requests + 1000) << "starvation: the traffic does not drain";
      for (int n = draw(3); n > 0 && next < requests_.size(); --n) add(next++);
      if (draw(100) < cancel_percent) cancel_any();
      play_step();
      if (::testing::Test::HasFatalFailure()) return;
    }
    for (const Request& request : requests_) EXPECT_TRUE(request.ended);
    EXPECT_EQ(scheduler_.counts().blocks_free, limits_.num_blocks);
  }

  const std::vector<Decision>& history() const { return history_; }
  uint64_t preemptions() const { return scheduler_.counts().preemptions; }

 private:
  int draw(int below) {
    return std::uniform_int_distribution<int>(0, std::max(0, below - 1))(random_);
  }
  static SequenceId id_of(size_t index) { return index + 1; }
  Request& of(SequenceId id) { return requests_[id - 1]; }

  void add(size_t index) {
    Request& request = requests_[index];
    ASSERT_TRUE(
        scheduler_.add(id_of(index), request.prompt, request.prompt + request.output, 0).ok());
    request.added = true;
  }

  void cancel_any() {
    std::vector<SequenceId> live;
    for (size_t i = 0; i < requests_.size(); ++i)
      if (requests_[i].added && !requests_[i].ended) live.push_back(id_of(i));
    if (live.empty()) return;
    const SequenceId id = live[static_cast<size_t>(draw(static_cast<int>(live.size())))];
    EXPECT_TRUE(scheduler_.cancel(id));
    of(id).ended = true;
    EXPECT_EQ(scheduler_.find(id), nullptr);
  }

  void play_step() {
    const Decision& decision = scheduler_.decide(0);
    history_.push_back(decision);
    for (const SequenceId id : decision.preempted) of(id).computed = 0;
    check(decision);
    if (decision.idle()) {
      ASSERT_EQ(scheduler_.counts().running + scheduler_.counts().waiting, 0)
          << "idle although there is work";
      return;
    }
    std::vector<Outcome> outcomes;
    for (const Decision::Run& run : decision.runs) outcomes.push_back(advance(run));
    scheduler_.commit(decision, outcomes);
    check_blocks();
  }

  Outcome advance(const Decision::Run& run) {
    Request& request = of(run.id);
    request.computed += run.num_tokens;
    if (!run.samples) return Outcome::goes_on;
    if (++request.known < request.prompt + request.output) return Outcome::goes_on;
    request.ended = true;
    return Outcome::ended;
  }

  void check(const Decision& decision) {
    int tokens = 0, samples = 0;
    std::set<SequenceId> seen;
    for (const Decision::Run& run : decision.runs) {
      const Request& request = of(run.id);
      ASSERT_TRUE(request.added && !request.ended) << "runs an ended request";
      ASSERT_TRUE(seen.insert(run.id).second) << "runs twice in a step";
      ASSERT_GT(run.num_tokens, 0);
      ASSERT_EQ(run.first_token, request.computed);
      ASSERT_LE(run.first_token + run.num_tokens, request.known);
      ASSERT_EQ(run.samples, run.first_token + run.num_tokens == request.known);
      const Sequence* sequence = scheduler_.find(run.id);
      ASSERT_GE(static_cast<int>(sequence->blocks.size()) * limits_.block_tokens,
                run.first_token + run.num_tokens)
          << "a token without a block";
      tokens += run.num_tokens;
      samples += run.samples ? 1 : 0;
    }
    ASSERT_EQ(tokens, decision.num_tokens);
    ASSERT_EQ(samples, decision.num_samples);
    ASSERT_LE(tokens, limits_.max_step_tokens);
    ASSERT_LE(static_cast<int>(decision.runs.size()), limits_.max_sequences);
    check_oldest_runs(seen);
    check_blocks();
  }

  /// No starvation: the oldest request that is alive is in every step.
  void check_oldest_runs(const std::set<SequenceId>& seen) {
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (!requests_[i].added || requests_[i].ended) continue;
      ASSERT_TRUE(seen.count(id_of(i))) << "the oldest request " << id_of(i) << " stands still";
      return;
    }
  }

  void check_blocks() {
    std::set<int32_t> owned;
    int total = 0;
    for (size_t i = 0; i < requests_.size(); ++i) {
      const Sequence* sequence = scheduler_.find(id_of(i));
      if (sequence == nullptr) continue;
      total += static_cast<int>(sequence->blocks.size());
      owned.insert(sequence->blocks.begin(), sequence->blocks.end());
    }
    ASSERT_EQ(static_cast<int>(owned.size()), total) << "a block with two owners";
    ASSERT_EQ(scheduler_.counts().blocks_used, total) << "a leaked block";
  }

  Limits limits_;
  Scheduler scheduler_;
  std::mt19937 random_;
  std::vector<Request> requests_;
  std::vector<Decision> history_;
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
  return limits;
}

TEST(SchedulerProperty, RandomTrafficKeepsEveryPromise) {
  uint64_t preemptions = 0;
  for (uint32_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 random(seed);
    World world(random_limits(random), seed);
    world.play(30, static_cast<int>(seed % 4) * 5);
    preemptions += world.preemptions();
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(preemptions, 500u) << "the traffic does not exercise preemption";
}

TEST(SchedulerProperty, SameCallsSameDecisions) {
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    std::mt19937 one(seed), two(seed);
    World first(random_limits(one), seed), second(random_limits(two), seed);
    first.play(20, 10);
    second.play(20, 10);
    ASSERT_EQ(first.history().size(), second.history().size());
    for (size_t i = 0; i < first.history().size(); ++i) {
      const Decision &a = first.history()[i], &b = second.history()[i];
      ASSERT_EQ(a.preempted, b.preempted);
      ASSERT_TRUE(std::equal(a.runs.begin(), a.runs.end(), b.runs.begin(), b.runs.end(),
                             [](const Decision::Run& x, const Decision::Run& y) {
                               return x.id == y.id && x.first_token == y.first_token &&
                                      x.num_tokens == y.num_tokens && x.samples == y.samples;
                             }));
    }
  }
}

TEST(SchedulerProperty, TenThousandMixedRequestsLeakNothing) {
  Limits limits;
  limits.max_sequences = 16;
  limits.max_step_tokens = 64;
  limits.block_tokens = 4;
  limits.num_blocks = 40;
  Scheduler scheduler(limits);
  std::mt19937 random(7);
  SequenceId next = 1;
  uint64_t ended = 0;
  while (ended < 10000) {
    while (next <= 10000 && scheduler.counts().waiting < 4) {
      const int prompt = 1 + static_cast<int>(random() % 30);
      ASSERT_TRUE(scheduler.add(next++, prompt, prompt + 12, 0).ok());
    }
    if (random() % 8 == 0 && next > 5) ended += scheduler.cancel(next - 1 - random() % 5) ? 1 : 0;
    const Decision& decision = scheduler.decide(0);
    if (decision.idle()) continue;
    std::vector<Outcome> outcomes;
    for (const Decision::Run& run : decision.runs) {
      const Sequence* sequence = scheduler.find(run.id);
      const bool full = sequence->known_tokens + 1 >= sequence->max_tokens;
      outcomes.push_back(run.samples && (full || random() % 6 == 0) ? Outcome::ended
                                                                    : Outcome::goes_on);
      ended += outcomes.back() == Outcome::ended ? 1 : 0;
    }
    scheduler.commit(decision, outcomes);
  }
  EXPECT_EQ(scheduler.counts().blocks_free, limits.num_blocks);
  EXPECT_EQ(scheduler.counts().running + scheduler.counts().waiting, 0);
}

}  // namespace
}  // namespace switchyard::schedule
