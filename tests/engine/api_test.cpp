// SPDX-License-Identifier: Apache-2.0
// The public face on the demonstration model: the reference's greedy tokens, together and under
// preemption, and the refusals of open().
#include <cmath>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "switchyard/switchyard.h"

#include "base/json.h"
#include "engine/memory_plan.h"
#include "model/model.h"

namespace switchyard {
namespace {

constexpr const char* kModel = SWITCHYARD_SOURCE_DIR "/models/demo";

struct Golden {
  std::string prompt, text;
  std::vector<int32_t> prompt_ids, greedy;
};

std::vector<int32_t> ids(const Json& json) {
  std::vector<int32_t> ids;
  for (const Json& id : json.as_array()) ids.push_back(static_cast<int32_t>(id.as_int()));
  return ids;
}

std::vector<Golden> goldens() {
  const auto json = read_json_file(std::string(kModel) + "/golden/logits.json");
  EXPECT_TRUE(json.ok());
  std::vector<Golden> goldens;
  for (const Json& one : json->find("prompts")->as_array())
    goldens.push_back({one.find("prompt")->as_string(), one.find("greedy_text")->as_string(),
                       ids(*one.find("ids")), ids(*one.find("greedy"))});
  return goldens;
}

EngineOptions exact_options() {
  EngineOptions options;
  options.model = kModel;
  options.precision = Precision::f32;
  options.threads = 2;
  options.max_model_len = 256;
  return options;
}

std::unique_ptr<Engine> open(const EngineOptions& options) {
  auto engine = Engine::open(options);
  EXPECT_TRUE(engine.ok()) << engine.error().message;
  return engine.ok() ? *std::move(engine) : nullptr;
}

struct Answer {
  std::string text;
  std::vector<int32_t> tokens;
  Event last;
};

/// Runs all requests at once.
std::vector<Answer> answer(Engine& engine, std::vector<Request> requests) {
  std::vector<Answer> answers(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto id =
        engine.submit(std::move(requests[i]), [&answer = answers[i]](const Event& event) {
          answer.text += event.text;
          answer.tokens.insert(answer.tokens.end(), event.tokens.begin(), event.tokens.end());
          answer.last = event;
        });
    EXPECT_TRUE(id.ok()) << id.error().message;
  }
  engine.wait_idle();
  return answers;
}

enum class As { text, tokens };

std::vector<Request> requests(const std::vector<Golden>& goldens, As form) {
  std::vector<Request> requests;
  for (const Golden& golden : goldens) {
    Request request;
    if (form == As::text) {
      request.prompt = golden.prompt;
    } else {
      request.prompt_tokens = golden.prompt_ids;
    }
    request.sampling.temperature = 0;
    request.sampling.max_tokens = static_cast<int>(golden.greedy.size());
    request.sampling.ignore_eos = true;
    requests.push_back(std::move(request));
  }
  return requests;
}

void expect_goldens(const std::vector<Golden>& goldens, const std::vector<Answer>& answers) {
  for (size_t i = 0; i < goldens.size(); ++i) {
    EXPECT_EQ(answers[i].last.prompt_tokens, goldens[i].prompt_ids) << goldens[i].prompt;
    EXPECT_EQ(answers[i].tokens, goldens[i].greedy) << goldens[i].prompt;
    EXPECT_EQ(answers[i].text, goldens[i].text) << goldens[i].prompt;
    EXPECT_EQ(answers[i].last.finish, FinishReason::length);
  }
}

TEST(Api, GoldenTokensFromTextAndFromIds) {
  const auto engine = open(exact_options());
  ASSERT_NE(engine, nullptr);
  for (const As form : {As::text, As::tokens})
    expect_goldens(goldens(), answer(*engine, requests(goldens(), form)));
}

TEST(Api, GoldenTokensInSmallChunksAndUnderPreemption) {
  EngineOptions options = exact_options();
  options.max_step_tokens = 4;
  options.max_sequences = 4;
  options.max_model_len = 64;
  options.block_tokens = 4;
  options.kv_cache_bytes = int64_t{6} * 2 * 2 * 64 * 4 * 4 * 24;  // 24 blocks of 6 layers in f32
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(engine->summary().kv_tokens, 96);
  expect_goldens(goldens(), answer(*engine, requests(goldens(), As::tokens)));
  EXPECT_GT(engine->stats().preemptions, 0u);
}

/// The demonstration model's long prompts: a manual page's worth of words, then a question of one's own.
std::string prompt_with_common_beginning(const std::string& question) {
  std::string prompt;
  for (int i = 0; i < 6; ++i)
    prompt +=
        "The command grep searches its input for lines that match a pattern, and prints them. ";
  return prompt + question;
}

Request greedy_request(const std::string& prompt, int max_tokens) {
  Request request;
  request.prompt = prompt;
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

std::vector<Answer> answer_in_turn(Engine& engine, const std::vector<Request>& requests) {
  std::vector<Answer> answers;
  for (const Request& request : requests) answers.push_back(answer(engine, {request})[0]);
  return answers;
}

/// In its scope, a sequence's bits depend on nothing else that runs.
struct Deterministic {
  Deterministic() { ::setenv("SWITCHYARD_DETERMINISTIC", "1", 1); }
  ~Deterministic() { ::unsetenv("SWITCHYARD_DETERMINISTIC"); }
};

TEST(Api, SharedPrefixGivesTheSameTextAndIsReported) {
  const Deterministic scope;
  std::vector<Request> requests;
  for (const char* question : {"It can", "Its options are", "To count lines", "It can"})
    requests.push_back(greedy_request(prompt_with_common_beginning(question), 24));
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    EngineOptions options = exact_options();
    options.precision = precision;
    const auto with = open(options);
    options.prefix_cache = false;
    const auto without = open(options);
    ASSERT_TRUE(with != nullptr && without != nullptr);
    const auto hits = answer_in_turn(*with, requests);
    const auto misses = answer_in_turn(*without, requests);
    uint64_t cached = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(hits[i].tokens, misses[i].tokens) << "request " << i;
      EXPECT_EQ(hits[i].text, misses[i].text);
      EXPECT_EQ(misses[i].last.timings.cached_tokens, 0);
      const int found = hits[i].last.timings.cached_tokens;
      cached += static_cast<uint64_t>(found);
      EXPECT_EQ(found % 16, 0);
      if (i == 0) {
        EXPECT_EQ(found, 0);
      } else {
        EXPECT_GT(found, hits[i].last.timings.prompt_tokens / 2);
      }
    }
    EXPECT_EQ(with->stats().cached_tokens, cached);
    EXPECT_EQ(without->stats().cached_tokens, 0u);
  }
}

TEST(Api, NextTurnOfAChatFindsTheLastOne) {
  const auto engine = open(exact_options());
  ASSERT_NE(engine, nullptr);
  Request chat;
  chat.sampling.temperature = 0;
  chat.sampling.max_tokens = 60;
  int known = 0;
  for (const char* words : {"What does the command grep do?", "And sed?", "And awk?"}) {
    chat.messages.push_back({"user", words});
    const Answer turn = answer(*engine, {chat})[0];
    ASSERT_FALSE(turn.last.error.has_value());
    // What the template puts around an answer may be cut into other tokens than the answer was; the prompt is not.
    EXPECT_GE(turn.last.timings.cached_tokens, known / 16 * 16);
    known = turn.last.timings.prompt_tokens;
    chat.messages.push_back({"assistant", turn.text});
  }
}

TEST(Api, NoPrefixCacheUnderACapacity) {
  EngineOptions options = exact_options();
  options.capacity_factor = 1;
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  const Request request = greedy_request(prompt_with_common_beginning("It can"), 4);
  for (const Answer& one : answer_in_turn(*engine, {request, request}))
    EXPECT_EQ(one.last.timings.cached_tokens, 0);
}

/// Eight requests arrive while the loop is busy: two may wait, and the others have cost nothing.
TEST(Api, FullQueueRefusesBeforeAnyWork) {
  EngineOptions options = exact_options();
  options.max_queued_requests = 2;
  options.max_queued_tokens = 100;
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  std::vector<Code> refusals;
  std::vector<RequestId> accepted;
  const auto burst = [&](const Event& event) {
    if (event.finish == FinishReason::none) return;
    for (int i = 0; i < 8; ++i) {  // from the loop's own thread, so that nothing runs meanwhile
      Request request = greedy_request("grep", 2);
      // Would be refused as a bad request, had anybody looked at it.
      if (i >= 2) request.prompt = "\xff";
      const auto id = engine->submit(std::move(request), [](const Event&) {});
      if (id.ok()) {
        accepted.push_back(*id);
      } else {
        refusals.push_back(id.error().code);
      }
    }
  };
  ASSERT_TRUE(engine->submit(greedy_request("sed", 1), burst).ok());
  engine->wait_idle();
  EXPECT_EQ(accepted.size(), 2u);
  EXPECT_EQ(refusals, std::vector<Code>(6, Code::overloaded));
  EXPECT_NE(
      engine->metrics_text().find("switchyard_requests_rejected_total{reason=\"queue_full\"} 6"),
      std::string::npos);
  engine->drain();
  EXPECT_EQ(engine->submit(greedy_request("sed", 1), [](const Event&) {}).error().code,
            Code::unavailable);
  EXPECT_TRUE(engine->wait_idle_for(10));
}

TEST(Api, SummaryOfTheDemoModel) {
  const auto engine = open(exact_options());
  ASSERT_NE(engine, nullptr);
  const ModelSummary& summary = engine->summary();
  EXPECT_EQ(summary.architecture, "Qwen3MoeForCausalLM");
  EXPECT_EQ(summary.moe_layers, 6);
  EXPECT_EQ(summary.experts, 32);
  EXPECT_EQ(summary.top_k, 4);
  EXPECT_EQ(summary.vocab, 8192);
  EXPECT_EQ(summary.max_model_len, 256);
  EXPECT_EQ(summary.threads, 2);
  EXPECT_NE(summary.chat_template, "");
  EXPECT_GT(summary.load_s, 0);
  EXPECT_FLOAT_EQ(engine->default_sampling().temperature, 0.6f);
  const std::string metrics = engine->metrics_text();
  EXPECT_NE(metrics.find("top_k=\"4\""), std::string::npos);
}

TEST(Api, MemoryPlanForeseesWhatTheModelTakes) {
  const auto config = model::Model::read_config(kModel);
  ASSERT_TRUE(config.ok());
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    EngineOptions options = exact_options();
    options.precision = precision;
    const auto engine = open(options);
    ASSERT_NE(engine, nullptr);
    const engine::MemoryNeeds needs = engine::memory_needs(*config, options, 1);
    const auto taken = static_cast<double>(engine->summary().weight_bytes);
    EXPECT_NEAR(static_cast<double>(needs.weight_bytes), taken, 0.15 * taken);
  }
}

TEST(Api, ProfileSumsPhasesWithinTheSteps) {
  EngineOptions options = exact_options();
  options.profile = true;
  options.trace_events = 1000;
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  answer(*engine, requests(goldens(), As::tokens));
  const EngineStats stats = engine->stats();
  double sum = 0;
  for (const auto& [name, seconds] : stats.phase_s) {
    EXPECT_GE(seconds, 0) << name;
    sum += seconds;
  }
  EXPECT_GT(sum, 0.5 * stats.step_s) << "most of a step is in some phase";
  EXPECT_LE(sum, stats.step_s);
  // Each phase of a layer lies in one layer; what is left is outside of all.
  ASSERT_EQ(stats.layer_phase_s.size(), 6u);
  for (size_t i = 0; i < stats.phase_s.size(); ++i) {
    double in_layers = 0;
    for (const std::vector<double>& layer : stats.layer_phase_s) in_layers += layer[i];
    const auto& [name, seconds] = stats.phase_s[i];
    if (name == "attention" || name == "router" || name == "gemm_up" || name == "combine") {
      EXPECT_NEAR(in_layers, seconds, 1e-9) << name;
      EXPECT_GT(stats.layer_phase_s[5][i], 0) << name;
    }
    if (name == "lm_head" || name == "sampling") {
      EXPECT_EQ(in_layers, 0) << name;
    }
  }
  EXPECT_TRUE(parse_json(engine->chrome_trace(), "trace").ok());
  engine->reset_stats();
  for (const auto& [name, seconds] : engine->stats().phase_s) EXPECT_EQ(seconds, 0) << name;
  for (const auto& layer : engine->stats().layer_phase_s)
    for (const double seconds : layer) EXPECT_EQ(seconds, 0);
  engine->set_profile(false);
  answer(*engine, requests(goldens(), As::tokens));
  EXPECT_TRUE(engine->stats().phase_s.empty() && engine->stats().layer_phase_s.empty());
}

/// Nanoseconds of an event's begin and end; the file has microseconds.
std::pair<int64_t, int64_t> nanoseconds(const Json& event) {
  const double begin = event.find("ts")->as_double(), duration = event.find("dur")->as_double();
  return {std::llround(begin * 1e3), std::llround((begin + duration) * 1e3)};
}

TEST(Api, ChromeTraceIsInOrderAndNests) {
  EngineOptions options = exact_options();
  options.trace_events = 100000;
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  answer(*engine, requests(goldens(), As::tokens));
  const Json trace = *parse_json(engine->chrome_trace(), "trace");
  std::vector<std::pair<int64_t, std::string>> open_events;  // end, category
  int64_t last_begin = 0;
  std::map<std::string, uint64_t> counts;
  for (const Json& event : trace.find("traceEvents")->as_array()) {
    for (const char* key : {"ph", "ts", "pid", "tid", "name"})
      ASSERT_NE(event.find(key), nullptr) << key;
    if (event.find("ph")->as_string() != "X") continue;
    ASSERT_NE(event.find("dur"), nullptr);
    const auto [begin, end] = nanoseconds(event);
    EXPECT_GE(begin, last_begin);
    EXPECT_GE(end, begin);
    last_begin = begin;
    while (!open_events.empty() && open_events.back().first <= begin) open_events.pop_back();
    const std::string category = event.find("cat")->as_string();
    if (!open_events.empty()) {
      EXPECT_LE(end, open_events.back().first) << event.find("name")->as_string();
    }
    EXPECT_EQ(open_events.empty(), category == "step");
    if (category == "layer") {
      EXPECT_EQ(open_events.back().second, "step");
    }
    if (event.find("args") != nullptr && category == "zone") {
      EXPECT_EQ(open_events.back().second, "layer");
    }
    open_events.emplace_back(end, category);
    ++counts[category];
  }
  const uint64_t steps = engine->stats().steps;
  EXPECT_EQ(counts["step"], steps);
  EXPECT_EQ(counts["layer"], 6 * steps);
  EXPECT_GT(counts["zone"], 6 * 7 * steps);
  EXPECT_EQ(trace.find("otherData")->find("dropped_events")->as_int(), 0);
}

TEST(Api, ChatAndRefusals) {
  const auto engine = open(exact_options());
  ASSERT_NE(engine, nullptr);
  Request chat;
  chat.messages = {{"user", "What does the command grep do?"}};
  chat.sampling.temperature = 0;
  chat.sampling.max_tokens = 60;
  std::vector<Request> one;
  one.push_back(chat);
  const Answer answered = answer(*engine, std::move(one))[0];
  EXPECT_NE(answered.text.find("print lines that match patterns"), std::string::npos);
  EXPECT_EQ(answered.text.find("<|im_end|>"), std::string::npos);
  const auto empty = engine->submit(Request{}, [](const Event&) {});
  ASSERT_FALSE(empty.ok());
  EXPECT_EQ(empty.error().code, Code::bad_request);
}

TEST(Api, OpenSaysWhatIsWrong) {
  EngineOptions options = exact_options();
  options.model = "/nonexistent";
  EXPECT_EQ(Engine::open(options).error().code, Code::bad_file);
  options = exact_options();
  options.max_model_len = 5000;
  EXPECT_EQ(Engine::open(options).error().code, Code::bad_request);
  options = exact_options();
  options.kv_cache_bytes = int64_t{1} << 50;
  EXPECT_EQ(Engine::open(options).error().code, Code::out_of_memory);
  options = exact_options();
  options.capacity_factor = -1;
  EXPECT_EQ(Engine::open(options).error().code, Code::bad_request);
  options = exact_options();
  options.ageing_s = 0;
  EXPECT_NE(Engine::open(options).error().message.find("ageing_s is 0"), std::string::npos);
  options = exact_options();
  options.capacity_factor = 1;
  options.overflow = "drop_most";
  EXPECT_NE(Engine::open(options).error().message.find("drop_last drop_lowest"), std::string::npos);
}

/// The sum of a counter's series, whatever their labels.
double sum_of(const std::string& metrics, const std::string& name) {
  double sum = 0;
  std::istringstream lines(metrics);
  for (std::string line; std::getline(lines, line);)
    if (line.rfind(name + "{", 0) == 0) sum += std::stod(line.substr(line.rfind(' ')));
  return sum;
}

TEST(Api, CapacityDropsAndIsCounted) {
  EngineOptions options = exact_options();
  options.capacity_factor = 1;
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  const std::vector<Answer> answers = answer(*engine, requests({goldens()[0]}, As::tokens));
  EXPECT_EQ(answers[0].last.finish, FinishReason::length);
  const EngineStats stats = engine->stats();
  ASSERT_EQ(stats.dropped.size(), 6u);
  uint64_t dropped = 0, asked = 0, worked = 0;
  for (size_t layer = 0; layer < 6; ++layer) {
    dropped += stats.dropped[layer];
    for (const uint64_t picks : stats.load[layer]) asked += picks;
    for (const uint32_t picks : answers[0].last.moe.picks[layer]) worked += picks;
  }
  EXPECT_GT(dropped, 0u);
  EXPECT_EQ(worked + dropped, asked);
  const std::string metrics = engine->metrics_text();
  EXPECT_EQ(sum_of(metrics, "switchyard_dropped_assignments_total"), static_cast<double>(dropped));
  EXPECT_EQ(sum_of(metrics, "switchyard_routed_assignments_total"), static_cast<double>(asked));
  EXPECT_EQ(sum_of(metrics, "switchyard_unrouted_tokens_total"),
            static_cast<double>(stats.unrouted_tokens));
  EXPECT_NE(metrics.find("switchyard_capacity_factor_ratio 1\n"), std::string::npos);
  EXPECT_NE(metrics.find("switchyard_nonfinite_events_total{where=\"router\"} 0\n"),
            std::string::npos);
}

TEST(Api, ACapacityThatNothingExceedsChangesNothing) {
  EngineOptions options = exact_options();
  options.capacity_factor = 8;  // E / K
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  expect_goldens(goldens(), answer(*engine, requests(goldens(), As::tokens)));
  EXPECT_EQ(engine->stats().dropped, std::vector<uint64_t>(6, 0));
}

TEST(Api, DestructionEndsWhatRuns) {
  FinishReason finish = FinishReason::none;
  {
    const auto engine = open(exact_options());
    ASSERT_NE(engine, nullptr);
    Request request;
    request.prompt_tokens = {1012};
    request.sampling.max_tokens = 200;
    request.sampling.ignore_eos = true;
    ASSERT_TRUE(
        engine->submit(std::move(request), [&](const Event& event) { finish = event.finish; })
            .ok());
  }
  EXPECT_NE(finish, FinishReason::none);
}

}  // namespace
}  // namespace switchyard
