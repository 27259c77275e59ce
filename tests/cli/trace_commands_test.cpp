// SPDX-License-Identifier: Apache-2.0
// switchyard record and stats on the demonstration model: a trace holds what the engine did, stats counts it, and bad
// input is refused.
#include <filesystem>
#include <map>

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "cli/program.h"

namespace switchyard {
namespace {

constexpr const char* kModel = "models/demo";

void expect_refused(const Outcome& outcome, int code, const std::string& part) {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
}

Json parse(const std::string& text) {
  auto json = parse_json(text, "output");
  EXPECT_TRUE(json.ok()) << text;
  return json.ok() ? *json : Json();
}

Json stats_of(const std::string& trace) {
  const Outcome outcome = run_program({"stats", trace, "--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return parse(outcome.out);
}

Outcome record(const std::vector<std::string>& more) {
  std::vector<std::string> arguments{"record", kModel, "--temperature", "0", "-q"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_program(arguments);
}

using Load = std::vector<std::vector<int64_t>>;  // [layer][expert]

Load load_of(const Json& layers, const char* key) {
  Load load;
  for (const Json& layer : layers.as_array()) {
    auto& counts = load.emplace_back();
    for (const Json& count : layer.find(key)->as_array()) counts.push_back(count.as_int());
  }
  return load;
}

TEST(Record, HoldsWhatTheEngineReports) {
  const TemporaryFolder folder;
  const std::vector<std::string> prompts{
      "-p", "The kernel provides", "-p", "Der alte Mann", "-n", "8", "--ignore-eos", "--dtype",
      "f32"};
  std::vector<std::string> run{"run", kModel, "--temperature", "0", "-q", "--json"};
  run.insert(run.end(), prompts.begin(), prompts.end());
  const Json outputs = parse(run_program(run).out);
  Load expected;
  int64_t tokens = 0;
  for (const Json& output : outputs.find("outputs")->as_array()) {
    tokens += output.find("timings")->find("prompt_tokens")->as_int() + 8 - 1;
    const Load load = load_of(*output.find("moe")->find("layers"), "picks");
    if (expected.empty()) expected.assign(load.size(), std::vector<int64_t>(load[0].size()));
    for (size_t l = 0; l < load.size(); ++l)
      for (size_t e = 0; e < load[l].size(); ++e) expected[l][e] += load[l][e];
  }
  for (const char* detail : {"--picks", "--verbose"}) {
    std::vector<std::string> more = prompts;
    more.insert(more.end(), {"-o", folder.file("a.swt"), detail});
    const Outcome recorded = record(more);
    ASSERT_EQ(recorded.code, 0) << recorded.err;
    EXPECT_EQ(recorded.out, "");
    const Json stats = stats_of(folder.file("a.swt"));
    EXPECT_EQ(stats.find("tokens")->as_int(), tokens);
    EXPECT_EQ(stats.find("model")->as_string(), "demo");
    EXPECT_EQ(stats.find("picks")->as_bool(), std::string(detail) == "--picks");
    EXPECT_EQ(load_of(*stats.find("layers"), "load"), expected);
    // The second request may come in a step later than the first.
    int64_t in_stages = 0;
    for (const auto& [name, stage] : stats.find("stages")->as_object())
      in_stages += stage.find("tokens")->as_int();
    EXPECT_EQ(in_stages, tokens);
    EXPECT_GE(stats.find("stages")->find("decode")->find("tokens")->as_int(), 6);
  }
}

TEST(Record, TopicsOfJsonLinesAndFileNames) {
  const TemporaryFolder folder;
  folder.write("mixed.jsonl",
               "{\"prompt\": \"Der Hund und die Katze\", \"topic\": \"german\"}\n\n"
               "{\"prompt\": \"static inline int\"}\n");
  folder.write("english.txt", "The old man and the sea\r\nA day in the life\n");
  const Outcome recorded =
      record({"--input", folder.file("mixed.jsonl"), "--input", folder.file("english.txt"),
              "--prefill-only", "--picks", "-o", folder.file("a.swt")});
  ASSERT_EQ(recorded.code, 0) << recorded.err;
  const Json stats = stats_of(folder.file("a.swt"));
  std::map<std::string, int64_t> tokens;
  int64_t sum = 0;
  for (const Json& topic : stats.find("topics")->as_array()) {
    tokens[topic.find("topic")->as_string()] = topic.find("tokens")->as_int();
    sum += topic.find("tokens")->as_int();
  }
  ASSERT_EQ(tokens.size(), 3u);
  EXPECT_EQ(tokens.count("german") + tokens.count("mixed") + tokens.count("english"), 3u);
  EXPECT_EQ(sum, stats.find("tokens")->as_int()) << "prompts alone, and all have a topic";
  EXPECT_EQ(stats.find("stages")->find("decode")->find("steps")->as_int(), 0);
  EXPECT_FALSE(stats.find("batches")->as_array().empty());
}

TEST(Record, CutsALongTextIntoChunks) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "The quick brown fox jumps over the lazy dog. ";
  folder.write("fox.txt", text);
  const std::vector<std::string> base{"--text", folder.file("fox.txt"), "--prefill-only", "-o",
                                      folder.file("a.swt")};
  std::vector<std::string> small = base;
  small.insert(small.end(), {"--chunk-tokens", "40", "--max-sequences", "1"});
  ASSERT_EQ(record(small).code, 0);
  const Json chunked = stats_of(folder.file("a.swt"));
  const int64_t tokens = chunked.find("tokens")->as_int();
  EXPECT_GT(tokens, 1500);
  EXPECT_EQ(chunked.find("steps")->as_int(), (tokens + 39) / 40) << "one chunk is one step";
  ASSERT_EQ(record(base).code, 0);
  EXPECT_EQ(stats_of(folder.file("a.swt")).find("tokens")->as_int(), tokens);
}

TEST(Record, RefusesWhatItCannotDo) {
  const TemporaryFolder folder;
  expect_refused(record({"-o", folder.file("a.swt")}), 2, "nothing to record");
  expect_refused(record({"-p", "x"}), 2, "--output is required");
  folder.write("bad.jsonl", "{\"prompt\": \"a\"}\n{\"text\": 3}\n");
  expect_refused(record({"--input", folder.file("bad.jsonl"), "-o", folder.file("a.swt")}), 2,
                 "bad.jsonl:2: expected an object with a string 'prompt', found {\"text\":3}");
  folder.write("broken.jsonl", "{\"prompt\": \n");
  expect_refused(record({"--input", folder.file("broken.jsonl"), "-o", folder.file("a.swt")}), 2,
                 "broken.jsonl:1: not valid JSON");
  folder.write("empty.txt", "\n  \n");
  expect_refused(record({"--input", folder.file("empty.txt"), "-o", folder.file("a.swt")}), 2,
                 "holds no prompt");
  expect_refused(record({"--input", folder.file("none.txt"), "-o", folder.file("a.swt")}), 3,
                 "none.txt: cannot open");
  expect_refused(record({"-p", "x", "-n", "1", "-o", folder.file("no/a.swt")}), 2, "cannot create");
  folder.write("long.txt", std::string(20000, 'x') + "\nshort\n");
  expect_refused(record({"--input", folder.file("long.txt"), "-o", folder.file("a.swt")}), 2,
                 "long.txt:1: the prompt has");
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    EXPECT_EQ(entry.path().string().find(".swt"), std::string::npos) << entry.path();
}

TEST(Stats, TableAndFigure) {
  const TemporaryFolder folder;
  folder.write("in.jsonl",
               "{\"prompt\": \"Der Hund\", \"topic\": \"de\"}\n"
               "{\"prompt\": \"int main() { <&\", \"topic\": \"a<b&c\"}\n");
  ASSERT_EQ(
      record({"--input", folder.file("in.jsonl"), "-n", "6", "--picks", "-o", folder.file("a.swt")})
          .code,
      0);
  const Outcome outcome =
      run_program({"stats", folder.file("a.swt"), "--plot", folder.file("a.svg")});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part : {"6 MoE layers, 32 experts, 4 picks a token", "floor", "strongest pair",
                           "across requests", "(all, evenly mixed)"})
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part;
  EXPECT_EQ(outcome.out.find('\033'), std::string::npos) << "colours in a pipe";
  const auto svg = read_text_file(folder.file("a.svg"), 1 << 24);
  ASSERT_TRUE(svg.ok());
  EXPECT_EQ(svg->rfind("<svg xmlns=", 0), 0u);
  EXPECT_NE(svg->find("</svg>"), std::string::npos);
  EXPECT_NE(svg->find("prefers-color-scheme:dark"), std::string::npos);
  EXPECT_NE(svg->find(">a&lt;b&amp;c<"), std::string::npos) << "names are escaped";
  for (const char* title :
       {"Load of every expert", "Imbalance of each layer and step", "Imbalance by batch size",
        "Load by topic", "Load over time", "Co-activation"})
    EXPECT_NE(svg->find(title), std::string::npos) << title;
}

TEST(Plan, PredictsEveryPolicyFromATrace) {
  const TemporaryFolder folder;
  ASSERT_EQ(record({"-p", "The kernel provides", "-p", "Der alte Mann und", "-n", "30",
                    "--ignore-eos", "-o", folder.file("a.swt")})
                .code,
            0);
  const std::vector<std::string> plan{"plan", folder.file("a.swt"), "--ranks",
                                      "8",    "--replicas",         "8"};
  const Outcome text = run_program(plan);
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("predicted from recorded picks; nothing was placed"), std::string::npos);
  std::vector<std::string> arguments = plan;
  arguments.emplace_back("--json");
  const Json json = parse(run_program(arguments).out);
  const auto& policies = json.find("policies")->as_array();
  ASSERT_EQ(policies.size(), 4u);
  EXPECT_EQ(policies[0].find("policy")->as_string(), "round_robin");
  EXPECT_EQ(policies[0].find("gain")->as_double(), 1);
  EXPECT_TRUE(json.find("predicted")->as_bool());
  const Json* plain = policies[0].find("planned_rank_imbalance");
  for (size_t p = 0; p < policies.size(); ++p) {
    SCOPED_TRACE(policies[p].find("policy")->as_string());
    const auto& planned = policies[p].find("planned_rank_imbalance")->as_array();
    ASSERT_EQ(planned.size(), 6u);
    for (size_t l = 0; l < planned.size(); ++l)
      EXPECT_LE(planned[l].as_double(), plain->as_array()[l].as_double());
    int experts = 0;
    for (const Json& rank : policies[p].find("placement")->as_array()[0].as_array())
      for (const Json& expert : rank.as_array()) experts += expert.as_int() >= 0 ? 1 : 0;
    EXPECT_GE(experts, 32);
  }
  EXPECT_NEAR(policies[3].find("memory_ratio")->as_double(), 0.25, 1e-9);
}

TEST(Plan, RefusesWhatCannotBe) {
  const TemporaryFolder folder;
  ASSERT_EQ(record({"-p", "x", "-n", "3", "-o", folder.file("a.swt")}).code, 0);
  expect_refused(run_program({"plan", folder.file("a.swt"), "--ranks", "4", "--nodes", "3"}), 2,
                 "the number of nodes is 3, expected a divisor of the number of ranks");
  expect_refused(run_program({"plan", folder.file("a.swt"), "--ranks", "0"}), 2, "ranks");
  expect_refused(run_program({"plan", "README.md"}), 3, "offset 0: expected the magic");
  const Outcome odd = run_program({"plan", folder.file("a.swt"), "--ranks", "6"});
  EXPECT_EQ(odd.code, 0);
  EXPECT_NE(odd.out.find("32 experts and 0 replicas do not divide into 6 ranks"),
            std::string::npos);
}

TEST(Stats, RefusesWhatIsNoTrace) {
  const TemporaryFolder folder;
  expect_refused(run_program({"stats", "models/demo/config.json"}), 3,
                 "config.json: offset 0: expected the magic of a routing trace");
  expect_refused(run_program({"stats", folder.file("none")}), 3, "cannot open");
  ASSERT_EQ(record({"-p", "x", "-n", "2", "-o", folder.file("a.swt")}).code, 0);
  expect_refused(run_program({"stats", folder.file("a.swt"), "--layer", "6"}), 2,
                 "--layer 6: the trace has MoE layers 0 to 5");
  expect_refused(run_program({"stats", folder.file("a.swt"), "--plot", folder.file("no/a.svg")}), 2,
                 "cannot create");
  const auto whole = read_text_file(folder.file("a.swt"), 1 << 24);
  ASSERT_TRUE(whole.ok());
  folder.write("cut.swt", whole->substr(0, whole->size() - 40));
  expect_refused(run_program({"stats", folder.file("cut.swt")}), 3, "the file is truncated");
}

}  // namespace
}  // namespace switchyard
