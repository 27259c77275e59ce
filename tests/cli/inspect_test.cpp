// SPDX-License-Identifier: Apache-2.0
// inspect, check, bench and doctor on the demonstration model.
#include <filesystem>
#include <sstream>

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "cli/program.h"

namespace switchyard {
namespace {

constexpr const char* kModel = "models/demo";

Json parse(const std::string& text) {
  auto json = parse_json(text, "output");
  EXPECT_TRUE(json.ok()) << text;
  return json.ok() ? *json : Json();
}

TEST(Inspect, JsonOfTheDemoModel) {
  const Outcome outcome = run_program({"inspect", kModel, "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const Json json = parse(outcome.out);
  EXPECT_EQ(json.find("architecture")->as_string(), "Qwen3MoeForCausalLM");
  EXPECT_EQ(json.find("layers")->as_int(), 6);
  EXPECT_EQ(json.find("moe_layers")->as_int(), 6);
  EXPECT_EQ(json.find("experts")->as_int(), 32);
  EXPECT_EQ(json.find("top_k")->as_int(), 4);
  EXPECT_EQ(json.find("dtype")->as_string(), "bf16");
  EXPECT_EQ(json.find("files")->as_array().size(), 3u);
  // 6 layers x 32 experts x 3 matrices of 64 x 256; everything is bf16.
  const int64_t experts = int64_t{6} * 32 * 3 * 64 * 256;
  EXPECT_EQ(json.find("parameters")->find("experts")->as_int(), experts);
  EXPECT_EQ(json.find("bytes")->find("experts")->as_int(), 2 * experts);
  const int64_t total = json.find("parameters")->find("total")->as_int();
  EXPECT_EQ(json.find("bytes")->find("total")->as_int(), 2 * total);
  EXPECT_NEAR(static_cast<double>(total), 12.77e6, 0.01e6);
  int64_t count = 0;
  for (const Json& group : json.find("tensors")->as_array()) {
    EXPECT_NE(group.find("part")->as_string(), "unknown");
    count += group.find("count")->as_int();
  }
  const Json all = parse(run_program({"inspect", kModel, "--json", "--tensors"}).out);
  EXPECT_EQ(static_cast<int64_t>(all.find("tensors")->as_array().size()), count);
}

TEST(Inspect, TextShowsPatternsInsteadOfEveryExpert) {
  const Outcome outcome = run_program({"inspect", kModel});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_NE(outcome.out.find("model.layers.{L}.mlp.experts.{E}.up_proj.weight"), std::string::npos);
  EXPECT_EQ(outcome.out.find("experts.17"), std::string::npos);
  EXPECT_NE(run_program({"inspect", kModel, "--tensors"}).out.find("experts.17"),
            std::string::npos);
}

TEST(Inspect, KernelsNameTheChosenOne) {
  const Outcome outcome = run_program({"inspect", "kernels", "--op", "grouped_gemm", "--problem",
                                       "m=64 n=1408 k=2048 groups=64 weight=bf16 fusion=swiglu"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("grouped_gemm.ref"), std::string::npos);
  const size_t chosen = outcome.out.find("chosen");
  ASSERT_NE(chosen, std::string::npos);
  EXPECT_EQ(outcome.out.find("chosen", chosen + 1), std::string::npos);
}

TEST(Inspect, ReadmeShowsTheTablesOfThisBuild) {
  const Outcome outcome = run_program({"inspect", "tables"});
  ASSERT_EQ(outcome.code, 0);
  for (const char* word : {"qwen3_moe", "mixtral", "token_choice", "safetensors", "grouped_gemm"})
    EXPECT_NE(outcome.out.find(word), std::string::npos) << word;
  const auto readme = read_text_file(SWITCHYARD_SOURCE_DIR "/README.md", 1 << 20);
  ASSERT_TRUE(readme.ok()) << readme.error().message;
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);)
    EXPECT_NE(readme->find(line), std::string::npos)
        << "README.md lacks this line of `switchyard inspect tables`: " << line;
}

TEST(Check, DemoModelIsSound) {
  const Outcome outcome = run_program({"check", kModel});
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("sound"), std::string::npos);
}

TEST(Check, NamesTheClassOfEveryFault) {
  TemporaryFolder folder;
  folder.copy_demo();
  folder.write("generation_config.json", R"({"temperature": "hot"})");
  std::filesystem::resize_file(folder.file("model-00002-of-00003.safetensors"), 5000);
  const Outcome outcome = run_program({"check", folder.path(), "--json"});
  EXPECT_EQ(outcome.code, 3);
  const Json json = parse(outcome.out);
  EXPECT_FALSE(json.find("sound")->as_bool());
  std::string classes;
  for (const Json& fault : json.find("faults")->as_array())
    classes += fault.find("class")->as_string() + " ";
  EXPECT_EQ(classes, "file generation_config ");
}

TEST(Check, NamesABrokenTemplateThatOnlyChatNeeds) {
  TemporaryFolder folder;
  folder.copy_demo();
  folder.write("chat_template.jinja", "{% for message in messages %}{{ message.content }}");
  const Outcome check = run_program({"check", folder.path(), "--headers-only"});
  EXPECT_EQ(check.code, 3);
  EXPECT_NE(check.out.find("chat_template "), std::string::npos) << check.out;
  const std::vector<std::string> run{"run", folder.path(), "-n", "2", "-p", "The kernel"};
  EXPECT_EQ(run_program(run).code, 0);
  auto chat = run;
  chat.emplace_back("--chat");
  const Outcome refused = run_program(chat);
  EXPECT_EQ(refused.code, 3) << refused.err;
  EXPECT_EQ(refused.out, "");
}

TEST(Check, RefusesWeightsThatAreNotFinite) {
  TemporaryFolder folder;
  folder.copy_demo();
  const std::string shard = folder.file("model-00001-of-00003.safetensors");
  auto text = read_text_file(shard, 64 << 20);
  ASSERT_TRUE(text.ok());
  text->replace(text->size() - 2, 2, "\x80\x7F");  // bf16 infinity, little endian
  folder.write("model-00001-of-00003.safetensors", *text);
  const Outcome outcome = run_program({"check", folder.path()});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.out.find("non_finite_weight"), std::string::npos) << outcome.out;
  EXPECT_EQ(run_program({"check", folder.path(), "--headers-only"}).code, 0);
}

TEST(BenchLatency, MarkdownAndJson) {
  const std::vector<std::string> base{"bench", "latency", kModel, "-q", "-p", "16,8",
                                      "-n",    "4",       "-r",   "2",  "-o"};
  auto arguments = base;
  arguments.emplace_back("md");
  const Outcome markdown = run_program(arguments);
  ASSERT_EQ(markdown.code, 0) << markdown.err;
  for (const char* test : {"pp16", "pp8", "tg4", "\u00B1"})
    EXPECT_NE(markdown.out.find(test), std::string::npos) << test;
  arguments = base;
  arguments.emplace_back("json");
  const Json json = parse(run_program(arguments).out);
  ASSERT_EQ(json.as_array().size(), 3u);
  for (const Json& row : json.as_array()) {
    EXPECT_EQ(row.find("tokens_per_s")->as_array().size(), 2u);
    EXPECT_GT(row.find("mean_tokens_per_s")->as_double(), 0);
    // Of two runs the median is the mean.
    EXPECT_NEAR(row.find("median_tokens_per_s")->as_double(),
                row.find("mean_tokens_per_s")->as_double(), 1e-3);
  }
  arguments = base;
  arguments.emplace_back("jsonl");
  std::istringstream lines(run_program(arguments).out);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) (void)parse(line);
  EXPECT_EQ(count, 3);
}

TEST(BenchLatency, BatchesSayWhatAStepTakesAndReads) {
  std::istringstream lines(run_program({"bench", "latency", kModel, "-q", "-p", "0", "-n", "6",
                                        "-b", "1,3", "-c", "5", "-r", "1", "-o", "jsonl"})
                               .out);
  std::vector<Json> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(parse(line));
  ASSERT_EQ(rows.size(), 2u);
  const auto number = [&](size_t row, const char* key) { return rows[row].find(key)->as_double(); };
  for (size_t i = 0; i < rows.size(); ++i) {
    const double batch = i == 0 ? 1 : 3;
    EXPECT_EQ(number(i, "batch"), batch);
    EXPECT_EQ(number(i, "context"), 5);
    EXPECT_NEAR(number(i, "median_tokens_per_s") * number(i, "step_ms"), batch * 1e3, 1e-3 * batch);
    EXPECT_GE(number(i, "mean_context"), 5 + 3);
    EXPECT_EQ(rows[i].find("floor_ms"), nullptr) << "only with --floor";
  }
  EXPECT_EQ(number(0, "experts_touched"), 4);  // one token's picks
  EXPECT_GT(number(1, "experts_touched"), 4);
  EXPECT_GT(number(1, "step_bytes"), number(0, "step_bytes"));
}

TEST(BenchLatency, FloorIsMeasuredWhenAskedFor) {
  const Outcome outcome = run_program(
      {"bench", "latency", kModel, "-q", "-p", "0", "-n", "4", "-r", "1", "--floor", "-o", "json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json json = parse(outcome.out);
  const Json& row = json.as_array()[0];
  const double share = row.find("floor_share")->as_double();
  EXPECT_GT(row.find("read_gbps")->as_double(), 0.1);
  EXPECT_GT(share, 0);
  EXPECT_NEAR(row.find("floor_ms")->as_double() / row.find("step_ms")->as_double(), share, 1e-3);
}

TEST(BenchLatency, LongerThanTheModelIsUsage) {
  const Outcome outcome = run_program({"bench", "latency", kModel, "-q", "-p", "5000", "-n", "0"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("5000"), std::string::npos);
}

TEST(Doctor, OneLineForEachSubject) {
  RunOptions capped;
  capped.environment = {"SWITCHYARD_MAX_ISA=avx2"};
  const Outcome outcome = run_program({"doctor"}, capped);
  EXPECT_EQ(outcome.code, 0);
  for (const char* subject : {"cpu", "instruction sets", "amx", "cores", "caches", "memory",
                              "control group", "huge pages", "cuda", "SWITCHYARD_KERNEL"})
    EXPECT_NE(outcome.out.find(subject), std::string::npos) << subject;
}

}  // namespace
}  // namespace switchyard
