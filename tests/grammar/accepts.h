// SPDX-License-Identifier: Apache-2.0
// Whether a grammar accepts a whole text, byte by byte.
#pragma once
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "grammar/grammar.h"
#include "grammar/positions.h"

namespace switchyard::grammar {

inline bool accepts(const Grammar& grammar, std::string_view text) {
  Positions positions(grammar.network());
  int32_t at = positions.start();
  for (const char byte : text) at = positions.step(at, static_cast<uint8_t>(byte));
  return positions.ends(at);
}

/// The grammar of a schema that must compile.
inline Grammar compiled(std::string_view schema) {
  auto grammar = Grammar::compile_text(schema);
  EXPECT_TRUE(grammar.ok()) << schema << "\n" << (grammar.ok() ? "" : grammar.error().message);
  return *std::move(grammar);
}

/// The message of a schema that must not.
inline std::string refusal(std::string_view schema) {
  const auto grammar = Grammar::compile_text(schema);
  EXPECT_FALSE(grammar.ok()) << schema;
  return grammar.ok() ? "" : grammar.error().message;
}

}  // namespace switchyard::grammar
