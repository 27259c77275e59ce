// SPDX-License-Identifier: Apache-2.0
// Metaspace: spaces written as a visible mark (U+2581), as SentencePiece does; shared by the
// pre-tokenizer that writes the mark and the decoder that reads it.
#pragma once
#include <string>

#include "text/json_fields.h"

namespace switchyard::text {

struct Metaspace {
  enum class Prepend : uint8_t { always, first, never };

  char32_t mark = 0x2581;
  Prepend prepend = Prepend::always;
  bool split = true;

  static Result<Metaspace> read(Fields& fields);

  /// Spaces become marks, and one mark is put in front where the scheme asks for it.
  void mark_spaces(std::string& text, bool at_start) const;
  /// A token's text: marks become spaces; in the first token of a text they vanish, unless the
  /// scheme never put one in front.
  std::string unmark(std::string_view token, bool first) const;
};

}  // namespace switchyard::text
