// SPDX-License-Identifier: Apache-2.0
// Two small tables, made once.
#include "text/byte_level.h"

#include <array>

#include "text/unicode.h"

namespace switchyard::text {
namespace {

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<int, 0x144> byte{};  // by character; -1 where there is none

  Alphabet() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (unsigned i = 0; i < 256; ++i) {
      const bool printable =
          (i >= 0x21 && i <= 0x7E) || (i >= 0xA1 && i <= 0xAC) || (i >= 0xAE && i <= 0xFF);
      character[i] = printable ? char32_t{i} : next++;
      byte[character[i]] = static_cast<int>(i);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet only;
  return only;
}

}  // namespace

std::string to_byte_alphabet(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() + bytes.size() / 4);
  for (const char byte : bytes) {
    append_character(out, alphabet().character[static_cast<unsigned char>(byte)]);
  }
  return out;
}

bool from_byte_alphabet(std::string_view token, std::string& out) {
  out.clear();
  for (size_t at = 0; at < token.size();) {
    const char32_t character = next_character(token, at);
    const int byte = character < alphabet().byte.size() ? alphabet().byte[character] : -1;
    if (byte < 0) return false;
    out += static_cast<char>(byte);
  }
  return true;
}

int byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int byte = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    byte = byte * 16 + digit;
  }
  return byte;
}

}  // namespace switchyard::text
