// SPDX-License-Identifier: Apache-2.0
#include "moe/trace/writer.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/json.h"
#include "base/utf8.h"

namespace switchyard::moe {
namespace {

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

std::string header_text(const TraceHeader& header) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("format", "switchyard-routing-trace");
  json.field("model", header.model).field("producer", header.producer);
  json.field("num_moe_layers", header.num_layers).field("num_experts", header.num_experts);
  json.field("top_k", header.top_k).field("picks", header.has_picks).end_object();
  text.resize(trace_padded(text.size()), ' ');
  return text;
}

Status check_size(const char* what, int value, int most) {
  if (value >= 1 && value <= most) return {};
  return fail(Code::bad_request, "routing trace: {} is {}, expected 1 to {}", what, value, most);
}

}  // namespace

Result<TraceWriter> TraceWriter::create(const std::string& path, const TraceHeader& header) {
  SWITCHYARD_TRY(check_size("the number of MoE layers", header.num_layers, kMaxTraceLayers));
  SWITCHYARD_TRY(check_size("the number of experts", header.num_experts, kMaxTraceExperts));
  SWITCHYARD_TRY(check_size("the number of picks a token", header.top_k, header.num_experts));
  const std::string text = header_text(header);
  if (text.size() > kMaxTraceHeaderBytes)
    return fail(Code::bad_request, "routing trace: a header of {} bytes, at most {} are read",
                text.size(), kMaxTraceHeaderBytes);
  TraceWriter writer;
  writer.header_ = header;
  SWITCHYARD_ASSIGN(writer.file_, FileWriter::create(path));
  const auto body = std::as_bytes(std::span(text));
  const uint32_t crc = crc32c(body);
  SWITCHYARD_TRY(writer.file_.append(bytes_of(kTraceMagic)));
  SWITCHYARD_TRY(writer.file_.append(bytes_of(kTraceVersion)));
  SWITCHYARD_TRY(writer.file_.append(bytes_of(crc)));
  SWITCHYARD_TRY(writer.file_.append(bytes_of(uint64_t{text.size()})));
  SWITCHYARD_TRY(writer.file_.append(body));
  return writer;
}

Status TraceWriter::write_block(uint32_t kind, std::span<const std::span<const std::byte>> parts) {
  uint32_t crc = 0;
  uint64_t length = 0;
  for (const auto part : parts) {
    crc = crc32c(part, crc);
    length += part.size();
  }
  constexpr std::array<std::byte, 8> kZeros{};
  SWITCHYARD_TRY(file_.append(bytes_of(kind)));
  SWITCHYARD_TRY(file_.append(bytes_of(crc)));
  SWITCHYARD_TRY(file_.append(bytes_of(length)));
  for (const auto part : parts) SWITCHYARD_TRY(file_.append(part));
  return file_.append(std::span(kZeros).first(trace_padded(length) - length));
}

Result<int32_t> TraceWriter::topic(std::string_view label) {
  const auto found = std::find(topics_.begin(), topics_.end(), label);
  if (found != topics_.end()) return static_cast<int32_t>(found - topics_.begin());
  if (label.empty() || label.size() > kMaxTopicBytes || !is_utf8(label))
    return fail(Code::bad_request,
                "routing trace: a topic must be UTF-8 text of 1 to {} bytes, found {} bytes",
                kMaxTopicBytes, label.size());
  const std::array parts{std::as_bytes(std::span(label))};
  SWITCHYARD_TRY(write_block(kTopicBlock, parts));
  topics_.emplace_back(label);
  return static_cast<int32_t>(topics_.size() - 1);
}

Status TraceWriter::append(const TraceStepData& step) {
  const auto layers = static_cast<size_t>(header_.num_layers);
  const size_t picks = header_.has_picks ? layers * static_cast<size_t>(step.num_tokens) *
                                               static_cast<size_t>(header_.top_k)
                                         : 0;
  SWITCHYARD_CHECK(step.demand.size() == layers * static_cast<size_t>(header_.num_experts));
  SWITCHYARD_CHECK(step.dropped.size() == layers, "{} layers", step.dropped.size());
  SWITCHYARD_CHECK(step.picks.size() == picks && step.weights.size() == picks,
                   "{} picks and {} weights, expected {}", step.picks.size(), step.weights.size(),
                   picks);
  const auto sequences = static_cast<uint32_t>(step.sequences.size());
  const std::array parts{bytes_of(step.num_tokens),   bytes_of(sequences),
                         bytes_of(step.stage),        std::as_bytes(step.sequences),
                         std::as_bytes(step.demand),  std::as_bytes(step.dropped),
                         std::as_bytes(step.weights), std::as_bytes(step.picks)};
  SWITCHYARD_TRY(write_block(kStepBlock, parts));
  ++num_steps_;
  num_tokens_ += step.num_tokens;
  return {};
}

Status TraceWriter::finish() {
  const std::array parts{bytes_of(num_steps_), bytes_of(num_tokens_)};
  SWITCHYARD_TRY(write_block(kEndBlock, parts));
  return file_.commit();
}

}  // namespace switchyard::moe
