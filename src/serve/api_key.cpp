// SPDX-License-Identifier: Apache-2.0
#include "serve/api_key.h"

#include <algorithm>

#include "base/files.h"

namespace switchyard::serve {
namespace {

constexpr std::string_view kScheme = "bearer ";
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 20;

bool starts_with_scheme(std::string_view text) {
  if (text.size() < kScheme.size()) return false;
  return std::equal(kScheme.begin(), kScheme.end(), text.begin(), [](char a, char b) {
    return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b + 32) : b);
  });
}

}  // namespace

ApiKeys::Padded ApiKeys::padded(std::string_view key) noexcept {
  Padded out{};
  const size_t size = std::min(key.size(), kMaxBytes);
  for (size_t i = 0; i < size; ++i) out[i] = static_cast<unsigned char>(key[i]);
  out[kMaxBytes] = static_cast<unsigned char>(key.size() & 0xff);
  out[kMaxBytes + 1] = key.size() > kMaxBytes ? 0xff : static_cast<unsigned char>(key.size() >> 8);
  return out;
}

Status ApiKeys::add(std::string_view key) {
  if (key.empty() || key.size() > kMaxBytes)
    return fail(Code::bad_request, "an API key has {} bytes, expected 1 to {}", key.size(),
                kMaxBytes);
  for (const char c : key)
    if (c <= ' ' || c > '~')
      return fail(Code::bad_request, "an API key holds a blank or another unprintable character");
  keys_.push_back(padded(key));
  return {};
}

Status ApiKeys::add_file(const std::string& path) {
  SWITCHYARD_ASSIGN(const std::string text, read_text_file(path, kMaxFileBytes));
  const size_t before = keys_.size();
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line[0] == '#') continue;
    if (const Status added = add(line); !added.ok()) return with_context(added.error(), path);
  }
  if (keys_.size() == before)
    return fail(Code::bad_request, "{}: no API key in it, expected one a line", path);
  return {};
}

std::optional<size_t> ApiKeys::find(std::string_view authorization) const noexcept {
  if (!starts_with_scheme(authorization)) return std::nullopt;
  const Padded given = padded(authorization.substr(kScheme.size()));
  size_t found = 0;                            // its number, from 1
  for (size_t k = 0; k < keys_.size(); ++k) {  // all of them, and all their bytes
    volatile unsigned difference = 0;
    for (size_t i = 0; i < given.size(); ++i)
      difference = difference | static_cast<unsigned>(keys_[k][i] ^ given[i]);
    const size_t same = size_t{0} - static_cast<size_t>(difference == 0);
    found = (found & ~same) | ((k + 1) & same);
  }
  return found == 0 ? std::nullopt : std::optional<size_t>(found - 1);
}

}  // namespace switchyard::serve
