// SPDX-License-Identifier: Apache-2.0
// Partial selection against a full sort, over sizes around its vector width and its buffer.
#include "engine/selection.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace switchyard::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<Candidate> sorted(const std::vector<float>& logits) {
  std::vector<Candidate> all;
  for (size_t i = 0; i < logits.size(); ++i) all.push_back({logits[i], static_cast<int32_t>(i)});
  std::stable_sort(all.begin(), all.end(),
                   [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; });
  return all;
}

void expect_best(const std::vector<float>& logits, int64_t count) {
  std::vector<Candidate> room(logits.size());
  const int64_t kept = select_best(logits, count, room);
  const std::vector<Candidate> expected = sorted(logits);
  ASSERT_EQ(kept, std::min<int64_t>(count, static_cast<int64_t>(logits.size())));
  for (size_t i = 0; i < static_cast<size_t>(kept); ++i) {
    ASSERT_EQ(room[i].token, expected[i].token) << "place " << i << " of " << logits.size();
    ASSERT_EQ(room[i].logit, expected[i].logit);
  }
}

TEST(Selection, EqualsTheHeadOfAFullSort) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 4);
  for (const size_t size : {1u, 2u, 15u, 16u, 17u, 33u, 1000u, 1025u, 5000u, 40000u}) {
    std::vector<float> logits(size);
    for (float& logit : logits) logit = normal(random);
    for (const int64_t count : {1, 2, 7, 64, 512, 4096, 100000}) expect_best(logits, count);
  }
}

TEST(Selection, TiesGoToTheLowerToken) {
  std::mt19937 random(2);
  std::vector<float> logits(9000);
  for (float& logit : logits) logit = static_cast<float>(random() % 5);  // many ties everywhere
  for (const int64_t count : {1, 3, 100, 2000, 8999}) expect_best(logits, count);
  expect_best(std::vector<float>(3000, 1.5f), 40);  // nothing but ties
}

TEST(Selection, RisingLogitsRefillTheBufferAgainAndAgain) {
  std::vector<float> logits(20000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i);
  expect_best(logits, 10);
}

TEST(Selection, LeavesOutWhatIsMasked) {
  std::vector<float> logits(100, -kInfinity);
  logits[70] = 1;
  logits[20] = -5;
  std::vector<Candidate> room(logits.size());
  ASSERT_EQ(select_best(logits, 10, room), 2);
  EXPECT_EQ(room[0].token, 70);
  EXPECT_EQ(room[1].token, 20);
}

TEST(Selection, MassKeepsTheFewestThatReachIt) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 2);
  for (const size_t size : {1u, 2u, 3u, 50u, 3000u}) {
    std::vector<float> logits(size);
    for (float& logit : logits) logit = std::round(normal(random) * 2) / 2;  // with ties
    const std::vector<Candidate> best = sorted(logits);
    Weigher weigh;
    weigh.largest = static_cast<double>(best[0].logit);
    double total = 0;
    for (const Candidate& candidate : best) total += weigh(candidate.logit);
    for (const double share : {1e-9, 0.1, 0.5, 0.9, 0.999, 2.0}) {
      size_t expected = 0;  // the definition, on the full sort
      for (double sum = 0; expected < size && sum < share * total; ++expected)
        sum += weigh(best[expected].logit);
      std::vector<Candidate> given;
      for (size_t i = 0; i < size; ++i) given.push_back({logits[i], static_cast<int32_t>(i)});
      const int64_t kept = select_mass(given, share * total, weigh);
      ASSERT_EQ(kept, static_cast<int64_t>(expected)) << size << " share " << share;
      std::sort(given.begin(), given.begin() + kept, better);
      for (size_t i = 0; i < expected; ++i) ASSERT_EQ(given[i].token, best[i].token);
    }
  }
}

TEST(Selection, LargestIsTheLowestOfEqualTokens) {
  for (const size_t size : {1u, 16u, 17u, 100u}) {
    std::vector<float> logits(size, -3.0f);
    EXPECT_EQ(find_largest(logits).token, 0);
    logits[size / 2] = 2;
    logits[size - 1] = 2;
    EXPECT_EQ(find_largest(logits).token, static_cast<int32_t>(size / 2));
    EXPECT_EQ(find_largest(logits).logit, 2.0f);
  }
}

TEST(Selection, FindsEveryNonFiniteValueAnywhere) {
  for (const float bad : {std::nanf(""), -std::nanf(""), kInfinity, -kInfinity}) {
    for (const size_t at : {0u, 15u, 16u, 36u}) {
      std::vector<float> logits(37, std::numeric_limits<float>::max());
      ASSERT_TRUE(all_finite(logits));
      logits[at] = bad;
      EXPECT_FALSE(all_finite(logits)) << bad << " at " << at;
    }
  }
}

}  // namespace
}  // namespace switchyard::engine
