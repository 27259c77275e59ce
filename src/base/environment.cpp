// SPDX-License-Identifier: Apache-2.0
// The table of variables; nothing else in the library calls getenv.
#include "base/environment.h"

#include <algorithm>
#include <cstdlib>

#include "base/check.h"

namespace switchyard {
namespace {

constexpr EnvironmentVariable kVariables[] = {
    {"SWITCHYARD_MAX_ISA", "caps the CPU instruction sets: baseline, avx2, avx512 or amx"},
    {"SWITCHYARD_KERNEL", "pins kernels by name: OP=VARIANT, comma separated (grouped_gemm=ref)"},
    {"SWITCHYARD_DETERMINISTIC", "1: the same bits for a sequence whatever else is in the batch"},
    {"SWITCHYARD_CHAIN", "0: launches of a CUDA step do not overlap; to look for an error"},
    {"SWITCHYARD_L2_SIDES", "0: weights on a CUDA device are not placed by the sides of its L2"},
    {"SWITCHYARD_PERSISTENT",
     "0: a CUDA step of one token is launched layer by layer, as others are"},
    {"SWITCHYARD_THREADS", "number of compute threads (default: one per available core)"},
    {"SWITCHYARD_PIN", "0: do not pin compute threads to cores"},
};

}  // namespace

std::span<const EnvironmentVariable> environment_variables() { return kVariables; }

std::optional<std::string> environment(std::string_view name) {
  SWITCHYARD_CHECK(std::any_of(std::begin(kVariables), std::end(kVariables),
                               [&](const auto& v) { return v.name == name; }),
                   "undocumented environment variable {}", name);
  const char* value = std::getenv(std::string(name).c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

bool deterministic() { return environment("SWITCHYARD_DETERMINISTIC") == "1"; }

}  // namespace switchyard
