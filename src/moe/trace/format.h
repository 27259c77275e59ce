// SPDX-License-Identifier: Apache-2.0
// The routing trace: where the tokens of real steps were sent, in a file (".swt"). Written by
// writer.h, read by reader.h.
//
// All numbers are little-endian; every part starts at a multiple of 8 bytes and is padded with
// zeros to one. L MoE layers, E experts, K picks a token, T tokens and B sequences of a step.
//
//   offset 0    8 bytes   magic 89 53 57 54 0D 0A 1A 0A: a high bit and both line endings, so that
//                         a transfer as text is seen at once
//          8    u32       version, 1
//         12    u32       CRC-32C of the header's bytes
//         16    u64       length of the header, a multiple of 8
//         24    bytes     the header: one JSON object, then spaces
//                           format            "switchyard-routing-trace"
//                           model             a name for people, such as the model's folder
//                           producer          the program that wrote it
//                           num_moe_layers, num_experts, top_k     L, E, K
//                           picks             true: full picks follow the counts
//                         unknown members are ignored
//   then blocks, each   u32 kind, u32 CRC-32C of the payload, u64 length of the payload, payload:
//
//     "TOPC"    a topic's label, UTF-8 without padding in the length. Topics are numbered from 0 in
//               the order of their blocks; a step names only topics that came before it
//     "STEP"    u64 T, u32 B, u32 stage (0 prefill, 1 decode, 2 mixed)
//               [B] sequences of u64 request, u32 first position, u32 tokens, i32 topic (-1: none),
//                   u32 0; their tokens sum to T
//               [L, E] u32 demand: picks of each expert, before any drop
//               [L]    u32 dropped: picks that found no place
//               and if the header says picks:
//               [L, T, K] f32 weights
//               [L, T, K] u16 experts, 65535 where dropped
//     "END "    u64 number of steps, u64 sum of T. Nothing follows; a file without it is truncated
//
// A reader believes no length before it has compared it with the bytes that are there.
#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

namespace switchyard::moe {

static_assert(std::endian::native == std::endian::little, "traces are mapped as they lie");

inline constexpr std::array<uint8_t, 8> kTraceMagic{0x89, 'S', 'W', 'T', '\r', '\n', 0x1A, '\n'};
inline constexpr uint32_t kTraceVersion = 1;
inline constexpr uint64_t kMaxTraceHeaderBytes = 1 << 20;
inline constexpr uint64_t kMaxTopicBytes = 4096;
inline constexpr int kMaxTraceLayers = 1 << 16, kMaxTraceExperts = 65535;
inline constexpr uint16_t kDroppedPick = 65535;

/// Four characters as they lie in the file.
constexpr uint32_t block_kind(const char (&text)[5]) {
  uint32_t kind = 0;
  for (int i = 3; i >= 0; --i) kind = kind << 8 | static_cast<unsigned char>(text[i]);
  return kind;
}
inline constexpr uint32_t kTopicBlock = block_kind("TOPC"), kStepBlock = block_kind("STEP"),
                          kEndBlock = block_kind("END ");

/// What a step was made of.
enum class TraceStage : uint32_t { prefill, decode, mixed };
inline constexpr int kNumTraceStages = 3;
constexpr const char* trace_stage_name(TraceStage stage) {
  constexpr const char* kNames[] = {"prefill", "decode", "mixed"};
  return kNames[static_cast<uint32_t>(stage)];
}

struct TraceHeader {
  std::string model, producer;
  int num_layers = 0;   ///< L: MoE layers alone
  int num_experts = 0;  ///< E
  int top_k = 0;        ///< K
  bool has_picks = false;
};

/// The part of a step that belongs to one sequence; as it lies in the file.
struct TraceSequence {
  uint64_t request = 0;         ///< the same in all steps of a request
  uint32_t first_position = 0;  ///< of its tokens in the sequence
  uint32_t tokens = 0;
  int32_t topic = -1;  ///< into the trace's topics
  uint32_t zero = 0;
};
static_assert(sizeof(TraceSequence) == 24);

constexpr uint64_t trace_padded(uint64_t bytes) { return (bytes + 7) / 8 * 8; }

}  // namespace switchyard::moe
