// SPDX-License-Identifier: Apache-2.0
#include "server/client.h"

#include <algorithm>
#include <cstdlib>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace switchyard {
namespace {

constexpr int kTimeoutMs = 10'000, kQuietMs = 300;

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

/// Moves whole chunks from the front of `bytes` to `body`. True at the last one.
bool take_chunks(std::string& bytes, std::string& body) {
  for (;;) {
    const size_t line = bytes.find("\r\n");
    if (line == std::string::npos) return false;
    const size_t size = std::strtoul(bytes.c_str(), nullptr, 16);
    if (bytes.size() < line + 2 + size + 2) return false;
    body.append(bytes, line + 2, size);
    EXPECT_EQ(bytes.substr(line + 2 + size, 2), "\r\n");
    bytes.erase(0, line + 2 + size + 2);
    if (size == 0) return true;
  }
}

std::string member(const Json& json, const char* name) {
  const Json* error = json.find("error");
  const Json* found = error == nullptr ? nullptr : error->find(name);
  return found == nullptr || !found->is_string() ? "" : found->as_string();
}

}  // namespace

Json Response::json() const {
  auto parsed = parse_json(body, "answer");
  EXPECT_TRUE(parsed.ok()) << body;
  return parsed.ok() ? *std::move(parsed) : Json();
}

std::string Response::error_code() const { return member(json(), "code"); }
std::string Response::error_param() const { return member(json(), "param"); }

Client::Client(uint16_t port) {
  fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
}

void Client::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void Client::set_receive_buffer(int bytes) const {
  ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
}

void Client::send(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // the server has closed: what it said tells the test more
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

size_t Client::send_while_taken(std::string_view bytes) const {
  size_t done = 0;
  pollfd wait{fd_, POLLOUT, 0};
  while (done < bytes.size() && ::poll(&wait, 1, kQuietMs) > 0) {
    const ssize_t sent =
        ::send(fd_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) break;
    done += static_cast<size_t>(sent);
  }
  return done;
}

bool Client::read_some() {
  pollfd wait{fd_, POLLIN, 0};
  if (::poll(&wait, 1, kTimeoutMs) <= 0) {
    ADD_FAILURE() << "nothing came within " << kTimeoutMs << " ms after: " << received_;
    return false;
  }
  char buffer[16384];
  const ssize_t size = ::recv(fd_, buffer, sizeof(buffer), 0);
  if (size <= 0) return false;
  received_.append(buffer, static_cast<size_t>(size));
  return true;
}

bool Client::wait_for(std::string_view text) {
  while (received_.find(text) == std::string::npos)
    if (!read_some()) return false;
  return true;
}

bool Client::is_closed() { return !read_some(); }

Response Client::read_response() {
  Response response;
  if (!wait_for("\r\n\r\n")) return response;
  const size_t end = received_.find("\r\n\r\n");
  const std::string head = received_.substr(0, end + 2);
  received_.erase(0, end + 4);
  response.status = std::atoi(head.c_str() + std::string_view("HTTP/1.1 ").size());
  for (size_t at = head.find("\r\n") + 2; at < head.size();) {
    const size_t colon = head.find(": ", at), line_end = head.find("\r\n", at);
    response.headers[lower(head.substr(at, colon - at))] =
        head.substr(colon + 2, line_end - colon - 2);
    at = line_end + 2;
  }
  if (response.headers.contains("transfer-encoding")) {
    while (!(response.complete = take_chunks(received_, response.body)))
      if (!read_some()) break;
    return response;
  }
  const size_t size = std::strtoul(response.headers["content-length"].c_str(), nullptr, 10);
  while (received_.size() < size)
    if (!read_some()) return response;
  response.complete = true;
  response.body = received_.substr(0, size);
  received_.erase(0, size);
  return response;
}

std::string get_text(std::string_view path, std::string_view headers) {
  return fmt::format("GET {} HTTP/1.1\r\nHost: test\r\n{}\r\n", path, headers);
}

std::string post_text(std::string_view path, std::string_view body, std::string_view headers) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: "
      "{}\r\n{}\r\n{}",
      path, body.size(), headers, body);
}

Response get(uint16_t port, std::string_view path, std::string_view headers) {
  Client client(port);
  client.send(get_text(path, headers));
  return client.read_response();
}

Response post(uint16_t port, std::string_view path, std::string_view body,
              std::string_view headers) {
  Client client(port);
  client.send(post_text(path, body, headers));
  return client.read_response();
}

std::vector<std::string> events_of(const std::string& body) {
  std::vector<std::string> events;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    EXPECT_NE(end, std::string::npos) << "no blank line after: " << body.substr(at);
    if (end == std::string::npos) break;
    const std::string event = body.substr(at, end - at);
    EXPECT_EQ(event.find('\n'), std::string::npos) << event;
    if (event.rfind("data: ", 0) == 0)
      events.push_back(event.substr(6));
    else
      EXPECT_EQ(event.rfind(":", 0), 0u) << event;
    at = end + 2;
  }
  return events;
}

std::string streamed_text(const std::string& body, int index) {
  std::string text;
  for (const std::string& event : events_of(body)) {
    if (event == "[DONE]") continue;
    const auto json = parse_json(event, "event");
    EXPECT_TRUE(json.ok()) << event;
    if (!json.ok() || json->find("choices") == nullptr) continue;
    for (const Json& choice : json->find("choices")->as_array()) {
      if (choice.find("index")->as_int() != index) continue;
      const Json* delta = choice.find("delta");
      const Json* piece = delta != nullptr ? delta->find("content") : choice.find("text");
      if (piece != nullptr) text += piece->as_string();
    }
  }
  return text;
}

const Json& at(const Json& json, const char* name) {
  static const Json kNull;
  const Json* found = json.find(name);
  EXPECT_NE(found, nullptr) << name << " in " << json_text(json);
  return found == nullptr ? kNull : *found;
}

}  // namespace switchyard
