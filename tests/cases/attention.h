// SPDX-License-Identifier: Apache-2.0
// The cases of attention, run on every entry of the table. Each stands for a border that a fast kernel has: registers of
// 8 and 16, runs of 32 and 64 keys, spans of 512, tiles of 64 rows.
#pragma once
#include <string_view>
#include <vector>

namespace switchyard::cases {

/// Of one sequence: positions cached before the step, and tokens in the step.
struct SequenceCase {
  int context, tokens;
};

struct AttentionCase {
  std::string_view name;
  int heads, kv_heads, head_dim, block_tokens;
  std::vector<SequenceCase> sequences;
  int window = 0;
  float score_size = 1;  ///< of typical scores
};

inline std::vector<AttentionCase> attention_cases() {
  return {
      {"no sequences", 2, 1, 16, 16, {}},
      {"sequences without tokens", 2, 1, 16, 16, {{0, 0}, {5, 0}}},
      {"one token", 1, 1, 8, 8, {{0, 1}}},
      {"first tokens of three", 4, 2, 32, 16, {{0, 1}, {0, 1}, {0, 1}}},
      {"decode around a register",
       2,
       2,
       32,
       16,
       {{6, 1}, {7, 1}, {8, 1}, {14, 1}, {15, 1}, {16, 1}}},
      {"decode around a run", 2, 2, 32, 16, {{30, 1}, {31, 1}, {32, 1}, {62, 1}, {63, 1}, {64, 1}}},
      {"decode around a span", 2, 1, 16, 16, {{510, 1}, {511, 1}, {512, 1}, {1023, 1}, {1030, 1}}},
      {"head of 20", 3, 3, 20, 16, {{13, 1}, {0, 29}}},
      {"head of 24", 3, 1, 24, 16, {{50, 2}, {0, 31}}},
      {"head of 80", 2, 1, 80, 16, {{70, 1}, {0, 33}}},
      {"head of 128", 4, 2, 128, 16, {{100, 1}, {0, 37}}},
      {"head of 7", 2, 2, 7, 8, {{9, 1}, {0, 17}}},
      {"three queries share a key", 6, 2, 32, 16, {{67, 1}, {3, 41}}},
      {"eight queries share a key", 8, 1, 64, 16, {{131, 1}, {0, 19}}},
      {"more queries share a key than a tile has rows", 70, 1, 16, 16, {{40, 1}, {2, 3}}},
      {"prefill of a prime", 2, 1, 32, 16, {{0, 67}}},
      {"prefill of several tiles", 1, 1, 16, 16, {{0, 200}}},
      {"prefill across a span", 1, 1, 16, 16, {{500, 40}}},
      {"prefill after several spans", 2, 2, 16, 32, {{1500, 70}}},
      {"blocks of 8", 4, 2, 32, 8, {{61, 1}, {0, 45}, {17, 9}}},
      {"blocks of 24", 4, 2, 32, 24, {{61, 1}, {0, 45}, {90, 9}}},
      {"blocks of 256", 4, 2, 48, 256, {{300, 1}, {250, 12}}},
      {"many rows across a span", 4, 2, 64, 16, {{500, 40}, {0, 100}}},
      {"many rows of three heads in a window", 6, 2, 96, 32, {{0, 130}, {70, 61}}, 50},
      {"window of one", 2, 1, 16, 16, {{0, 20}, {77, 1}}, 1},
      {"window of a prime", 2, 2, 32, 8, {{0, 90}, {100, 1}, {5, 3}}, 23},
      {"window of a run", 3, 1, 64, 16, {{0, 150}, {400, 1}}, 64},
      {"window longer than a span", 1, 1, 16, 16, {{1000, 30}, {600, 1}}, 520},
      {"window longer than the text", 2, 1, 16, 16, {{0, 40}, {70, 1}}, 1000},
      {"prefill, decode and chunks in one step",
       6,
       2,
       48,
       16,
       {{0, 53}, {200, 1}, {0, 0}, {64, 17}, {1, 1}, {530, 2}, {15, 66}}},
      {"one long decode, split over threads", 4, 1, 32, 16, {{3000, 1}}},
      {"two long decodes, split over threads", 8, 1, 24, 16, {{2500, 1}, {1700, 2}}},
      {"scores that overflow without the highest", 2, 1, 32, 16, {{80, 1}, {0, 30}}, 0, 300},
      {"scores that are all alike", 2, 1, 32, 16, {{80, 1}, {0, 30}}, 0, 0},
  };
}

}  // namespace switchyard::cases
