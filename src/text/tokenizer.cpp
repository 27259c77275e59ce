// SPDX-License-Identifier: Apache-2.0
// Decoding in one go is decoding token by token: there is one implementation, so they cannot
// differ.
#include "text/tokenizer.h"

namespace switchyard::text {

std::string Tokenizer::decode(std::span<const int32_t> ids, const DecodeOptions& options) const {
  std::string out;
  const std::unique_ptr<Decoding> decoding = start_decoding(options);
  for (const int32_t id : ids) decoding->push(id, out);
  decoding->finish(out);
  return out;
}

std::string DecodeStream::push(int32_t id) {
  std::string out;
  decoding_->push(id, out);
  return out;
}

std::string DecodeStream::finish() {
  std::string out;
  decoding_->finish(out);
  return out;
}

}  // namespace switchyard::text
