// SPDX-License-Identifier: Apache-2.0
// switchyard run on the demonstration model: the reference's greedy tokens, and what goes to which
// stream.
#include <csignal>

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "cli/program.h"

namespace switchyard {
namespace {

constexpr const char* kModel = "models/demo";

std::vector<int64_t> ids(const Json& json, const char* key) {
  std::vector<int64_t> ids;
  for (const Json& id : json.find(key)->as_array()) ids.push_back(id.as_int());
  return ids;
}

Json parse(const std::string& text) {
  auto json = parse_json(text, "output");
  EXPECT_TRUE(json.ok()) << text;
  return json.ok() ? *json : Json();
}

Json goldens() {
  auto json = read_json_file(SWITCHYARD_SOURCE_DIR "/models/demo/golden/logits.json");
  EXPECT_TRUE(json.ok());
  return *json->find("prompts");
}

/// Arguments of a run whose tokens are certain.
std::vector<std::string> exact(std::vector<std::string> more) {
  std::vector<std::string> arguments{"run", kModel, "--temperature", "0", "--dtype", "f32"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

void expect_golden(const Json& output, const Json& golden) {
  EXPECT_EQ(ids(output, "prompt_ids"), ids(golden, "ids"));
  EXPECT_EQ(ids(output, "output_ids"), ids(golden, "greedy"));
  EXPECT_EQ(output.find("text")->as_string(), golden.find("greedy_text")->as_string());
  EXPECT_EQ(output.find("finish_reason")->as_string(), "length");
}

TEST(Run, GreedyTokensOfEveryGoldenPromptTogether) {
  const Json golden = goldens();
  std::vector<std::string> arguments = exact({"--json", "-n", "32", "--ignore-eos"});
  for (const Json& one : golden.as_array()) {
    arguments.push_back("-p");
    arguments.push_back(one.find("prompt")->as_string());
  }
  const Outcome outcome = run_program(arguments);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json result = parse(outcome.out);
  const auto& outputs = result.find("outputs")->as_array();
  ASSERT_EQ(outputs.size(), golden.as_array().size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    SCOPED_TRACE(golden.as_array()[i].find("prompt")->as_string());
    expect_golden(outputs[i], golden.as_array()[i]);
  }
}

TEST(Run, GreedyTokensOfEachGoldenPromptAlone) {
  const Json golden = goldens();
  for (const Json& one : golden.as_array()) {
    const Outcome outcome = run_program(
        exact({"--json", "-n", "32", "--ignore-eos", "-q", "-p", one.find("prompt")->as_string()}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    expect_golden(parse(outcome.out), one);
  }
}

TEST(Run, JsonSaysWhatHappened) {
  const Outcome outcome = run_program(exact({"--json", "-n", "5", "-p", "The kernel provides"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json json = parse(outcome.out);
  EXPECT_EQ(json.find("timings")->find("prompt_tokens")->as_int(), 3);
  EXPECT_EQ(json.find("timings")->find("output_tokens")->as_int(), 5);
  EXPECT_GT(json.find("timings")->find("prefill_s")->as_double(), 0);
  const auto& layers = json.find("moe")->find("layers")->as_array();
  ASSERT_EQ(layers.size(), 6u);
  for (const Json& layer : layers) {
    int64_t picks = 0;
    for (const Json& count : layer.find("picks")->as_array()) picks += count.as_int();
    EXPECT_EQ(layer.find("picks")->as_array().size(), 32u);
    EXPECT_EQ(picks, (3 + 5 - 1) * 4);
    EXPECT_GE(layer.find("imbalance")->as_double(), 1.0);
  }
}

TEST(Run, StandardOutputCarriesTheTextAlone) {
  const std::string text = goldens().as_array()[0].find("greedy_text")->as_string();
  const std::vector<std::string> arguments =
      exact({"-n", "32", "--ignore-eos", "-p", "The kernel provides"});
  const Outcome outcome = run_program(arguments);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, text + "\n");
  EXPECT_NE(outcome.err.find("Qwen3MoeForCausalLM"), std::string::npos);
  EXPECT_EQ(outcome.err.find('\033'), std::string::npos) << "colours in a pipe";
  RunOptions from_stdin;
  from_stdin.input = "The kernel provides";
  const Outcome piped = run_program(exact({"-n", "32", "--ignore-eos"}), from_stdin);
  EXPECT_EQ(piped.out, text + "\n");
}

TEST(Run, EmptyInputIsUsage) {
  const Outcome outcome = run_program({"run", kModel, "-q"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
}

TEST(Run, PromptThatDoesNotFitIsUsage) {
  const Outcome outcome = run_program(
      {"run", kModel, "-q", "--max-model-len", "4", "-p", "one two three four five six"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("may have 4"), std::string::npos) << outcome.err;
}

TEST(Run, StopStringEndsTheText) {
  const Outcome outcome =
      run_program(exact({"-q", "-n", "32", "--stop", "struct", "-p", "The kernel provides"}));
  EXPECT_EQ(outcome.code, 0);
  const std::string text = goldens().as_array()[0].find("greedy_text")->as_string();
  EXPECT_EQ(outcome.out, text.substr(0, text.find("struct")) + "\n");
}

TEST(Run, SameSeedSameText) {
  const auto sampled = [](const char* seed) {
    return run_program({"run", kModel, "-q", "-n", "24", "--temperature", "1", "--seed", seed, "-p",
                        "The kernel provides"})
        .out;
  };
  const std::string first = sampled("7");
  EXPECT_EQ(sampled("7"), first);
  EXPECT_NE(sampled("8"), first);
}

TEST(Run, ChatUsesTheTemplate) {
  const Outcome outcome = run_program(
      exact({"-q", "--json", "-n", "40", "--chat", "-p", "What does the command grep do?"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json json = parse(outcome.out);
  EXPECT_EQ(ids(json, "prompt_ids").front(), 1);  // <|im_start|>
  EXPECT_NE(json.find("text")->as_string().find("print lines that match patterns"),
            std::string::npos);
}

TEST(Run, ReportSaysWhichExpertsWorkedAndWhereTheTimeWent) {
  const Outcome outcome =
      run_program(exact({"--moe-report", "-n", "8", "-p", "The kernel provides"}));
  EXPECT_EQ(outcome.code, 0);
  for (const char* part :
       {"imbalance", "busiest experts", "router", "gemm up", "gemm down", "attention", "other"})
    EXPECT_NE(outcome.err.find(part), std::string::npos) << part;
  const Outcome without = run_program(exact({"-n", "2", "-p", "The kernel provides"}));
  EXPECT_EQ(without.err.find("busiest experts"), std::string::npos);
}

TEST(Run, PhasesOfEveryLayer) {
  const Outcome outcome =
      run_program(exact({"--phases-by-layer", "-n", "4", "-p", "The kernel provides"}));
  EXPECT_EQ(outcome.code, 0);
  for (const char* part :
       {"layer", "gemm_down", "router", "attention", "sum", "milliseconds a step, mean of 4 steps"})
    EXPECT_NE(outcome.err.find(part), std::string::npos) << part;
  EXPECT_EQ(outcome.err.find("lm_head  "), std::string::npos) << "it is in no layer";
}

TEST(BenchLatency, WritesAChromeTrace) {
  TemporaryFolder folder;
  const Outcome outcome = run_program({"bench", "latency", kModel, "-q", "-p", "8", "-n", "2", "-r",
                                       "1", "--trace", folder.file("trace.json")});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = read_json_file(folder.file("trace.json"));
  ASSERT_TRUE(json.ok()) << json.error().message;
  EXPECT_GT(json->find("traceEvents")->as_array().size(), 100u);
}

TEST(Run, TraceIsAChromeTrace) {
  TemporaryFolder folder;
  const Outcome outcome = run_program(
      exact({"-q", "-n", "4", "--trace", folder.file("trace.json"), "-p", "The kernel provides"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = read_json_file(folder.file("trace.json"));
  ASSERT_TRUE(json.ok()) << json.error().message;
  EXPECT_GT(json->find("traceEvents")->as_array().size(), 10u);
}

TEST(Run, InterruptPrintsWhatThereIs) {
  RunOptions options;
  options.on_first_output = [](int process) { ::kill(process, SIGINT); };
  const Outcome outcome = run_program(
      exact({"-q", "-n", "2000", "--ignore-eos", "-p", "The kernel provides"}), options);
  EXPECT_EQ(outcome.code, 130);
  EXPECT_FALSE(outcome.out.empty());
  EXPECT_EQ(outcome.out.back(), '\n');
}

}  // namespace
}  // namespace switchyard
