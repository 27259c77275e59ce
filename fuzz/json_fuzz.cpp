// SPDX-License-Identifier: Apache-2.0
// JSON: any bytes are parsed or refused; what is parsed survives writing and reading; the scan that finds the place of
// a fault agrees with the parser on whether there is one.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "base/json_locate.h"

namespace {

std::string written(const switchyard::Json& json, int indent) {
  std::string text;
  switchyard::JsonWriter(text, indent).value(json);
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace switchyard;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<Json> json = parse_json(text, "fuzz");
  const bool fault = locate_json_fault(text).found;
  if (!json.ok()) {
    const bool twice = json.error().message.find("twice") != std::string::npos;
    SWITCHYARD_CHECK(fault || twice, "no place for: {}", json.error().message);
  } else {
    SWITCHYARD_CHECK(!fault, "a fault in what was parsed");
    const std::string line = written(*json, 0);
    const Result<Json> again = parse_json(written(*json, 2), "again");
    SWITCHYARD_CHECK(again.ok() && written(*again, 0) == line, "{}", line);
  }
  std::string quoted;
  JsonWriter(quoted).string(text);  // any bytes at all
  SWITCHYARD_CHECK(parse_json(quoted, "quoted").ok(), "{}", quoted);
  return 0;
}
