// SPDX-License-Identifier: Apache-2.0
// Implements chat_encode.h.
//
// Cutting a text at segment borders changes how it is tokenized (a line end of the template and one of the user would
// be two tokens in place of one), so that it is cut only around segments that spell a special token. The cut is right
// when the special tokens of the result are exactly those that the trusted segments have by themselves; if a special
// token arose across a border, every border is cut.
#include "text/chat_encode.h"

namespace switchyard::text {
namespace {

class SegmentEncoder {
 public:
  explicit SegmentEncoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  Result<std::vector<int32_t>> encode(const std::string& text, bool parse_special) const {
    return tokenizer_.encode(
        text, EncodeOptions{.add_special_tokens = false, .parse_special = parse_special});
  }

  std::vector<int32_t> specials(const std::vector<int32_t>& ids) const {
    std::vector<int32_t> found;
    for (const int32_t id : ids)
      if (tokenizer_.is_special(id)) found.push_back(id);
    return found;
  }

  /// Whether a user's segment would become other tokens if special tokens were read in it.
  Result<bool> spells_special(const Segment& segment, const std::vector<int32_t>& plain) const {
    if (segment.from_template) return false;
    SWITCHYARD_ASSIGN(const auto parsed, encode(segment.text, true));
    return specials(parsed) != specials(plain);
  }

 private:
  const Tokenizer& tokenizer_;
};

void append(std::vector<int32_t>& ids, const std::vector<int32_t>& more) {
  ids.insert(ids.end(), more.begin(), more.end());
}

}  // namespace

Result<std::vector<int32_t>> encode_segments(std::span<const Segment> segments,
                                             const Tokenizer& tokenizer) {
  const SegmentEncoder encoder(tokenizer);
  std::vector<int32_t> strict;  // every border cut
  std::vector<int32_t> joined;  // only the necessary ones
  std::string pending;          // segments in which special tokens may be read
  const auto flush = [&]() -> Status {
    SWITCHYARD_ASSIGN(const auto ids, encoder.encode(pending, true));
    append(joined, ids);
    pending.clear();
    return {};
  };
  for (const Segment& segment : segments) {
    SWITCHYARD_ASSIGN(const auto ids, encoder.encode(segment.text, segment.from_template));
    append(strict, ids);
    SWITCHYARD_ASSIGN(const bool alone, encoder.spells_special(segment, ids));
    if (!alone) {
      pending += segment.text;
      continue;
    }
    SWITCHYARD_TRY(flush());
    append(joined, ids);
  }
  SWITCHYARD_TRY(flush());
  return encoder.specials(joined) == encoder.specials(strict) ? joined : strict;
}

}  // namespace switchyard::text
