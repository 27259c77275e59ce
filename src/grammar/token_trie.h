// SPDX-License-Identifier: Apache-2.0
// TokenTrie: the bytes of all tokens of a vocabulary as one tree in preorder, so that a walk looks at a shared beginning
// once and steps over what cannot go on in O(1).
//
//   V tokens, N nodes (about 2.3 V): 12 bytes a node. Tokens without bytes (special ones) are nowhere in it.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace switchyard::grammar {

class TokenTrie {
 public:
  /// bytes[id] of each token; `ends` are the tokens that end a sequence.
  TokenTrie(std::vector<std::string> bytes, std::vector<int32_t> ends);

  int32_t num_tokens() const noexcept { return static_cast<int32_t>(bytes_.size()); }
  std::string_view bytes(int32_t token) const { return bytes_[static_cast<size_t>(token)]; }
  std::span<const int32_t> ends() const noexcept { return ends_; }
  bool is_end(int32_t token) const noexcept;
  int longest() const noexcept { return longest_; }

  /// Node 0 is the empty text; the nodes below `node` are those up to skip(node).
  int32_t size() const noexcept { return static_cast<int32_t>(nodes_.size()); }
  uint8_t byte(int32_t node) const { return nodes_[static_cast<size_t>(node)].byte; }
  int32_t skip(int32_t node) const { return nodes_[static_cast<size_t>(node)].skip; }
  /// The tokens that are the text of this node.
  std::span<const int32_t> tokens(int32_t node) const;

 private:
  struct Node {
    int32_t skip = 0;
    int32_t first_token = 0;  // in sorted_; those of the node end where the next node's begin
    uint8_t byte = 0;
  };

  std::vector<std::string> bytes_;  // [V]
  std::vector<int32_t> ends_;
  std::vector<int32_t> sorted_;  // tokens with bytes, by these
  std::vector<Node> nodes_;
  int longest_ = 0;
};

}  // namespace switchyard::grammar
