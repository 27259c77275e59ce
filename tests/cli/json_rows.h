// SPDX-License-Identifier: Apache-2.0
// What a command printed by -o jsonl, one object a line.
#pragma once
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/program.h"

namespace switchyard {

/// Fails the test when the command failed or a line is no JSON.
inline std::vector<Json> rows_of(const Outcome& outcome) {
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  std::vector<Json> rows;
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) {
    auto row = parse_json(line, "row");
    EXPECT_TRUE(row.ok()) << line;
    if (row.ok()) rows.push_back(*std::move(row));
  }
  return rows;
}

inline double number(const Json& row, const char* key) { return row.find(key)->as_double(); }

}  // namespace switchyard
