// SPDX-License-Identifier: Apache-2.0
// Routing on a device: from the gate's logits to picks and to the order of rows, with nothing read back by the host,
// so that a step can be captured as a graph.
//
//   in    logits [T, E] f32, bias [E] f32 or null; or picks that were made elsewhere
//   out   DeviceRouting
// Says what moe/route/token_choice says (that file is the definition): ties go to the lower expert; a token whose
// logits hold a NaN or whose highest is not finite gets experts 0..K-1 with weight 0 and is counted.
// This header stays free of the host's heavy headers: device code includes it.
#pragma once
#include <cstdint>

namespace switchyard {

/// What RouterSpec says, as the plain values that a kernel takes. See ops/route.h for their meaning. A limit of devices
/// with equal runs of experts is one of groups by their best.
struct RouteRule {
  enum class Score : uint8_t { softmax, sigmoid, sqrt_softplus };
  enum class Weigh : uint8_t { raw, renormalize, softmax_after_top_k };
  enum class GroupScore : uint8_t { max, sum_top_2 };
  int experts = 0, top_k = 0;
  Score score = Score::softmax;
  Weigh weigh = Weigh::raw;
  GroupScore group_score = GroupScore::max;
  int num_groups = 1, top_groups = 1;
  float epsilon = 0;     ///< added to the norm that renormalizes
  float scale = 1;       ///< of every weight
  float minimum = 0;     ///< least divisor of renormalize
  float norm_order = 1;  ///< p of the norm
};

/// Who got which token, and in which order rows lie. All arrays are on the device.
struct DeviceRouting {
  int32_t* expert = nullptr;     ///< [T, K] by falling score; -1: no place
  float* weight = nullptr;       ///< [T, K]
  int32_t* pick_row = nullptr;   ///< [T, K] row of each pick, or -1
  int32_t* row_token = nullptr;  ///< [T K] token of each row; rows are sorted by expert, then token
  int32_t* slot_offset =
      nullptr;                  ///< [E + 1] expert e owns rows [slot_offset[e], slot_offset[e + 1])
  int32_t* hit = nullptr;       ///< [E] experts that own rows, ascending; only *num_hit are written
  int32_t* num_hit = nullptr;   ///< [1]
  int32_t* unusable = nullptr;  ///< [1] tokens that could not be scored: added to, never reset
};

struct MoeRoute {
  static constexpr int kMaxExperts = 512, kMaxTopK = 32;
  static constexpr int kMaxBlocks = 128;  ///< that share the tokens

  struct Problem {
    RouteRule rule;
    int64_t max_tokens = 0;
  };
  struct Args {
    /// [T, E]; null: routing.expert and routing.weight hold the picks (-1: none), and only rows are given out.
    const float* logits = nullptr;
    const float* bias = nullptr;  ///< [E] steers selection, never the weight; or null
    int64_t tokens = 0;           ///< T; 0 gives an empty routing
    /// [1] tokens that are real, or null: T. Those beyond (a graph's padding) get no picks (-1).
    const int32_t* live_tokens = nullptr;
    DeviceRouting routing;
    void* workspace = nullptr;  ///< workspace_bytes(problem) bytes, any content
  };

  /// Null when this device code can do the rule, else why not, in plain words.
  static const char* refusal(const Problem& problem) noexcept;
  static int64_t workspace_bytes(const Problem& problem) noexcept;
  /// `stream` is a cudaStream_t. Only in builds with CUDA.
  static void run(const Problem& problem, const Args& args, void* stream) noexcept;
};

/// What experts read whose weights scale their input (RouterSpec::weight_on_input).
struct WeighedRows {
  void* rows = nullptr;            ///< [T K, D] bf16: weight * x of the row's pick
  float* ones = nullptr;           ///< [T, K] 1, or 0 where there is no pick
  int32_t* row_numbers = nullptr;  ///< [T K] 0, 1, 2, ...: the row_token of such rows
};
struct TokenRows {
  const void* x = nullptr;  ///< [T, D] bf16, D % 8 == 0
  int64_t tokens = 0;
  int top_k = 0;
  int64_t width = 0;
};
/// One pass over the rows. Only in builds with CUDA.
void weigh_rows_on_device(const TokenRows& from, const DeviceRouting& routing,
                          const WeighedRows& to, void* stream) noexcept;

}  // namespace switchyard
