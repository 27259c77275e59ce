// SPDX-License-Identifier: Apache-2.0
// The kinds of models, by name.
#include "text/token_model.h"

#include "text/bpe.h"
#include "text/json_fields.h"
#include "text/unigram.h"

namespace switchyard::text {

Result<std::unique_ptr<TokenModel>> make_token_model(const Json& json, const std::string& where) {
  SWITCHYARD_ASSIGN(Fields fields, Fields::of(json, where));
  // The oldest files leave the type of BPE out.
  const bool has_merges = json.find("merges") != nullptr;
  SWITCHYARD_ASSIGN(const std::string type,
                    has_merges ? fields.string("type", "BPE") : fields.string("type"));
  if (type == "BPE") return read_bpe(fields);
  if (type == "Unigram") return read_unigram(fields);
  return fail(Code::unsupported, "{}: \"{}\" is not supported: expected BPE or Unigram",
              fields.at("type"), type);
}

}  // namespace switchyard::text
