// SPDX-License-Identifier: Apache-2.0
// safetensors: any bytes are parsed or refused; entries that are accepted lie inside the file and fit their shapes.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace switchyard;
  const auto entries = checkpoint::parse_safetensors(std::as_bytes(std::span(data, size)), "fuzz");
  if (!entries.ok()) {
    SWITCHYARD_CHECK(entries.error().message.starts_with("fuzz: "), "{}", entries.error().message);
    return 0;
  }
  uint64_t sum = 0;
  for (const checkpoint::TensorEntry& entry : *entries) {
    SWITCHYARD_CHECK(entry.begin <= entry.end && entry.end <= size, "{}", entry.name);
    SWITCHYARD_CHECK(
        entry.shape.elements() * dtype_bytes(entry.dtype) == static_cast<int64_t>(entry.bytes()),
        "{}", entry.name);
    for (uint64_t i = 0; i < entry.bytes(); ++i) sum += std::to_integer<uint64_t>(entry.data[i]);
  }
  [[maybe_unused]] static volatile uint64_t
      sink;  // the reads must happen, so that the address sanitizer sees them
  sink = sum;
  return 0;
}
