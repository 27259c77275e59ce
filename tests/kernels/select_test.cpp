// SPDX-License-Identifier: Apache-2.0
// Choosing a kernel: order, needs, pins, explanations; and what a RouterSpec may say.
#include "kernels/select.h"

#include <cstdlib>
#include <set>

#include <gtest/gtest.h>

#include "base/log.h"
#include "device/cpu_features.h"
#include "kernels/linear.h"
#include "kernels/ops/route.h"

namespace switchyard::kernels {
namespace {

// Sets SWITCHYARD_KERNEL for a scope.
class Pin {
 public:
  explicit Pin(const char* value) { setenv("SWITCHYARD_KERNEL", value, 1); }
  ~Pin() { unsetenv("SWITCHYARD_KERNEL"); }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
};

GroupedGemm::Problem bf16_problem() {
  return {.groups = 8, .n = 64, .k = 128, .max_rows = 16, .weight = DType::bf16};
}

std::string verdict_of(const std::vector<Candidate>& candidates, std::string_view name) {
  for (const Candidate& c : candidates) {
    if (c.name == name) return c.verdict;
  }
  return "not in the list";
}

template <class Op>
void check_table(std::string_view op) {
  const auto entries = table<Op>();
  ASSERT_FALSE(entries.empty());
  EXPECT_EQ(entries.back().name, fmt::format("{}.ref", op));
  EXPECT_EQ(entries.back().needs.cpu_features, 0u);
  std::set<std::string_view> names;
  for (const Kernel<Op>& kernel : entries) {
    EXPECT_TRUE(kernel.name.starts_with(fmt::format("{}.", op))) << kernel.name;
    EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name << " twice";
    EXPECT_NE(kernel.accept, nullptr);
    EXPECT_NE(kernel.workspace, nullptr);
    EXPECT_NE(kernel.run, nullptr);
  }
}

TEST(Table, HoldsWholeEntriesAndEndsWithTheReference) {
  check_table<GroupedGemm>("grouped_gemm");
  check_table<Attention>("attention");
  check_table<RmsNorm>("rms_norm");
  check_table<PrepareQkv>("prepare_qkv");
  check_table<Gather>("gather");
  check_table<Combine>("combine");
}

// Run once for each SWITCHYARD_MAX_ISA (tests/kernels/CMakeLists.txt): the best usable level wins.
TEST(Select, TakesTheBestEntryOfTheUsableLevel) {
  const std::string_view level = isa_level_name(cpu_features().usable);
  const auto chosen = select_grouped_gemm(bf16_problem(), OutLayout::rows);
  ASSERT_TRUE(chosen.ok());
  const std::string expected =
      level == "baseline" ? "grouped_gemm.ref" : fmt::format("grouped_gemm.cpu.{}_bf16", level);
  EXPECT_EQ(chosen->name(), expected);
  EXPECT_EQ(chosen->problem().in, level == "amx" ? RowLayout::tiles_bf16 : RowLayout::rows_f32);

  auto f32 = bf16_problem();
  f32.weight = DType::f32;
  const auto plain = select<GroupedGemm>(f32);
  ASSERT_TRUE(plain.ok());
  const std::string_view vector_level = level == "amx" ? "avx512" : level;
  EXPECT_EQ(plain->name(), level == "baseline"
                               ? "grouped_gemm.ref"
                               : fmt::format("grouped_gemm.cpu.{}_f32", vector_level));
  EXPECT_EQ(plain->packing()->name, level == "baseline" ? "row_major" : "panel32_f32");
}

TEST(Select, FollowsInGivesTheSecondProductWhatItReads) {
  auto up = bf16_problem();
  up.fusion = Fusion::swiglu;
  const auto bound = select_grouped_gemm(up, OutLayout::follows_in);
  ASSERT_TRUE(bound.ok());
  EXPECT_EQ(bound->problem().in, bound->problem().out);
}

TEST(Select, PinsAnEntryByTheEndOfItsName) {
  for (const char* pin : {"grouped_gemm=ref", "grouped_gemm=naive", "grouped_gemm=cpu.naive",
                          "gather=ref,grouped_gemm=ref"}) {
    const Pin set(pin);
    const auto bound = select<GroupedGemm>(bf16_problem());
    ASSERT_TRUE(bound.ok()) << bound.error().message;
    const std::string_view variant =
        std::string_view(pin).substr(std::string_view(pin).rfind('=') + 1);
    EXPECT_TRUE(bound->name().ends_with(variant)) << bound->name();
  }
}

TEST(Select, PinOfAnotherOpChangesNothing) {
  const auto before = select<GroupedGemm>(bf16_problem());
  const Pin set("gather=ref");
  EXPECT_EQ(select<GroupedGemm>(bf16_problem())->name(), before->name());
}

TEST(Select, BadPinsAreErrorsThatSayWhatIsKnown) {
  const struct {
    const char* pin;
    const char* expected;
  } cases[] = {
      {"grouped_gemm=fastest", "grouped_gemm.cpu.naive"},
      {"grouped_gemm=aive", "has no variant 'aive'"},
      {"grouped_gem=ref", "grouped_gemm, attention"},
      {"grouped_gemm", "not OP=VARIANT"},
      {"grouped_gemm=", "has no variant ''"},
      {"grouped_gemm=amx_bf16",
       "grouped_gemm.cpu.amx_bf16 "},  // refused (rows), or needs what is absent
  };
  for (const auto& c : cases) {
    const Pin set(c.pin);
    const auto bound = select<GroupedGemm>(bf16_problem());
    ASSERT_FALSE(bound.ok()) << c.pin;
    EXPECT_EQ(bound.error().code, Code::unsupported);
    EXPECT_NE(bound.error().message.find(c.expected), std::string::npos) << bound.error().message;
  }
}

TEST(Select, LogsEachKernelOnceAtInfo) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, std::string_view text) { lines.emplace_back(text); });
  const Pin set("rms_norm=ref");
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(select<RmsNorm>({.width = 64}).ok());
  set_log_sink({});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0], "rms_norm: using rms_norm.ref");
}

TEST(Explain, TellsWhyEveryEntryIsOrIsNotChosen) {
  const auto candidates = explain<GroupedGemm>(bf16_problem());
  ASSERT_EQ(candidates.size(), table<GroupedGemm>().size());
  int chosen = 0;
  for (const Candidate& c : candidates) chosen += c.verdict == "chosen" ? 1 : 0;
  EXPECT_EQ(chosen, 1);
  EXPECT_EQ(verdict_of(candidates, "grouped_gemm.cpu.naive"), "baseline");
  const bool avx2 = (cpu_features().usable & kIsaAvx2) == kIsaAvx2;
  EXPECT_EQ(verdict_of(candidates, "grouped_gemm.ref"), avx2 ? "accepts" : "chosen");
  if (avx2) {
    EXPECT_EQ(verdict_of(candidates, "grouped_gemm.cpu.avx2_f32"), "refused: weights are not f32");
  } else {
    EXPECT_TRUE(verdict_of(candidates, "grouped_gemm.cpu.avx2_f32").starts_with("needs avx2 fma"));
  }
}

TEST(ExplainText, KnowsEveryOp) {
  const std::pair<std::string_view, std::string_view> problems[] = {
      {"grouped_gemm", "m=64 n=1408 k=2048 groups=64 weight=bf16 fusion=swiglu"},
      {"attention",
       "heads=8 kv_heads=2 head_dim=64 block_tokens=16 cache=bf16 window=0 scale=0.125 "
       "max_tokens=7"},
      {"rms_norm", "width=2048  eps=1e-5"},
      {"prepare_qkv",
       "heads=8 kv_heads=2 head_dim=64 rotary_dim=64 norm=per_head eps=1e-6 clip=8 cache=f32"},
      {"gather", "groups=8 width=64 max_rows=100 out=tiles_bf16"},
      {"combine", "width=64 top_k=8"},
      {"route",
       "experts=64 top_k=8 score=sigmoid weigh=renormalize bias=1 groups=8 top_groups=4 devices=1 "
       "max_devices=0"},
  };
  std::set<std::string_view> explained;
  for (const auto& [op, text] : problems) {
    const auto candidates = explain_text(op, text);
    ASSERT_TRUE(candidates.ok()) << candidates.error().message;
    EXPECT_FALSE(candidates->empty());
    explained.insert(op);
  }
  EXPECT_EQ(explained, std::set<std::string_view>(op_names().begin(), op_names().end()));
}

TEST(ExplainText, ChoosesLayoutsAsTheLayersDoUnlessTold) {
  const std::string_view best = isa_level_name(cpu_features().usable);
  if (best != "amx") GTEST_SKIP() << "tiles are for AMX alone";
  constexpr std::string_view kAmx = "grouped_gemm.cpu.amx_bf16";
  const auto open = explain_text("grouped_gemm", "n=64 k=64");
  EXPECT_EQ(verdict_of(*open, kAmx), "chosen");
  const auto told = explain_text("grouped_gemm", "n=64 k=64 in=rows_f32");
  EXPECT_EQ(verdict_of(*told, kAmx), "refused: reads tiles_bf16 only");
}

TEST(ExplainText, NamesWhatItDoesNotKnow) {
  const struct {
    std::string_view op, problem, expected;
  } cases[] = {
      {"gemm", "", "unknown op 'gemm', expected one of grouped_gemm"},
      {"grouped_gemm", "n=64 k=64 colour=blue", "'colour=blue' is not KEY=VALUE with a key of m="},
      {"grouped_gemm", "n=64 k", "'k' is not KEY=VALUE"},
      {"grouped_gemm", "n=64 k=64 weight=int3", "weight is 'int3', expected one of f32, bf16"},
      {"grouped_gemm", "n=64 k=-1", "k is '-1', expected a whole number"},
      {"grouped_gemm", "n=64 k=1x", "k is '1x', expected a whole number"},
      {"grouped_gemm", "n=64", "k is 0, expected at least 1"},
      {"rms_norm", "eps=small", "eps is 'small', expected a number"},
  };
  for (const auto& c : cases) {
    const auto result = explain_text(c.op, c.problem);
    ASSERT_FALSE(result.ok()) << c.problem;
    EXPECT_EQ(result.error().code, Code::bad_request);
    EXPECT_NE(result.error().message.find(c.expected), std::string::npos) << result.error().message;
  }
}

TEST(RouterSpec, AcceptsTheRoutersOfTheFamilies) {
  EXPECT_TRUE(
      (RouterSpec{.num_experts = 8, .top_k = 2, .weigh = Weigh::softmax_after_top_k}).check().ok());
  EXPECT_TRUE((RouterSpec{.num_experts = 64, .top_k = 64}).check().ok());
  const RouterSpec deepseek{.num_experts = 256,
                            .top_k = 8,
                            .score = Score::sigmoid,
                            .weigh = Weigh::renormalize,
                            .renormalize_epsilon = 1e-20f,
                            .scale = 2.5f,
                            .selection_bias = true,
                            .num_groups = 8,
                            .top_groups = 4};
  EXPECT_TRUE(deepseek.check().ok());
  const RouterSpec gshard{
      .num_experts = 8, .top_k = 2, .capacity_factor = 1.25f, .overflow = Overflow::drop_last};
  EXPECT_TRUE(gshard.check().ok());
}

TEST(RouterSpec, RefusesWhatMeansNothingAndNamesTheRule) {
  const RouterSpec good{.num_experts = 8, .top_k = 2};
  const auto message = [&](auto&& change) {
    RouterSpec spec = good;
    change(spec);
    const Status status = spec.check();
    EXPECT_FALSE(status.ok());
    if (status.ok()) return std::string();
    EXPECT_EQ(status.error().code, Code::bad_request);
    return status.error().message;
  };
  const auto expect = [&](std::string_view text, auto&& change) {
    const std::string found = message(change);
    EXPECT_NE(found.find(text), std::string::npos) << found;
  };
  expect("num_experts is 0", [](RouterSpec& s) { s.num_experts = 0; });
  expect("top_k is 9", [](RouterSpec& s) { s.top_k = 9; });
  expect("top_k is 0", [](RouterSpec& s) { s.top_k = 0; });
  expect("no selector", [](RouterSpec& s) { s.selector = ""; });
  expect("3 groups do not divide 8", [](RouterSpec& s) { s.num_groups = 3; });
  expect("0 groups do not divide 8", [](RouterSpec& s) { s.num_groups = 0; });
  expect("top_groups is 5", [](RouterSpec& s) { s.num_groups = 4, s.top_groups = 5; });
  expect("hold only 1 experts", [](RouterSpec& s) { s.num_groups = 8, s.top_groups = 1; });
  expect("softmax_after_top_k",
         [](RouterSpec& s) { s.score = Score::sigmoid, s.weigh = Weigh::softmax_after_top_k; });
  expect("max_devices is -1", [](RouterSpec& s) { s.max_devices = -1; });
  expect("noise is -1", [](RouterSpec& s) { s.noise = -1; });
  expect("scale is nan", [](RouterSpec& s) { s.scale = NAN; });
  expect("renormalize_epsilon is inf", [](RouterSpec& s) { s.renormalize_epsilon = INFINITY; });
  expect("expected both or neither", [](RouterSpec& s) { s.capacity_factor = 1; });
  expect("expected both or neither", [](RouterSpec& s) { s.overflow = Overflow::drop_lowest; });
}

}  // namespace
}  // namespace switchyard::kernels
