// SPDX-License-Identifier: Apache-2.0
// Matcher: one output on its way through a grammar, token by token.
//
//   allowed   the tokens that may come next; tokens that end the sequence exactly where the grammar may end
//   accept    one of these; a token without bytes, or one that does not fit, is refused and changes nothing
//   rollback  takes tokens back
// What has been found out about a grammar is shared by all its matchers in a Constraint. Constraint and matchers belong to one
// thread at a time (the engine's loop); compiling does not.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "grammar/grammar.h"
#include "grammar/masks.h"
#include "grammar/positions.h"
#include "grammar/token_trie.h"

namespace switchyard::grammar {

/// A grammar for one vocabulary, with what is remembered of both.
class Constraint {
 public:
  static constexpr size_t kMaxBytes = size_t{32} << 20;

  Constraint(Grammar grammar, std::shared_ptr<const TokenTrie> tokens,
             size_t max_bytes = kMaxBytes);
  Constraint(const Constraint&) = delete;

  Positions& positions() noexcept { return *positions_; }
  Masks& masks() noexcept { return *masks_; }
  const TokenTrie& tokens() const noexcept { return *tokens_; }

  /// Forgets everything when that has grown too large; numbers of positions are then new.
  void make_room();
  /// How often it did.
  int64_t times() const noexcept { return times_; }

 private:
  Grammar grammar_;
  std::shared_ptr<const TokenTrie> tokens_;
  size_t max_bytes_;
  std::optional<Positions> positions_;
  std::optional<Masks> masks_;
  int64_t times_ = 0;
};

class Matcher {
 public:
  explicit Matcher(std::shared_ptr<Constraint> constraint);

  /// [V / 64, rounded up]; valid until a matcher of the constraint is made or accepts a token.
  std::span<const uint64_t> allowed();
  bool accept(int32_t token);
  /// The text is whole.
  bool can_end();
  /// The text is whole and nothing but an end may follow.
  bool must_end();
  /// Takes back the last n accepted tokens.
  void rollback(int n);

  std::span<const int32_t> tokens() const noexcept { return accepted_; }

 private:
  bool is_over() const;
  /// Finds the positions again after the constraint has forgotten them.
  void refresh();
  int32_t behind(int32_t position, int32_t token);

  std::shared_ptr<Constraint> constraint_;
  std::vector<int32_t> accepted_;   // tokens
  std::vector<int32_t> positions_;  // before the first token, and behind each
  int64_t times_ = 0;
};

}  // namespace switchyard::grammar
