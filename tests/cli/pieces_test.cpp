// SPDX-License-Identifier: Apache-2.0
// The pieces that commands are made of: width of text, tables, bars, suggestions, the report.
#include <gtest/gtest.h>

#include "cli/exit_code.h"
#include "cli/moe_report.h"
#include "cli/suggestion.h"
#include "cli/terminal.h"

namespace switchyard::cli {
namespace {

const Look kPlain{};
const Look kTerminal{true, 100};

TEST(Text, WidthCountsColumns) {
  EXPECT_EQ(display_width("abc"), 3);
  EXPECT_EQ(display_width("\u00e9"), 1);
  EXPECT_EQ(display_width("e\u0301"), 1);       // a combining accent
  EXPECT_EQ(display_width("\u4e2d\u6587"), 4);  // wide
  EXPECT_EQ(display_width("\xFFz"), 2);         // a broken byte
}

TEST(Text, ClipsAtWholeCharacters) {
  EXPECT_EQ(clip("hello", 5), "hello");
  EXPECT_EQ(clip("hello world", 6), "hello\u2026");
  EXPECT_EQ(clip("\u4e2d\u6587\u4e2d", 4), "\u4e2d\u2026");
}

TEST(Text, ControlCharactersAreShownNotObeyed) {
  EXPECT_EQ(printable("a\033[31mb\n"), "a\\u001b[31mb\\n");
  EXPECT_EQ(printable("a\033\n\tb", Keep::line_breaks), "a\\u001b\n\tb");
  EXPECT_EQ(printable("\xC3"), "\\xc3");
  EXPECT_EQ(printable("\u00e9\u4e2d"), "\u00e9\u4e2d");
  EXPECT_EQ(printable("\u009b"), "\\u009b");  // the one-byte form of ESC [
}

TEST(Text, NumbersForPeople) {
  EXPECT_EQ(size_text(512), "512 B");
  EXPECT_EQ(size_text(int64_t{25} << 20), "25.0 MiB");
  EXPECT_EQ(count_text(12770000), "12.77 M");
  EXPECT_EQ(count_text(9999), "9999");
  EXPECT_EQ(time_text(0.0123), "12.3 ms");
}

TEST(Bar, GrowsInEighths) {
  EXPECT_EQ(bar(0, 4), "    ");
  EXPECT_EQ(bar(0.5, 4), "\u2588\u2588  ");
  EXPECT_EQ(bar(1.0 / 32, 4), "\u258F   ");
  EXPECT_EQ(bar(7, 2), "\u2588\u2588");
  EXPECT_EQ(bar(-1, 2), "  ");
  EXPECT_EQ(bar(0.0 / 0.0, 2), "  ");
}

TEST(TableText, AlignsColumns) {
  Table table({{"name", Align::left}, {"n", Align::right}});
  table.add({"\u4e2d", "7"});
  table.add({"longer", "123"});
  EXPECT_EQ(table.text(kPlain), "name      n\n\u4e2d        7\nlonger  123\n");
  EXPECT_EQ(table.markdown(),
            "| name   |   n |\n| ------ | ---:|\n| \u4e2d     |   7 |\n| longer | 123 |\n");
  EXPECT_EQ(table.csv(), "name,n\n\u4e2d,7\nlonger,123\n");
}

TEST(TableText, IsCutAtTheEdgeOfATerminal) {
  Table table({{"a", Align::left}, {"b", Align::left, Style::red}});
  table.add({"x", std::string(60, 'y')});
  EXPECT_EQ(table.text({true, 40}, Table::Titles::left_out),
            "x  \033[31m" + std::string(36, 'y') + "\u2026\033[0m\n");
  EXPECT_EQ(table.text(kPlain, Table::Titles::left_out), "x  " + std::string(60, 'y') + "\n");
}

TEST(TableText, CsvQuotesWhatNeedsIt) {
  Table table({{"a", Align::left}});
  table.add({"x,\"y\""});
  EXPECT_EQ(table.csv(), "a\n\"x,\"\"y\"\"\"\n");
}

TEST(Suggestion, DistanceCountsSwapsOnce) {
  EXPECT_EQ(edit_distance("seed", "seed"), 0);
  EXPECT_EQ(edit_distance("sede", "seed"), 1);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("top-k", "top-p"), 1);
}

TEST(Suggestion, FindsSlipsOnly) {
  const std::vector<std::string> known{"--temperature", "--top-k", "--top-p"};
  EXPECT_EQ(find_nearest("--temprature", known), "--temperature");
  EXPECT_EQ(find_nearest("--verbose", known), std::nullopt);
  EXPECT_EQ(find_nearest(std::string(5000, '-'), known), std::nullopt);
}

TEST(ExitCode, OfEveryErrorCode) {
  EXPECT_EQ(exit_code(Code::bad_request), 2);
  EXPECT_EQ(exit_code(Code::bad_file), 3);
  EXPECT_EQ(exit_code(Code::unsupported), 4);
  EXPECT_EQ(exit_code(Code::out_of_memory), 5);
  EXPECT_EQ(exit_code(Code::unavailable), 1);
  EXPECT_EQ(exit_code(Code::cancelled), 130);
  EXPECT_EQ(exit_code(Code::device), 1);
  EXPECT_EQ(exit_code(Code::internal), 1);
}

EngineStats stats() {
  EngineStats stats;
  stats.steps = 10;
  stats.step_s = 2;
  stats.load = {{0, 30, 10, 0}, {10, 10, 10, 10}};
  stats.imbalance = {2.5, 1};
  stats.experts_touched = {1.5, 4};
  stats.phase_s = {{"attention", 0.5}, {"gemm_up", 1.0}, {"lm_head", 0.2}};
  return stats;
}

TEST(MoeReport, ExpertsByLayer) {
  const std::string text = expert_report(stats(), kPlain);
  // 30 of 40 picks over a mean of 10; the per-step numbers are as given.
  EXPECT_NE(
      text.find(
          "        0        4        2       3.00                 1.5       2.50  1 75%, 2 25%\n"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("0 25%, 1 25%, 2 25%, 3 25%"), std::string::npos);
  EXPECT_EQ(text.find("\u2588"), std::string::npos) << "bars outside a terminal";
  EXPECT_NE(expert_report(stats(), kTerminal).find("\u2588"), std::string::npos);
}

TEST(MoeReport, ShowsDropsWhereSomethingCanDrop) {
  EngineStats limited = stats();
  EXPECT_EQ(expert_report(limited, kPlain).find("dropped"), std::string::npos);
  limited.dropped = {6, 0};
  limited.unrouted_tokens = 3;
  limited.unusable_rows = 2;
  const std::string text = expert_report(limited, kPlain);
  EXPECT_NE(text.find("2.50    15.0%  1 75%"), std::string::npos) << text;
  EXPECT_NE(text.find("0.0%"), std::string::npos) << text;
  EXPECT_NE(text.find("3 times a token lost all its experts"), std::string::npos) << text;
  EXPECT_NE(text.find("2 times a router met NaN"), std::string::npos) << text;
}

TEST(MoeReport, PhasesSumToTheSteps) {
  const std::string text = phase_report(stats(), kPlain);
  EXPECT_NE(text.find("attention      500.0 ms  25.0%"), std::string::npos) << text;
  EXPECT_NE(text.find("other          500.0 ms  25.0%  lm_head 10.0%"), std::string::npos) << text;
}

TEST(MoeReport, PromptsInTheLayerWhereTheyDiffer) {
  const RequestMoe first{{{2, 2, 0, 0}, {8, 0, 0, 0}}}, second{{{2, 2, 0, 0}, {0, 0, 6, 2}}};
  const std::vector<PromptExperts> prompts{{"one", &first}, {"two", &second}};
  const std::string text = prompt_report(prompts, kPlain);
  EXPECT_NE(text.find("MoE layer 1,"), std::string::npos) << text;
  EXPECT_NE(text.find("0 100%                            one"), std::string::npos) << text;
  EXPECT_NE(text.find("2 75%, 3 25%                      two"), std::string::npos) << text;
  EXPECT_NE(prompt_report(prompts, kTerminal).find("  \u2588\u2583"), std::string::npos);
  EXPECT_EQ(prompt_report({prompts[0]}, kPlain), "");
}

TEST(MoeReport, EmptyWithoutNumbers) {
  EXPECT_EQ(expert_report({}, kPlain), "");
  EXPECT_EQ(phase_report({}, kPlain), "");
  EngineStats unmeasured = stats();
  unmeasured.phase_s.clear();
  EXPECT_EQ(phase_report(unmeasured, kPlain), "");
}

}  // namespace
}  // namespace switchyard::cli
