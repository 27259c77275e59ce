// SPDX-License-Identifier: Apache-2.0
// The model families that we know. Each is one file beside this one, and one line here.
#include "model/family.h"

namespace switchyard::model {

extern const Family kDeepseek, kGraniteMoe, kMixtral, kOlmoe, kQwen2Moe, kQwen3Moe;

namespace {

constexpr const Family* kFamilies[] = {&kQwen3Moe, &kQwen2Moe, &kMixtral,
                                       &kOlmoe,    &kDeepseek, &kGraniteMoe};

std::string known_types() {
  std::string text;
  for (const Family* family : kFamilies) {
    for (const std::string_view type : family->model_types) text += fmt::format(" {}", type);
  }
  return text;
}

}  // namespace

std::span<const Family* const> families() { return kFamilies; }

Result<const Family*> find_family(const Json& config) {
  const Json* type = config.find("model_type");
  if (type == nullptr || !type->is_string()) {
    return fail(Code::bad_file, "config.json: key 'model_type' is missing: expected one of{}",
                known_types());
  }
  for (const Family* family : kFamilies) {
    for (const std::string_view name : family->model_types) {
      if (name == type->as_string()) return family;
    }
  }
  return fail(Code::unsupported, "config.json: model_type '{}' is not supported; supported:{}",
              type->as_string(), known_types());
}

const Family* find_family_named(std::string_view name) noexcept {
  for (const Family* family : kFamilies) {
    if (family->name == name) return family;
  }
  return nullptr;
}

}  // namespace switchyard::model
