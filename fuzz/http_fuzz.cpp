// SPDX-License-Identifier: Apache-2.0
// The bytes of a connection: any become requests within their limits, or a refusal with a known status; and the same ones
// however the bytes were cut, but for what is too long. In the last, unended request an error may be seen earlier or later.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "serve/request_reader.h"

namespace {

using namespace switchyard;
using serve::RequestReader;

constexpr size_t kHeaderBytes = 512, kBodyBytes = 1024;

/// What a connection came to: its requests in short, then the status of a refusal, or 0.
struct Read {
  std::vector<std::string> requests;
  int status = 0;
};

std::string check_request(const serve::HttpRequest& request) {
  SWITCHYARD_CHECK(!request.method.empty() && request.path.starts_with('/'), "'{}' of '{}'",
                   request.method, request.path);
  SWITCHYARD_CHECK(std::none_of(request.path.begin(), request.path.end(),
                                [](unsigned char c) { return c < ' ' || c == 0x7f; }),
                   "a control character in a path");
  SWITCHYARD_CHECK(request.path.find("/../") == std::string::npos, "{}", request.path);
  SWITCHYARD_CHECK(request.body.size() <= kBodyBytes, "{} bytes", request.body.size());
  size_t lengths = 0, bytes = 0;
  for (const auto& [name, value] : request.headers) {
    bytes += name.size() + value.size();
    lengths += name == "content-length" || name == "transfer-encoding" ? 1 : 0;
    SWITCHYARD_CHECK(value.find_first_of("\r\n") == std::string::npos, "a line break in a header");
  }
  SWITCHYARD_CHECK(lengths <= 1 && bytes <= kHeaderBytes, "{} lengths, {} bytes", lengths, bytes);
  return request.method + ' ' + request.path + '\n' + request.body;
}

Read read(std::string_view bytes, size_t piece) {
  RequestReader reader(kHeaderBytes, kBodyBytes);
  Read result;
  while (!bytes.empty()) {
    const std::string_view now = bytes.substr(0, piece);
    bytes.remove_prefix(now.size());
    reader.push(now.data(), now.size());
    while (true) {
      const RequestReader::State state = reader.advance();
      if (state == RequestReader::State::waiting) break;
      if (state == RequestReader::State::refused) {
        result.status = reader.refusal().status;
        SWITCHYARD_CHECK(result.status >= 400 && result.status < 500, "status {}", result.status);
        SWITCHYARD_CHECK(!reader.refusal().code.empty(), "a refusal without a code");
        return result;
      }
      result.requests.push_back(check_request(reader.take()));
      reader.begin();
      if (reader.buffered() == 0) break;
    }
    SWITCHYARD_CHECK(reader.buffered() <= kHeaderBytes + piece, "{} bytes wait", reader.buffered());
  }
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Read whole = read(bytes, std::max<size_t>(bytes.size(), 1));
  const Read pieces = read(bytes, size_t{1} + data[0] % 64);
  const auto too_long = [](const Read& one) { return one.status == 431 || one.status == 413; };
  if (too_long(whole) || too_long(pieces)) return 0;
  SWITCHYARD_CHECK(whole.requests == pieces.requests, "{} requests and {}, in pieces {} and {}",
                   whole.requests.size(), whole.status, pieces.requests.size(), pieces.status);
  SWITCHYARD_CHECK(whole.status == pieces.status || whole.status == 0 || pieces.status == 0,
                   "refused with {}, in pieces with {}", whole.status, pieces.status);
  return 0;
}
