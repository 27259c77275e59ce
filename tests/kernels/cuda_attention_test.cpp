// SPDX-License-Identifier: Apache-2.0
// The CUDA attention kernels against the reference, over tests/cases/attention.h and shapes of their own.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/attention_run.h"
#include "kernels/cuda/attention_entries.h"
#include "kernels/cuda_run.h"
#include "model/cuda/padding.h"

namespace switchyard::kernels {
namespace {

using cases::AttentionCase;
using cases::AttentionInputs;
using cases::OnDevice;

enum class Path : uint8_t { plain, sm80, sm90a, chosen };
Path path = Path::plain;  // of the entry below; set before each run

// [blocks, G, Z, P] to [blocks, G, P, Z], both as bytes of `dtype`.
std::vector<std::byte> transposed(const void* from, const Attention::Problem& p, int64_t blocks) {
  const int64_t each = dtype_bytes(p.cache), tile = int64_t{p.block_tokens} * p.head_dim;
  std::vector<std::byte> to(static_cast<size_t>(blocks * p.kv_heads * tile * each));
  const auto* bytes = static_cast<const std::byte*>(from);
  for (int64_t b = 0; b < blocks * p.kv_heads; ++b) {
    for (int64_t z = 0; z < p.head_dim; ++z) {
      for (int64_t i = 0; i < p.block_tokens; ++i) {
        std::memcpy(to.data() + (b * tile + i * p.head_dim + z) * each,
                    bytes + (b * tile + z * p.block_tokens + i) * each, static_cast<size_t>(each));
      }
    }
  }
  return to;
}

// Blocks that the step's tables name.
int64_t blocks_of(const Attention::Problem& p, const Attention::Args& args) {
  int64_t most = 0;
  for (int b = 0; b < args.sequences; ++b) {
    const int tokens = args.seq_offset[b + 1] - args.seq_offset[b];
    const int end = args.context_len[b] + tokens;
    const int seen = p.window > 0 ? std::max(0, args.context_len[b] + 1 - p.window) : 0;
    for (int at = seen; at < end; ++at) {
      most = std::max<int64_t>(
          most, args.block_table[int64_t{b} * args.max_blocks + at / p.block_tokens] + 1);
    }
  }
  return most;
}

void run_on_device(const Attention::Problem& p, const Attention::Args& args, std::span<std::byte>,
                   const Stream&) noexcept {
  const int64_t tokens = args.sequences == 0 ? 0 : args.seq_offset[args.sequences];
  const int64_t values = tokens * p.heads * p.head_dim, blocks = blocks_of(p, args);
  if (tokens == 0) return;
  const auto k = transposed(args.k_cache, p, blocks);
  const OnDevice k_cache(k.data(), std::ssize(k)), v_cache(args.v_cache, std::ssize(k));
  const OnDevice q = cases::on_device({args.q, args.q + values}, p.cache);
  const OnDevice seq_offset(args.seq_offset, (args.sequences + 1) * 4);
  const OnDevice context_len(args.context_len, args.sequences * 4);
  const OnDevice table(args.block_table, int64_t{args.sequences} * args.max_blocks * 4);
  const OnDevice out(nullptr, values * dtype_bytes(p.cache));
  cuda::Attend attend{.heads = p.heads,
                      .kv_heads = p.kv_heads,
                      .head_dim = p.head_dim,
                      .block_tokens = p.block_tokens,
                      .dtype = p.cache,
                      .window = p.window,
                      .scale = p.scale,
                      .q = q.data(),
                      .k_cache = k_cache.data(),
                      .v_cache = v_cache.data(),
                      .seq_offset = seq_offset.as<int32_t>(),
                      .context_len = context_len.as<int32_t>(),
                      .block_table = table.as<int32_t>(),
                      .max_blocks = args.max_blocks,
                      .sequences = args.sequences,
                      .tokens = tokens,
                      .out = out.data()};
  const int64_t bytes = cuda::attend_workspace(
      attend, int64_t{args.sequences} * args.max_blocks * p.block_tokens, args.sequences);
  const OnDevice workspace(nullptr, bytes);
  cases::cuda_stream()->fill(workspace.data(), 0, cuda::attend_counters(attend));
  attend.workspace = workspace.data();
  const auto queue = cases::cuda_stream()->handle();
  switch (path) {
    case Path::plain:
      cuda::attend_plain(attend, queue);
      break;
    case Path::sm80:
      cuda::attend_decode_sm80(attend, queue);
      cuda::attend_prefill_sm80(attend, queue);
      break;
    case Path::sm90a:
      EXPECT_TRUE(cuda::attend_sm90a_accepts(attend));
      EXPECT_TRUE(cuda::attend_decode_sm90a(attend, queue));
      EXPECT_TRUE(cuda::attend_prefill_sm90a(attend, queue));
      break;
    case Path::chosen:
      cuda::attend_decode(attend, queue);
      cuda::attend_prefill(attend, queue);
      break;
  }
  const std::vector<float> found = out.read_floats(values, p.cache);
  std::copy(found.begin(), found.end(), args.out);
}

const Kernel<Attention> kOnDevice{
    .name = "attention.cuda",
    .needs = {},
    .accept = [](const Attention::Problem&) noexcept { return Verdict{}; },
    .workspace = [](const Attention::Problem&, int) noexcept { return int64_t{0}; },
    .run = run_on_device};

// Lengths around the tiles of 16, the units of 64, the spans of 512 and more, in one step.
std::vector<cases::SequenceCase> ragged_decodes() {
  std::vector<cases::SequenceCase> sequences;
  for (const int length :
       {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 511, 512, 513, 576, 577, 1025}) {
    sequences.push_back({length - 1, 1});
  }
  return sequences;
}
std::vector<cases::SequenceCase> many_decodes() {
  std::vector<cases::SequenceCase> sequences;
  for (int i = 0; i < 300; ++i) sequences.push_back({i * 37 % 200, i % 7 == 3 ? 0 : 1});
  return sequences;
}

// With enough heads, too many for four warps each.
std::vector<cases::SequenceCase> short_decodes(int count) {
  std::vector<cases::SequenceCase> sequences;
  for (int i = 0; i < count; ++i) sequences.push_back({i * 29 % 60, 1});
  return sequences;
}

std::vector<AttentionCase> fast_cases() {
  return {
      {"one token", 4, 1, 64, 16, {{0, 1}}},
      {"decode around a tile", 8, 2, 64, 16, {{14, 1}, {15, 1}, {16, 1}, {63, 1}, {64, 1}}},
      {"decode of ragged lengths", 32, 4, 128, 16, ragged_decodes()},
      {"decode of ragged lengths, a head for each", 4, 4, 128, 16, ragged_decodes()},
      {"decode of ragged lengths, 64 wide", 4, 2, 64, 32, ragged_decodes()},
      {"decode of many", 8, 1, 64, 16, many_decodes()},
      {"decode of many short, two share a key", 64, 32, 64, 64, short_decodes(40)},
      {"decode of many short, a head for each", 16, 16, 128, 16, short_decodes(40)},
      {"decode around the longest without spans", 8, 2, 128, 16, {{126, 1}, {127, 1}, {128, 1}}},
      {"decode in a window without spans", 8, 2, 64, 16, {{300, 1}, {127, 1}, {1000, 1}}, 111},
      {"decode in a window around it", 8, 2, 64, 16, {{300, 1}, {305, 1}, {310, 1}}, 118},
      {"decode of pairs of spans", 57, 57, 64, 64, {{513, 1}, {520, 1}, {1030, 1}}},
      {"decode, a head for each", 16, 16, 128, 16, {{100, 1}, {0, 1}, {1000, 1}}},
      {"decode, four share a key", 32, 8, 128, 16, {{300, 1}, {7, 1}}},
      {"decode, twenty share a key", 40, 2, 64, 16, {{300, 1}, {40, 1}, {600, 1}}},
      {"decode in blocks of 32", 8, 1, 128, 32, {{300, 1}, {31, 1}, {32, 1}}},
      {"decode, long", 32, 4, 128, 16, {{4095, 1}, {4096, 1}, {9000, 1}}},
      {"decode in a window", 8, 2, 64, 16, {{500, 1}, {90, 1}, {1200, 1}}, 100},
      {"decode in a long window", 8, 2, 128, 16, {{5000, 1}, {90, 1}, {1200, 1}}, 1000},
      {"decode of ragged lengths, blocks of 64", 32, 4, 128, 64, ragged_decodes()},
      {"decode of ragged lengths, a head for each, blocks of 64", 4, 4, 64, 64, ragged_decodes()},
      {"decode of many, blocks of 128", 8, 1, 64, 128, many_decodes()},
      {"decode in blocks of 48", 8, 2, 128, 48, ragged_decodes()},
      {"decode in a window, blocks of 64", 8, 2, 64, 64, {{500, 1}, {90, 1}, {1200, 1}}, 100},
      {"decode in a narrow window, blocks of 64", 8, 2, 128, 64, {{500, 1}, {64, 1}, {127, 1}}, 9},
      {"prefill of a prime", 4, 2, 64, 16, {{0, 67}}},
      {"prefill of two tokens", 32, 4, 128, 16, {{0, 2}, {63, 2}, {64, 2}}},
      {"prefill around a tile", 8, 1, 128, 16, {{0, 15}, {0, 16}, {0, 17}, {0, 33}}},
      {"prefill of several tiles", 32, 4, 128, 16, {{0, 200}}},
      {"prefill, a head for each", 16, 16, 128, 16, {{0, 130}, {70, 65}, {0, 127}, {0, 128}}},
      {"prefill, three share a key", 6, 2, 64, 16, {{0, 101}, {33, 64}}},
      {"prefill, twenty share a key", 40, 2, 64, 16, {{0, 61}, {33, 64}}},
      {"prefill, seven share a key, in a window",
       14,
       2,
       128,
       16,
       {{0, 150}, {70, 61}, {33, 2}},
       50},
      {"prefill, three share a key of 128, blocks of 64", 6, 2, 128, 64, {{0, 131}, {40, 5}}},
      {"prefill of chunks", 8, 2, 128, 16, {{1000, 64}, {128, 128}, {127, 130}, {4000, 33}}},
      {"prefill in blocks of 48", 8, 2, 128, 48, {{100, 64}, {0, 300}}},
      {"prefill in blocks of 64", 8, 2, 128, 64, {{100, 64}, {0, 300}, {0, 67}, {63, 2}, {64, 2}}},
      {"prefill of chunks in blocks of 64", 8, 2, 64, 64, {{1000, 64}, {127, 130}, {4000, 33}}},
      {"prefill, a head for each, blocks of 128", 16, 16, 128, 128, {{0, 130}, {70, 65}, {0, 127}}},
      {"prefill in a window, blocks of 64", 8, 2, 128, 64, {{0, 150}, {400, 40}}, 100},
      {"prefill in a window", 8, 2, 128, 16, {{0, 150}, {400, 40}}, 100},
      {"prefill in a narrow window", 4, 4, 64, 16, {{0, 300}, {1000, 140}}, 9},
      {"a mixed step", 32, 4, 128, 16, {{0, 53}, {200, 1}, {0, 0}, {64, 17}, {1, 1}, {530, 2}}},
      {"a mixed step in blocks of 64",
       32,
       4,
       128,
       64,
       {{0, 53}, {200, 1}, {0, 0}, {64, 17}, {1, 1}, {530, 2}}},
      {"large scores", 8, 1, 128, 16, {{80, 1}, {0, 30}}, 0, 30},
      {"scores that are all alike", 8, 1, 128, 16, {{80, 1}, {0, 30}}, 0, 0},
  };
}

// What `path` makes of queries that `dtype` can hold, held to the reference.
std::vector<float> expect_the_reference(AttentionInputs& in, DType dtype, double limit) {
  for (float& value : in.q()) {
    if (dtype == DType::bf16) value = to_float(to_bf16(value));
  }
  const auto expected = in.run(cases::reference_of<Attention>(), dtype, in.all(), 1);
  auto found = in.run(kOnDevice, dtype, in.all(), 1);
  if (found.empty()) return found;
  const Comparison compared = compare(found, expected);
  EXPECT_LE(compared.relative_error, limit) << compared.text();
  return found;
}
constexpr double kFastLimit = 6e-3;

TEST(CudaAttention, PlainAgreesWithTheReference) {
  SWITCHYARD_SKIP_WITHOUT_CUDA();
  path = Path::plain;
  for (const AttentionCase& shape : cases::attention_cases()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(fmt::format("{}, {}", shape.name, dtype_name(dtype)));
      AttentionInputs in(shape);
      const double limit = dtype == DType::bf16 ? 4e-3 : shape.score_size > 1 ? 1e-4 : 4e-6;
      expect_the_reference(in, dtype, limit);
    }
  }
}

class FastAttention : public testing::TestWithParam<Path> {
 protected:
  void SetUp() override {
    SWITCHYARD_SKIP_WITHOUT_CUDA();
    path = GetParam();
    if (path == Path::sm90a && !cuda::attend_is_sm90()) GTEST_SKIP() << "for sm_90 alone";
  }
};

TEST_P(FastAttention, AgreesWithTheReference) {
  for (const AttentionCase& shape : fast_cases()) {
    SCOPED_TRACE(shape.name);
    AttentionInputs in(shape);
    const auto found = expect_the_reference(in, DType::bf16, kFastLimit);
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE(cases::same_bits(found, in.run(kOnDevice, DType::bf16, in.all(), 1)));
    }
  }
}

// What scripts/gpu_sanitize.txt runs: each kernel and role with as little as takes all its ways.
void expect_the_references(const std::vector<AttentionCase>& shapes) {
  for (const AttentionCase& shape : shapes) {
    SCOPED_TRACE(shape.name);
    AttentionInputs in(shape);
    expect_the_reference(in, DType::bf16, kFastLimit);
  }
}

TEST_P(FastAttention, SmallDecodeWithoutSpans) {
  expect_the_references({{"short", 4, 2, 128, 16, {{0, 1}, {30, 1}, {127, 1}}},
                         {"blocks of 64", 4, 4, 64, 64, {{5, 1}, {100, 1}}},
                         {"in a window", 4, 1, 64, 16, {{300, 1}, {127, 1}}, 100},
                         {"a warp for each", 16, 16, 64, 64, short_decodes(40)}});
}

TEST_P(FastAttention, SmallDecodeInSpans) {
  expect_the_references({{"spans", 8, 1, 128, 16, {{700, 1}, {40, 1}}},
                         {"blocks of 64", 4, 2, 64, 64, {{600, 1}}},
                         {"a mixed step", 4, 1, 128, 16, {{0, 20}, {200, 1}, {0, 0}, {1, 1}}}});
}

TEST_P(FastAttention, SmallPrefill) {
  expect_the_references({{"a prime", 4, 2, 64, 16, {{0, 67}}},
                         {"a chunk, blocks of 64", 4, 1, 128, 64, {{70, 65}, {130, 2}}}});
}

// Too many for items of half the rows, so two groups consume; enough that blocks go on to a second item.
TEST_P(FastAttention, SmallPrefillOfManyItems) {
  std::vector<cases::SequenceCase> sequences{{70, 100}, {0, 129}};
  for (int i = 0; i < 40; ++i) sequences.push_back({i % 5, 2});
  expect_the_references({{"a head for each", 4, 4, 64, 16, sequences}});
}

// Sequences alone give the bits that they give among others.
TEST_P(FastAttention, BitsDoNotDependOnTheRestOfTheStep) {
  for (const AttentionCase& shape : fast_cases()) {
    SCOPED_TRACE(shape.name);
    const AttentionInputs in(shape);
    const std::vector<float> among = in.run(kOnDevice, DType::bf16, in.all(), 1);
    int64_t first = 0;
    for (const AttentionInputs::Part& part : in.all()) {
      const auto expected =
          std::span(among).subspan(first * in.token_width(), part.tokens * in.token_width());
      first += part.tokens;
      EXPECT_TRUE(cases::same_bits(in.run(kOnDevice, DType::bf16, {part}, 1), expected));
    }
  }
}

// Where items are few they have half as many rows.
TEST_P(FastAttention, ItemsOfHalfTheRowsGiveTheSameBits) {
  constexpr int kOthers = 140;
  for (const AttentionCase& shape : fast_cases()) {
    SCOPED_TRACE(shape.name);
    const AttentionInputs in(shape);
    for (const AttentionInputs::Part& part : in.all()) {
      if (part.tokens < 2) continue;
      std::vector<AttentionInputs::Part> parts(1 + kOthers, {part.sequence, 0, 2});
      parts[0] = part;
      std::vector<float> among = in.run(kOnDevice, DType::bf16, parts, 1);
      among.resize(part.tokens * in.token_width());
      EXPECT_TRUE(cases::same_bits(in.run(kOnDevice, DType::bf16, {part}, 1), among));
    }
  }
}

// A prompt of which a part is there already, as after a hit in the prefix cache, gives the bits that it gives as a whole: tiles of
// keys that a token does not see, but others of its item do, change nothing.
TEST_P(FastAttention, TheRestOfAPromptHasTheBitsOfTheWhole) {
  const std::vector<AttentionCase> shapes = {
      {"a head for each", 2, 2, 128, 16, {{0, 300}}, 0, 8},
      {"three share a key", 6, 2, 64, 16, {{0, 300}}, 0, 8},
      {"eight share a key", 8, 1, 128, 64, {{0, 300}}, 0, 8}};
  for (const AttentionCase& shape : shapes) {
    const AttentionInputs in(shape);
    const std::vector<float> whole = in.run(kOnDevice, DType::bf16, in.all(), 1);
    for (const int cut : {16, 48, 131, 290}) {
      SCOPED_TRACE(fmt::format("{}, from {}", shape.name, cut));
      const auto rest = in.run(kOnDevice, DType::bf16, {{0, cut, 300 - cut}}, 1);
      EXPECT_TRUE(cases::same_bits(rest, std::span(whole).subspan(cut * in.token_width())));
    }
  }
}

// A cache of the length of one sequence, whose blocks all sequences share; the workspace is what a model would take.
struct SharedBlocks {
  static constexpr int kSequences = 48, kBlocks = 65, kBlockTokens = 16;

  OnDevice q{cases::on_device(queries(), DType::bf16)};
  OnDevice k{cases::on_device(values(2), DType::bf16)}, v{cases::on_device(values(3), DType::bf16)};
  OnDevice offset{numbers(kSequences + 1, 1)}, table{blocks()};
  OnDevice context{std::vector<int32_t>(kSequences, kBlocks* kBlockTokens - 1)};
  OnDevice out{nullptr, int64_t{kSequences} * kHeads* kHeadDim * 2};
  cuda::Attend attend{.heads = kHeads,
                      .kv_heads = 2,
                      .head_dim = kHeadDim,
                      .block_tokens = kBlockTokens,
                      .dtype = DType::bf16,
                      .scale = 0.1f,
                      .q = q.data(),
                      .k_cache = k.data(),
                      .v_cache = v.data(),
                      .seq_offset = offset.as<int32_t>(),
                      .context_len = context.as<int32_t>(),
                      .block_table = table.as<int32_t>(),
                      .max_blocks = kBlocks,
                      .sequences = kSequences,
                      .tokens = kSequences,
                      .out = out.data()};

  static constexpr int kHeads = 8, kHeadDim = 64;
  static std::vector<float> queries() {  // the same of every sequence
    const auto one = cases::random_values(int64_t{kHeads} * kHeadDim, 1, 1);
    std::vector<float> all;
    for (int b = 0; b < kSequences; ++b) all.insert(all.end(), one.begin(), one.end());
    return all;
  }
  static std::vector<float> values(uint32_t seed) {
    return cases::random_values(int64_t{kBlocks} * kBlockTokens * 2 * kHeadDim, seed, 1);
  }
  static std::vector<int32_t> numbers(int count, int step) {
    std::vector<int32_t> to;
    for (int i = 0; i < count; ++i) to.push_back(i * step);
    return to;
  }
  static std::vector<int32_t> blocks() {
    std::vector<int32_t> to;
    for (int i = 0; i < kSequences * kBlocks; ++i) to.push_back(i % kBlocks);
    return to;
  }
};

TEST_P(FastAttention, SequencesThatShareBlocksStayInTheWorkspace) {
  SharedBlocks step;
  model::LoadOptions options;
  options.max_step_tokens = 4096;
  options.max_sequences = SharedBlocks::kSequences;
  options.block_tokens = SharedBlocks::kBlockTokens;
  options.num_kv_blocks = options.max_blocks_per_sequence = SharedBlocks::kBlocks;
  const int64_t bytes = cuda::attend_workspace(step.attend, model::cuda::step_positions(options),
                                               SharedBlocks::kSequences);
  constexpr int64_t kGuard = 1 << 20;
  const OnDevice workspace(std::vector<uint8_t>(static_cast<size_t>(bytes + kGuard), 0));
  step.attend.workspace = workspace.data();
  const auto queue = cases::cuda_stream()->handle();
  if (path == Path::sm80) cuda::attend_decode_sm80(step.attend, queue);
  const bool accepted = path != Path::sm90a || cuda::attend_decode_sm90a(step.attend, queue);
  EXPECT_TRUE(accepted);
  if (path == Path::chosen) cuda::attend_decode(step.attend, queue);
  const auto left = workspace.read<uint8_t>(bytes + kGuard);
  EXPECT_EQ(std::count(left.begin() + bytes, left.end(), 0), kGuard) << "wrote behind the end";
  const int64_t width = int64_t{SharedBlocks::kHeads} * SharedBlocks::kHeadDim;
  const auto found = step.out.read_floats(SharedBlocks::kSequences * width, DType::bf16);
  const std::span all(found);
  for (int b = 1; b < SharedBlocks::kSequences; ++b) {
    EXPECT_TRUE(cases::same_bits(all.subspan(b * width, width), all.first(width))) << b;
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, FastAttention,
                         testing::Values(Path::sm80, Path::sm90a, Path::chosen),
                         [](const auto& its) {
                           return its.param == Path::sm80    ? "sm80"
                                  : its.param == Path::sm90a ? "sm90a"
                                                             : "chosen";
                         });

}  // namespace
}  // namespace switchyard::kernels
