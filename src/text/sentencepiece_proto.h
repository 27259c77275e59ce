// SPDX-License-Identifier: Apache-2.0
// What a tokenizer.model says about spaces. The library keeps it to itself, but decoding token by
// token needs it. Reference: sentencepiece_model.proto (ModelProto), protobuf wire format.
#pragma once
#include <string_view>

#include "base/result.h"

namespace switchyard::text {

struct SentencePieceFacts {
  bool adds_dummy_prefix = true;          ///< a space is put before every text
  bool removes_extra_white_space = true;  ///< and all leading ones are dropped
  bool denormalizes = false;              ///< decoded text is rewritten as a whole
};

/// `bytes` is the whole file. Errors: Code::bad_file with the byte where it breaks off.
Result<SentencePieceFacts> read_sentencepiece_facts(std::string_view bytes);

}  // namespace switchyard::text
