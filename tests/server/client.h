// SPDX-License-Identifier: Apache-2.0
// A client on a plain socket, so that tests say every byte that goes out and see every byte that comes in.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace switchyard {

struct Response {
  int status = 0;                              ///< 0: the connection ended before a whole answer
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;
  bool complete = false;  ///< the body came to its announced end

  Json json() const;
  /// "error" -> "code" of the body.
  std::string error_code() const;
  std::string error_param() const;
};

class Client {
 public:
  explicit Client(uint16_t port);
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(std::string_view bytes) const;
  /// Stops when the server has taken nothing for 0.3 s; returns how many bytes went out.
  size_t send_while_taken(std::string_view bytes) const;
  /// Reads until `text` is among what has come since the last answer; false when the connection ended or 10 s passed.
  bool wait_for(std::string_view text);
  Response read_response();
  /// The server has closed: nothing more comes.
  bool is_closed();
  void close();
  void set_receive_buffer(int bytes) const;
  const std::string& received() const { return received_; }

 private:
  bool read_some();
  int fd_ = -1;
  std::string received_;
};

std::string get_text(std::string_view path, std::string_view headers = "");
std::string post_text(std::string_view path, std::string_view body, std::string_view headers = "");
Response get(uint16_t port, std::string_view path, std::string_view headers = "");
Response post(uint16_t port, std::string_view path, std::string_view body,
              std::string_view headers = "");

/// The data of each event of a stream, in order; fails the test on a line that is neither data nor a comment.
std::vector<std::string> events_of(const std::string& body);
/// The text of choice `index` of a stream of either endpoint.
std::string streamed_text(const std::string& body, int index = 0);

/// The field of that name; a failure of the test, and null, where there is none.
const Json& at(const Json& json, const char* name);

}  // namespace switchyard
