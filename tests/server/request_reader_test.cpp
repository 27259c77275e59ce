// SPDX-License-Identifier: Apache-2.0
// The bound of a head holds for all of it, however its bytes come.
#include "serve/request_reader.h"

#include <algorithm>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace switchyard::serve {
namespace {

constexpr size_t kHeaderBytes = 512;
constexpr size_t kPieces[] = {1, 7, 64, 200, 300, 450, 511, 512, 4096};

// A head of so many bytes, in fields of some 200.
std::string head_of(size_t bytes) {
  std::string head = "GET /live HTTP/1.1\r\nHost: a\r\n";
  while (head.size() + 2 < bytes) {
    const size_t left = bytes - 2 - head.size();
    const size_t field = left < 240 ? left : 200;
    head += "X: " + std::string(field - 5, 'x') + "\r\n";
  }
  return head + "\r\n";
}

RequestReader::State read(std::string_view bytes, size_t piece, int& status) {
  RequestReader reader(kHeaderBytes, 1024);
  RequestReader::State state = RequestReader::State::waiting;
  while (!bytes.empty() && state == RequestReader::State::waiting) {
    const std::string_view now = bytes.substr(0, piece);
    bytes.remove_prefix(now.size());
    reader.push(now.data(), now.size());
    state = reader.advance();
  }
  status = state == RequestReader::State::refused ? reader.refusal().status : 0;
  return state;
}

TEST(RequestReader, AHeadInPiecesIsBoundedAsAWhole) {
  for (const size_t bytes : {500, 513, 600, 700, 900, 1500}) {
    ASSERT_EQ(head_of(bytes).size(), bytes);
    for (const size_t piece : kPieces) {
      int status = 0;
      const RequestReader::State state = read(head_of(bytes), piece, status);
      SCOPED_TRACE(std::to_string(bytes) + " bytes in pieces of " + std::to_string(piece));
      if (bytes <= kHeaderBytes) {
        EXPECT_EQ(state, RequestReader::State::complete);
      } else {
        EXPECT_EQ(state, RequestReader::State::refused);
        EXPECT_EQ(status, 431);
      }
    }
  }
}

}  // namespace
}  // namespace switchyard::serve
