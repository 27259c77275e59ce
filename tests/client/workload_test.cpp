// SPDX-License-Identifier: Apache-2.0
// Drawn requests: repeatable, within their ranges, with the shares and rates that were asked for.
#include "client/workload.h"

#include <set>

#include <gtest/gtest.h>

#include "base/json.h"

namespace switchyard::client {
namespace {

Json body_of(const Workload& workload, uint32_t stream, uint32_t index) {
  auto json = parse_json(draw_request(workload, stream, index).body, "body");
  EXPECT_TRUE(json.ok());
  return *std::move(json);
}

TEST(Workload, RandomIdsAreInRangeAndDifferByRequestPointAndSeed) {
  Workload workload;
  workload.model = "m";
  workload.vocab = 50;
  workload.input_tokens = {3, 9};
  workload.output_tokens = {4, 6};
  std::set<std::string> bodies;
  std::set<size_t> lengths;
  std::set<int64_t> limits;
  for (uint32_t i = 0; i < 200; ++i) {
    const Json body = body_of(workload, 0, i);
    const auto& prompt = body.find("prompt")->as_array();
    lengths.insert(prompt.size());
    for (const Json& id : prompt) EXPECT_TRUE(id.as_int() >= 0 && id.as_int() < 50);
    limits.insert(body.find("max_tokens")->as_int());
    bodies.insert(draw_request(workload, 0, i).body);
  }
  EXPECT_EQ(lengths, (std::set<size_t>{3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(limits, (std::set<int64_t>{4, 5, 6}));
  EXPECT_EQ(bodies.size(), 200u);
  EXPECT_EQ(draw_request(workload, 0, 7).body, draw_request(workload, 0, 7).body);
  EXPECT_NE(draw_request(workload, 1, 7).body, draw_request(workload, 0, 7).body);
  Workload other = workload;
  other.seed = 1;
  EXPECT_NE(draw_request(other, 0, 7).body, draw_request(workload, 0, 7).body);
}

TEST(Workload, OnlyStandardFieldsUnlessAskedFor) {
  Workload workload;
  workload.prompts = {"one", "two"};
  workload.endpoint = Endpoint::chat;
  const std::set<std::string> standard{"model",       "messages", "max_tokens",
                                       "temperature", "stream",   "stream_options"};
  const Json body = body_of(workload, 0, 1);
  for (const auto& [name, value] : body.as_object()) EXPECT_TRUE(standard.contains(name)) << name;
  EXPECT_EQ(body_of(workload, 0, 3).find("messages")->as_array()[0].find("content")->as_string(),
            "two");
  workload.ignore_eos = true;
  EXPECT_NE(body_of(workload, 0, 1).find("ignore_eos"), nullptr);
}

TEST(Workload, TheShareOfThoseWhoLeave) {
  Workload workload;
  workload.prompts = {"x"};
  workload.cancel_rate = 0.3;
  workload.output_tokens = {8, 8};
  int early = 0, later = 0;
  for (uint32_t i = 0; i < 10'000; ++i) {
    const Drawn drawn = draw_request(workload, 0, i);
    EXPECT_FALSE(drawn.cancel_after_s >= 0 && drawn.cancel_at_text >= 0);
    EXPECT_LE(drawn.cancel_at_text, 8);
    early += drawn.cancel_after_s >= 0;
    later += drawn.cancel_at_text >= 0;
  }
  EXPECT_NEAR(early, 1500, 150);  // four standard deviations
  EXPECT_NEAR(later, 1500, 150);
}

TEST(Workload, GapsAreExponentialWithTheRate) {
  const Workload workload;
  double sum = 0, squares = 0;
  constexpr int kGaps = 10'000;
  for (uint32_t i = 0; i < kGaps; ++i) {
    const double gap = draw_gap_s(workload, 0, i, 4);
    EXPECT_GE(gap, 0);
    sum += gap;
    squares += gap * gap;
  }
  const double mean = sum / kGaps;
  EXPECT_NEAR(mean, 0.25, 0.01);
  EXPECT_NEAR(squares / kGaps - mean * mean, 0.0625, 0.006) << "variance of the exponential";
}

TEST(Workload, Ranges) {
  EXPECT_EQ(parse_range("7", "x")->high, 7);
  EXPECT_EQ(parse_range("7:9", "x")->low, 7);
  for (const char* const text : {"", "0", "-1", "9:7", "7:", ":7", "7:x", "7 ", "99999999999"})
    EXPECT_FALSE(parse_range(text, "x").ok()) << text;
}

}  // namespace
}  // namespace switchyard::client
