// SPDX-License-Identifier: Apache-2.0
// One pass over the file: the header, then block after block. Every length is compared with what is
// left of the file before anything of that size is read or kept.
#include "moe/trace/reader.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/json.h"
#include "base/utf8.h"

namespace switchyard::moe {
namespace {

constexpr uint64_t kHeaderAt = 24, kBlockHeadBytes = 16, kStepHeadBytes = 16, kEndBytes = 16;
constexpr std::string_view kFormatName = "switchyard-routing-trace";

template <class T>
T read(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <class T>
std::span<const T> array(const std::byte* at, int64_t count) {
  return {reinterpret_cast<const T*>(at), static_cast<size_t>(count)};
}

std::string kind_text(uint32_t kind) {
  std::string text;
  for (int i = 0; i < 4; ++i) {
    const auto octet = static_cast<unsigned char>(kind >> (8 * i));
    const bool plain = octet >= 0x20 && octet < 0x7F;
    text += plain ? std::string(1, static_cast<char>(octet)) : fmt::format("\\x{:02x}", octet);
  }
  return text;
}

/// The bytes of a step's payload, or nothing when they do not fit into 64 bits.
std::optional<uint64_t> step_bytes(const TraceHeader& header, uint64_t tokens, uint32_t sequences) {
  const auto layers = static_cast<uint64_t>(header.num_layers);
  uint64_t bytes = kStepHeadBytes + uint64_t{sequences} * sizeof(TraceSequence) +
                   layers * (static_cast<uint64_t>(header.num_experts) + 1) * sizeof(uint32_t);
  uint64_t picks = 0;
  if (!header.has_picks) return bytes;
  if (__builtin_mul_overflow(layers * static_cast<uint64_t>(header.top_k), tokens, &picks) ||
      __builtin_mul_overflow(picks, sizeof(float) + sizeof(uint16_t), &picks) ||
      __builtin_add_overflow(bytes, picks, &bytes))
    return std::nullopt;
  return bytes;
}

/// An integer member of the header within [1, most].
Result<int> read_size(const Json& json, const char* key, int most, std::string_view where) {
  const Json* member = json.find(key);
  if (member == nullptr || !member->is_integer() || member->as_int() < 1 || member->as_int() > most)
    return fail(Code::bad_file, "{}: expected '{}' to be an integer in [1, {}], found {}", where,
                key, most, member == nullptr ? "none" : json_text(*member));
  return static_cast<int>(member->as_int());
}

Result<std::string> read_text(const Json& json, const char* key, std::string_view where) {
  const Json* member = json.find(key);
  if (member == nullptr || !member->is_string())
    return fail(Code::bad_file, "{}: expected '{}' to be a string, found {}", where, key,
                member == nullptr ? "none" : json_text(*member));
  return member->as_string();
}

Result<TraceHeader> read_header(std::string_view text, std::string_view where) {
  SWITCHYARD_ASSIGN(const Json json, parse_json(text, where));
  SWITCHYARD_ASSIGN(const std::string format, read_text(json, "format", where));
  if (format != kFormatName)
    return fail(Code::bad_file, "{}: expected 'format' to be \"{}\", found {}", where, kFormatName,
                json_text(Json(format)));
  TraceHeader header;
  SWITCHYARD_ASSIGN(header.model, read_text(json, "model", where));
  SWITCHYARD_ASSIGN(header.producer, read_text(json, "producer", where));
  SWITCHYARD_ASSIGN(header.num_layers, read_size(json, "num_moe_layers", kMaxTraceLayers, where));
  SWITCHYARD_ASSIGN(header.num_experts, read_size(json, "num_experts", kMaxTraceExperts, where));
  SWITCHYARD_ASSIGN(header.top_k, read_size(json, "top_k", header.num_experts, where));
  const Json* picks = json.find("picks");
  if (picks == nullptr || !picks->is_bool())
    return fail(Code::bad_file, "{}: expected 'picks' to be true or false, found {}", where,
                picks == nullptr ? "none" : json_text(*picks));
  header.has_picks = picks->as_bool();
  return header;
}

}  // namespace

int64_t TraceStep::num_tokens() const noexcept { return read<int64_t>(payload_); }
TraceStage TraceStep::stage() const noexcept { return read<TraceStage>(payload_ + 12); }

std::span<const TraceSequence> TraceStep::sequences() const noexcept {
  return array<TraceSequence>(payload_ + kStepHeadBytes, read<uint32_t>(payload_ + 8));
}

const std::byte* TraceStep::demand_at() const noexcept {
  return payload_ + kStepHeadBytes + sequences().size_bytes();
}

const std::byte* TraceStep::weights_at() const noexcept {
  return demand_at() + int64_t{header_->num_layers} * (header_->num_experts + 1) * 4;
}

std::span<const uint32_t> TraceStep::demand(int layer) const noexcept {
  return array<uint32_t>(demand_at() + int64_t{layer} * header_->num_experts * 4,
                         header_->num_experts);
}

uint32_t TraceStep::dropped(int layer) const noexcept {
  const int64_t index = int64_t{header_->num_layers} * header_->num_experts + layer;
  return read<uint32_t>(demand_at() + index * 4);
}

std::span<const float> TraceStep::weights(int layer) const noexcept {
  if (!header_->has_picks) return {};
  return array<float>(weights_at() + layer * layer_picks() * 4, layer_picks());
}

std::span<const uint16_t> TraceStep::picks(int layer) const noexcept {
  if (!header_->has_picks) return {};
  const std::byte* first = weights_at() + header_->num_layers * layer_picks() * 4;
  return array<uint16_t>(first + layer * layer_picks() * 2, layer_picks());
}

/// Walks the file and fills a view.
class TraceParser {
 public:
  TraceParser(std::span<const std::byte> file, std::string_view name) : name_(name) {
    view_.file_ = file;
  }

  Result<TraceView> parse() {
    SWITCHYARD_TRY(read_head());
    while (!ended_) SWITCHYARD_TRY(read_block());
    return std::move(view_);
  }

 private:
  struct Block {
    uint32_t kind = 0;
    uint64_t at = 0;  // of the block's head
    std::span<const std::byte> payload;
  };

  uint64_t left() const { return view_.file_.size() - at_; }
  const std::byte* here() const { return view_.file_.data() + at_; }

  template <class... Args>
  Error bad(uint64_t at, FailFormat<std::type_identity_t<Args>...> format, Args&&... args) const {
    Error error = fail<Args...>(Code::bad_file, format, std::forward<Args>(args)...);
    error.message = fmt::format("{}: offset {}: {}", name_, at, error.message);
    return error;
  }

  Status read_head();
  Status read_block();
  Status check_padding(uint64_t at, uint64_t end) const;
  Status read_topic(const Block& block);
  Status read_step(const Block& block);
  Status check_sequences(const Block& block, const TraceStep& step) const;
  Status check_layers(const Block& block, const TraceStep& step) const;
  Status read_end(const Block& block);

  std::string_view name_;
  TraceView view_;
  uint64_t at_ = 0;
  bool ended_ = false;
};

Status TraceParser::read_head() {
  const std::span<const std::byte> file = view_.file_;
  const size_t comparable = std::min(file.size(), kTraceMagic.size());
  if (file.empty() || std::memcmp(file.data(), kTraceMagic.data(), comparable) != 0)
    return bad(0, "expected the magic of a routing trace, found {}: this is no such file",
               file.empty() ? "an empty file" : "other bytes");
  if (file.size() < kHeaderAt)
    return bad(0, "{} bytes are too few for the head of a trace ({}): the file is truncated",
               file.size(), kHeaderAt);
  const auto version = read<uint32_t>(file.data() + 8);
  if (version != kTraceVersion)
    return fail(version > kTraceVersion ? Code::unsupported : Code::bad_file,
                "{}: offset 8: expected version {}, found {}: {}", name_, kTraceVersion, version,
                version > kTraceVersion ? "read it with a newer program" : "the file is damaged");
  const auto length = read<uint64_t>(file.data() + 16);
  if (length == 0 || length > kMaxTraceHeaderBytes || length % 8 != 0)
    return bad(16, "expected a header length in [8, {}] that is a multiple of 8, found {}",
               kMaxTraceHeaderBytes, length);
  if (length > file.size() - kHeaderAt)
    return bad(16, "header of {} bytes, but only {} follow: the file is truncated", length,
               file.size() - kHeaderAt);
  const auto header = file.subspan(kHeaderAt, length);
  const auto expected = read<uint32_t>(file.data() + 12);
  if (crc32c(header) != expected)
    return bad(12, "expected checksum {:#010x} of the header, found {:#010x}: the file is damaged",
               expected, crc32c(header));
  const std::string_view text(reinterpret_cast<const char*>(header.data()), header.size());
  SWITCHYARD_ASSIGN(view_.header_,
                    read_header(text, fmt::format("{}: header at offset {}", name_, kHeaderAt)));
  at_ = kHeaderAt + length;
  return {};
}

Status TraceParser::read_block() {
  if (left() < kBlockHeadBytes)
    return bad(at_, "expected a block or the end block, found {} bytes: the file is truncated",
               left());
  Block block{read<uint32_t>(here()), at_, {}};
  const auto expected = read<uint32_t>(here() + 4);
  const auto length = read<uint64_t>(here() + 8);
  at_ += kBlockHeadBytes;
  if (block.kind != kTopicBlock && block.kind != kStepBlock && block.kind != kEndBlock)
    return bad(block.at, "expected a block TOPC, STEP or END, found '{}': the file is damaged",
               kind_text(block.kind));
  // left() is at most the file's size, so the padded length cannot overflow once this holds.
  if (length > left() || trace_padded(length) > left())
    return bad(block.at, "'{}' block of {} bytes, but only {} follow: the file is truncated",
               kind_text(block.kind), length, left());
  block.payload = {here(), static_cast<size_t>(length)};
  const uint32_t found = crc32c(block.payload);
  if (found != expected)
    return bad(block.at,
               "expected checksum {:#010x} of the '{}' block, found {:#010x}: the file is damaged",
               expected, kind_text(block.kind), found);
  SWITCHYARD_TRY(check_padding(at_ + length, at_ + trace_padded(length)));
  at_ += trace_padded(length);
  if (block.kind == kTopicBlock) return read_topic(block);
  return block.kind == kStepBlock ? read_step(block) : read_end(block);
}

Status TraceParser::check_padding(uint64_t at, uint64_t end) const {
  for (; at < end; ++at)
    if (view_.file_[at] != std::byte{0})
      return bad(at, "expected zeros up to the next block, found byte {:#04x}",
                 std::to_integer<int>(view_.file_[at]));
  return {};
}

Status TraceParser::read_topic(const Block& block) {
  const std::string_view text(reinterpret_cast<const char*>(block.payload.data()),
                              block.payload.size());
  if (text.empty() || text.size() > kMaxTopicBytes)
    return bad(block.at, "expected a topic of 1 to {} bytes, found {}", kMaxTopicBytes,
               text.size());
  if (!is_utf8(text)) return bad(block.at, "expected a topic in UTF-8, found other bytes");
  view_.topics_.emplace_back(text);
  return {};
}

Status TraceParser::read_step(const Block& block) {
  if (block.payload.size() < kStepHeadBytes)
    return bad(block.at, "expected at least {} bytes of a step, found {}", kStepHeadBytes,
               block.payload.size());
  const auto tokens = read<uint64_t>(block.payload.data());
  const auto sequences = read<uint32_t>(block.payload.data() + 8);
  const auto stage = read<uint32_t>(block.payload.data() + 12);
  if (tokens == 0 || tokens > INT32_MAX)
    return bad(block.at, "expected a step of 1 to {} tokens, found {}", INT32_MAX, tokens);
  if (stage >= kNumTraceStages)
    return bad(block.at, "expected a stage below {}, found {}", kNumTraceStages, stage);
  const auto bytes = step_bytes(view_.header_, tokens, sequences);
  if (bytes != block.payload.size())
    return bad(block.at, "a step of {} tokens and {} sequences takes {} bytes, found {}", tokens,
               sequences, bytes ? std::to_string(*bytes) : "too many", block.payload.size());
  const TraceStep step(view_.header_, block.payload.data());
  SWITCHYARD_TRY(check_sequences(block, step));
  SWITCHYARD_TRY(check_layers(block, step));
  view_.step_at_.push_back(block.at + kBlockHeadBytes);
  view_.num_tokens_ += static_cast<int64_t>(tokens);
  return {};
}

Status TraceParser::check_sequences(const Block& block, const TraceStep& step) const {
  int64_t tokens = 0;
  const auto known = static_cast<int64_t>(view_.topics_.size());
  for (const TraceSequence& sequence : step.sequences()) {
    tokens += sequence.tokens;
    if (sequence.topic < -1 || sequence.topic >= known)
      return bad(block.at, "expected a topic in [-1, {}), found {}", known, sequence.topic);
  }
  if (tokens != step.num_tokens())
    return bad(block.at, "expected sequences of {} tokens together, found {}", step.num_tokens(),
               tokens);
  return {};
}

Status TraceParser::check_layers(const Block& block, const TraceStep& step) const {
  const TraceHeader& header = view_.header_;
  const auto most = static_cast<uint64_t>(step.num_tokens() * header.top_k);
  for (int layer = 0; layer < header.num_layers; ++layer) {
    uint64_t picks = 0;
    for (const uint32_t count : step.demand(layer)) picks += count;
    if (picks > most || step.dropped(layer) > picks)
      return bad(block.at, "MoE layer {}: expected at most {} picks, found {} of which {} dropped",
                 layer, most, picks, step.dropped(layer));
    for (const uint16_t expert : step.picks(layer))
      if (expert != kDroppedPick && expert >= header.num_experts)
        return bad(block.at, "MoE layer {}: expected experts below {}, found {}", layer,
                   header.num_experts, expert);
  }
  return {};
}

Status TraceParser::read_end(const Block& block) {
  if (block.payload.size() != kEndBytes)
    return bad(block.at, "expected {} bytes of the end block, found {}", kEndBytes,
               block.payload.size());
  const auto steps = read<uint64_t>(block.payload.data());
  const auto tokens = read<uint64_t>(block.payload.data() + 8);
  if (steps != static_cast<uint64_t>(view_.num_steps()) ||
      tokens != static_cast<uint64_t>(view_.num_tokens_))
    return bad(block.at, "expected {} steps of {} tokens, found {} of {}: blocks are missing",
               steps, tokens, view_.num_steps(), view_.num_tokens_);
  if (left() != 0) return bad(at_, "expected the end of the file, found {} more bytes", left());
  ended_ = true;
  return {};
}

Result<TraceView> TraceView::parse(std::span<const std::byte> file, std::string_view name) {
  SWITCHYARD_CHECK(reinterpret_cast<uintptr_t>(file.data()) % 8 == 0, "misaligned trace");
  return TraceParser(file, name).parse();
}

TraceStep TraceView::step(int64_t index) const {
  SWITCHYARD_CHECK(index >= 0 && index < num_steps(), "step {} of {}", index, num_steps());
  return {header_, file_.data() + step_at_[static_cast<size_t>(index)]};
}

Result<TraceReader> TraceReader::open(const std::string& path) {
  TraceReader reader;
  SWITCHYARD_ASSIGN(reader.file_, MappedFile::open(path));
  SWITCHYARD_ASSIGN(reader.view_, TraceView::parse(reader.file_.bytes(), path));
  return reader;
}

}  // namespace switchyard::moe
