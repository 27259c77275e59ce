// SPDX-License-Identifier: Apache-2.0
// The cases of gather and combine, run on every entry of the tables.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace switchyard::cases {

struct GatherCase {
  std::string_view name;
  int64_t width, tokens;
  std::vector<int> rows;  ///< of each slot
  bool by_token = true;   ///< rows name their token; else row r is token r
  bool weighed = false;   ///< rows are multiplied on their way
  int empty_every = 0;    ///< every n-th row has no token; 0: none
};

inline std::vector<GatherCase> gather_cases() {
  return {
      {"no rows", 32, 1, {0, 0}},
      {"one value", 1, 1, {1}},
      {"one row", 64, 3, {0, 1, 0}},
      {"below a register", 5, 4, {2, 0, 3}},
      {"one below a step of 32", 31, 5, {7, 3}},
      {"a step of 32", 32, 5, {15, 16, 17}},
      {"one above a step of 32", 33, 9, {31, 32, 33}},
      {"a prime", 101, 40, {1, 0, 63, 0, 0, 65}},
      {"rows in order", 48, 70, {70}, false},
      {"256 slots", 40, 11, std::vector<int>(256, 1)},
      {"first and last slot empty", 24, 6, {0, 5, 0}},
      {"rows without a token", 33, 9, {31, 0, 32, 33}, true, false, 3},
      {"no row has a token", 64, 2, {3, 5}, true, false, 1},
      {"rows over several threads", 1024, 50, {3, 77, 0, 40}},
      {"weighed", 101, 40, {1, 0, 63, 0, 0, 65}, true, true},
      {"weighed, below a register", 5, 4, {2, 0, 3}, true, true},
  };
}

struct CombineCase {
  std::string_view name;
  int64_t width, tokens;
  int top_k;
  int drop_every = 0;  ///< every n-th pick was dropped; 0: none
  bool shared = false, shared_weight = false;
  float scale = 1;
};

inline std::vector<CombineCase> combine_cases() {
  return {
      {"no tokens", 64, 0, 2},
      {"one value", 1, 1, 1},
      {"below a register", 7, 3, 2},
      {"one above four registers of 8", 33, 3, 2, 0, true},
      {"one above four registers of 16", 65, 3, 4, 0, true, true},
      {"a prime", 211, 5, 8, 3, true, true, 2.5f},
      {"one pick", 48, 6, 1, 0, false, false, 0.5f},
      {"all dropped", 40, 4, 3, 1},
      {"all dropped but the shared", 40, 4, 3, 1, true, false, 16},
      {"some dropped", 128, 9, 6, 4},
      {"a model's width, one token", 2048, 1, 8},
      {"tokens over several threads", 1024, 61, 4, 5, true, true, 0.75f},
  };
}

}  // namespace switchyard::cases
