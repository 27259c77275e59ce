// SPDX-License-Identifier: Apache-2.0
// A routing trace comes back as it was written; every malformed class is refused with its offset, what was found and
// what was expected.
#include <cstring>
#include <filesystem>
#include <random>

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/temp_folder.h"
#include "base/text_checks.h"
#include "moe/trace/reader.h"
#include "moe/trace/writer.h"

namespace switchyard::moe {
namespace {

constexpr int kLayers = 2, kExperts = 5, kTopK = 2;

template <class T>
testing::AssertionResult fails_with(const Result<T>& result, Code code, std::string_view part) {
  if (result.ok()) return testing::AssertionFailure() << "it succeeded";
  if (result.error().code != code)
    return testing::AssertionFailure() << "code " << code_name(result.error().code);
  return has(result.error().message, part);
}

/// The arrays of one random step, and the views that the writer takes.
struct Sample {
  std::vector<TraceSequence> sequences;
  std::vector<uint32_t> demand, dropped;
  std::vector<float> weights;
  std::vector<uint16_t> picks;
  TraceStepData data;
};

Sample make_step(std::mt19937& random, bool with_picks) {
  Sample s;
  for (uint32_t b = 0; b < 1 + random() % 3; ++b)
    s.sequences.push_back({b + 7, b * 100, 1 + static_cast<uint32_t>(random() % 6), -1, 0});
  for (const TraceSequence& sequence : s.sequences) s.data.num_tokens += sequence.tokens;
  s.demand.assign(kLayers * kExperts, 0);
  s.dropped.assign(kLayers, 0);
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int64_t i = 0; i < s.data.num_tokens * kTopK; ++i) {
      const auto expert = static_cast<uint16_t>(random() % kExperts);
      ++s.demand[layer * kExperts + expert];
      const bool drop = random() % 8 == 0;
      s.dropped[layer] += drop ? 1 : 0;
      if (!with_picks) continue;
      s.picks.push_back(drop ? kDroppedPick : expert);
      s.weights.push_back(static_cast<float>(random() % 1000) / 1000);
    }
  }
  s.data.stage = static_cast<TraceStage>(random() % kNumTraceStages);
  return s;
}

TraceStepData view_of(const Sample& s) {
  TraceStepData data = s.data;
  data.sequences = s.sequences;
  data.demand = s.demand;
  data.dropped = s.dropped;
  data.weights = s.weights;
  data.picks = s.picks;
  return data;
}

TraceHeader make_header(bool picks) {
  return {"a \"model\" \u00FC", "test 1", kLayers, kExperts, kTopK, picks};
}

template <class T>
std::vector<T> copy(std::span<const T> values) {
  return {values.begin(), values.end()};
}

template <class T>
std::vector<T> row(const std::vector<T>& all, int index, size_t count) {
  const auto at = all.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(index) * count);
  return {at, at + static_cast<std::ptrdiff_t>(count)};
}

void expect_same(const TraceStep& step, const Sample& s) {
  EXPECT_EQ(step.num_tokens(), s.data.num_tokens);
  EXPECT_EQ(step.stage(), s.data.stage);
  ASSERT_EQ(step.sequences().size(), s.sequences.size());
  for (size_t b = 0; b < s.sequences.size(); ++b) {
    EXPECT_EQ(step.sequences()[b].request, s.sequences[b].request);
    EXPECT_EQ(step.sequences()[b].first_position, s.sequences[b].first_position);
    EXPECT_EQ(step.sequences()[b].tokens, s.sequences[b].tokens);
    EXPECT_EQ(step.sequences()[b].topic, s.sequences[b].topic);
  }
  const size_t picks = s.picks.size() / kLayers;
  for (int layer = 0; layer < kLayers; ++layer) {
    EXPECT_EQ(copy(step.demand(layer)), row(s.demand, layer, kExperts));
    EXPECT_EQ(step.dropped(layer), s.dropped[layer]);
    EXPECT_EQ(copy(step.picks(layer)), row(s.picks, layer, picks));
    EXPECT_EQ(copy(step.weights(layer)), row(s.weights, layer, picks));
  }
}

class TraceFile : public testing::TestWithParam<bool> {};

TEST_P(TraceFile, ComesBackAsItWasWritten) {
  const TempFolder folder;
  const std::string path = folder.path("a.swt");
  std::mt19937 random(3);
  auto writer = TraceWriter::create(path, make_header(GetParam()));
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  std::vector<Sample> samples;
  for (int i = 0; i < 40; ++i) {
    Sample sample = make_step(random, GetParam());
    if (i % 3 == 1) {
      const auto topic = writer->topic(i % 2 == 0 ? "german" : "caf\u00E9");
      ASSERT_TRUE(topic.ok());
      sample.sequences[0].topic = *topic;
    }
    ASSERT_TRUE(writer->append(view_of(sample)).ok());
    samples.push_back(std::move(sample));
  }
  EXPECT_FALSE(std::filesystem::exists(path)) << "a name before the end";
  ASSERT_TRUE(writer->finish().ok());
  const auto trace = TraceReader::open(path);
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_EQ(trace->header().model, make_header(true).model);
  EXPECT_EQ(trace->header().producer, "test 1");
  EXPECT_EQ(trace->header().num_layers, kLayers);
  EXPECT_EQ(trace->header().num_experts, kExperts);
  EXPECT_EQ(trace->header().top_k, kTopK);
  EXPECT_EQ(trace->header().has_picks, GetParam());
  EXPECT_EQ(trace->topics(), (std::vector<std::string>{"caf\u00E9", "german"}));
  ASSERT_EQ(trace->num_steps(), 40);
  int64_t tokens = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    expect_same(trace->step(static_cast<int64_t>(i)), samples[i]);
    tokens += samples[i].data.num_tokens;
  }
  EXPECT_EQ(trace->num_tokens(), tokens);
}

INSTANTIATE_TEST_SUITE_P(Trace, TraceFile, testing::Bool(), [](const auto& param) {
  return param.param ? std::string("WithPicks") : std::string("CountsAlone");
});

TEST(Trace, WithoutAFinishNothingIsLeftBehind) {
  const TempFolder folder;
  {
    auto writer = TraceWriter::create(folder.path("a.swt"), make_header(false));
    ASSERT_TRUE(writer.ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Trace, WriterRefusesSizesAndTopicsThatTheFormatLacks) {
  const TempFolder folder;
  TraceHeader header = make_header(false);
  header.num_experts = kMaxTraceExperts + 1;
  EXPECT_TRUE(fails_with(TraceWriter::create(folder.path("a"), header), Code::bad_request,
                         "experts is 65536, expected 1 to 65535"));
  header = make_header(false);
  header.top_k = kExperts + 1;
  EXPECT_TRUE(fails_with(TraceWriter::create(folder.path("a"), header), Code::bad_request,
                         "picks a token is 6, expected 1 to 5"));
  EXPECT_TRUE(fails_with(TraceWriter::create(folder.path("no/such/folder"), make_header(false)),
                         Code::bad_request, "cannot create"));
  auto writer = TraceWriter::create(folder.path("a"), make_header(false));
  ASSERT_TRUE(writer.ok());
  EXPECT_TRUE(fails_with(writer->topic(""), Code::bad_request, "found 0 bytes"));
  EXPECT_TRUE(fails_with(writer->topic("\xFF"), Code::bad_request, "UTF-8"));
}

// --- Malformed files ------------------------------------------------------------------------------------------------

template <class T>
void put(std::string& text, T value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

uint32_t crc_of(std::string_view text) { return crc32c(std::as_bytes(std::span(text))); }

std::string head(std::string header) {
  header.resize(trace_padded(header.size()), ' ');
  std::string text(reinterpret_cast<const char*>(kTraceMagic.data()), kTraceMagic.size());
  put(text, kTraceVersion);
  put(text, crc_of(header));
  put(text, uint64_t{header.size()});
  return text + header;
}

std::string head_with(const std::string& sizes, const std::string& picks = "true") {
  return head(R"({"format":"switchyard-routing-trace","model":"m","producer":"p",)" + sizes +
              R"(,"picks":)" + picks + "}");
}

std::string head_of(int layers, int experts, int top_k) {
  return head_with(
      fmt::format(R"("num_moe_layers":{},"num_experts":{},"top_k":{})", layers, experts, top_k));
}

std::string block(std::string_view kind, const std::string& payload) {
  std::string text(kind);
  put(text, crc_of(payload));
  put(text, uint64_t{payload.size()});
  text += payload;
  text.resize(trace_padded(text.size()), '\0');
  return text;
}

std::string end_block(uint64_t steps, uint64_t tokens) {
  std::string payload;
  put(payload, steps);
  put(payload, tokens);
  return block("END ", payload);
}

/// A step of one layer, three experts and one pick a token, which goes to `expert`.
struct Step {
  uint64_t tokens = 1;
  uint32_t sequences = 1, stage = 0, sequence_tokens = 1, demand = 1, dropped = 0;
  int32_t topic = -1;
  uint16_t expert = 2;
  std::string text() const {
    std::string payload;
    put(payload, tokens);
    put(payload, sequences);
    put(payload, stage);
    put(payload, uint64_t{5});
    put(payload, uint32_t{0});
    put(payload, sequence_tokens);
    put(payload, topic);
    put(payload, uint32_t{0});
    for (const uint32_t count : {0U, 0U, demand, dropped}) put(payload, count);
    put(payload, 1.0f);
    put(payload, expert);
    return block("STEP", payload);
  }
};

const std::string kHead = head_of(1, 3, 1);

std::string file_with(const Step& step) { return kHead + step.text() + end_block(1, 1); }

std::string changed(std::string text, size_t at, char value) {
  text[at] = value;
  return text;
}

struct Malformed {
  const char* name;
  const char* says;
  std::string file;
  Code code = Code::bad_file;
};

std::vector<Malformed> malformed() {
  const std::string good = file_with({});
  const size_t step_at = kHead.size(), end_at = good.size() - 32;
  return {
      {"empty", "offset 0: expected the magic of a routing trace, found an empty file", ""},
      {"foreign", "offset 0: expected the magic", "GGUF" + std::string(100, '\0')},
      {"line_endings_changed", "offset 0: expected the magic", "\x89SWT\n\x1a\n" + good.substr(8)},
      {"magic_alone", "8 bytes are too few", good.substr(0, 8)},
      {"later_version", "offset 8: expected version 1, found 2: read it with a newer program",
       changed(good, 8, 2), Code::unsupported},
      {"version_zero", "offset 8: expected version 1, found 0", changed(good, 8, 0)},
      {"header_length_zero", "offset 16: expected a header length in [8, 1048576]",
       kHead.substr(0, 16) + std::string(8, '\0')},
      {"header_length_all_ones", "found 18446744073709551615",
       kHead.substr(0, 16) + std::string(8, '\xFF')},
      {"header_truncated", "the file is truncated", kHead.substr(0, kHead.size() - 1)},
      {"header_damaged", "offset 12: expected checksum", changed(good, 40, '!')},
      {"header_is_no_json", "header at offset 24: not valid JSON", head("{")},
      {"header_of_another_format", "expected 'format' to be \"switchyard-routing-trace\"",
       head(R"({"format":"other"})")},
      {"no_experts", "expected 'num_experts' to be an integer in [1, 65535], found 0",
       head_of(1, 0, 1)},
      {"too_many_experts", "found 65536", head_of(1, 65536, 1)},
      {"too_many_layers", "'num_moe_layers' to be an integer in [1, 65536], found 65537",
       head_of(65537, 3, 1)},
      {"more_picks_than_experts", "expected 'top_k' to be an integer in [1, 3], found 4",
       head_of(1, 3, 4)},
      {"experts_is_a_real", "found 3.5",
       head_with(R"("num_moe_layers":1,"num_experts":3.5,"top_k":1)")},
      {"picks_is_a_number", "expected 'picks' to be true or false, found 1",
       head_with(R"("num_moe_layers":1,"num_experts":3,"top_k":1)", "1")},
      {"nothing_after_the_header", "found 0 bytes: the file is truncated", kHead},
      {"unknown_block", "expected a block TOPC, STEP or END, found 'XX\\x01\\xff'",
       kHead + block("XX\x01\xFF", "")},
      {"block_length_all_ones", "'STEP' block of 18446744073709551615 bytes, but only",
       kHead + "STEP" + std::string(4, '\0') + std::string(8, '\xFF')},
      {"step_truncated", "the file is truncated", good.substr(0, end_at - 8)},
      {"end_missing", "expected a block or the end block, found 0 bytes", good.substr(0, end_at)},
      {"step_damaged", "expected checksum", changed(good, step_at + 20, 1)},
      {"padding_is_not_zero", "expected zeros up to the next block, found byte 0x01",
       changed(good, end_at - 1, 1)},
      {"step_without_head", "expected at least 16 bytes of a step, found 4",
       kHead + block("STEP", "abcd") + end_block(1, 1)},
      {"no_tokens", "expected a step of 1 to 2147483647 tokens, found 0", file_with({.tokens = 0})},
      {"too_many_tokens", "tokens, found 18446744073709551615", file_with({.tokens = ~0ULL})},
      {"tokens_beyond_the_block", "a step of 2 tokens and 1 sequences takes 68 bytes, found 62",
       file_with({.tokens = 2})},
      {"sequences_beyond_the_block", "and 4294967295 sequences takes",
       file_with({.sequences = ~0U})},
      {"unknown_stage", "expected a stage below 3, found 3", file_with({.stage = 3})},
      {"sequence_tokens", "expected sequences of 1 tokens together, found 9",
       file_with({.sequence_tokens = 9})},
      {"unknown_topic", "expected a topic in [-1, 0), found 0", file_with({.topic = 0})},
      {"negative_topic", "found -2", file_with({.topic = -2})},
      {"demand_above_tokens", "MoE layer 0: expected at most 1 picks, found 2",
       file_with({.demand = 2})},
      {"dropped_above_demand", "of which 2 dropped", file_with({.dropped = 2})},
      {"unknown_expert", "MoE layer 0: expected experts below 3, found 3",
       file_with({.expert = 3})},
      {"empty_topic", "expected a topic of 1 to 4096 bytes, found 0",
       kHead + block("TOPC", "") + end_block(0, 0)},
      {"long_topic", "found 4097", kHead + block("TOPC", std::string(4097, 'a')) + end_block(0, 0)},
      {"topic_is_no_utf8", "expected a topic in UTF-8",
       kHead + block("TOPC", "\xC0\x80") + end_block(0, 0)},
      {"end_too_short", "expected 16 bytes of the end block, found 8",
       kHead + block("END ", std::string(8, '\0'))},
      {"steps_missing", "expected 2 steps of 1 tokens, found 1 of 1: blocks are missing",
       kHead + Step().text() + end_block(2, 1)},
      {"bytes_after_the_end", "expected the end of the file, found 8 more bytes",
       good + std::string(8, '\0')},
  };
}

/// Parses at an aligned place.
Result<TraceView> parse(const std::string& file, std::vector<uint64_t>& room) {
  room.resize(file.size() / 8 + 1);
  std::memcpy(room.data(), file.data(), file.size());
  return TraceView::parse(std::as_bytes(std::span(room)).first(file.size()), "x.swt");
}

TEST(Trace, HandMadeFileIsRead) {
  std::vector<uint64_t> room;
  const auto trace = parse(file_with({}), room);
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  ASSERT_EQ(trace->num_steps(), 1);
  EXPECT_EQ(trace->step(0).picks(0)[0], 2);
  EXPECT_EQ(trace->step(0).weights(0)[0], 1.0f);
}

TEST(Trace, EveryMalformedClassIsRefused) {
  for (const Malformed& c : malformed()) {
    std::vector<uint64_t> room;
    const auto trace = parse(c.file, room);
    ASSERT_FALSE(trace.ok()) << c.name;
    EXPECT_EQ(trace.error().code, c.code) << c.name;
    EXPECT_TRUE(has(trace.error().message, c.says)) << c.name;
    EXPECT_TRUE(trace.error().message.starts_with("x.swt: ")) << c.name;
  }
}

TEST(Trace, EveryTruncationAndEveryFlippedBitIsRefused) {
  const std::string good =
      kHead + block("TOPC", "german") + Step().text() + Step().text() + end_block(2, 2);
  std::vector<uint64_t> room;
  ASSERT_TRUE(parse(good, room).ok());
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(parse(good.substr(0, size), room).ok()) << size << " bytes";
  for (size_t at = 0; at < good.size(); ++at)
    for (int bit = 0; bit < 8; ++bit)
      EXPECT_FALSE(parse(changed(good, at, static_cast<char>(good[at] ^ (1 << bit))), room).ok())
          << "byte " << at << " bit " << bit;
}

}  // namespace
}  // namespace switchyard::moe
