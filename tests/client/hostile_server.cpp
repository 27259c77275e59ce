// SPDX-License-Identifier: Apache-2.0
#include "client/hostile_server.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string_view>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace switchyard::client {
namespace {

constexpr int kPollMs = 20;

/// Bytes of a whole request at the front of `received`; 0: not yet.
size_t request_size(const std::string& received) {
  const size_t head = received.find("\r\n\r\n");
  if (head == std::string::npos) return 0;
  const size_t length = received.find("Content-Length: ");
  const size_t body = length == std::string::npos || length > head
                          ? 0
                          : std::strtoul(received.c_str() + length + 16, nullptr, 10);
  return received.size() >= head + 4 + body ? head + 4 + body : 0;
}

void send_with_pauses(int fd, std::string_view answer) {
  while (!answer.empty()) {
    const size_t pause = std::min(answer.find(HostileServer::kPause), answer.size());
    (void)::send(fd, answer.data(), pause, MSG_NOSIGNAL);
    answer.remove_prefix(std::min(pause + 1, answer.size()));
    if (!answer.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace

HostileServer::HostileServer(std::vector<std::string> answers, Reads reads)
    : answers_(std::move(answers)), reads_(reads) {
  listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(::listen(listener_, 64), 0);
  socklen_t size = sizeof(address);
  ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { run(); });
}

HostileServer::~HostileServer() {
  stopping_ = true;
  thread_.join();
  for (std::thread& talk : talks_) talk.join();
  ::close(listener_);
}

std::vector<std::string> HostileServer::requests() {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void HostileServer::run() {
  pollfd wait{listener_, POLLIN, 0};
  while (!stopping_) {
    if (::poll(&wait, 1, kPollMs) <= 0) continue;
    const int fd = ::accept(listener_, nullptr, nullptr);
    ++connections_;
    talks_.emplace_back([this, fd] { talk(fd); });
  }
}

void HostileServer::talk(int fd) {
  std::string received;
  pollfd wait{fd, POLLIN, 0};
  while (!stopping_) {
    if (::poll(&wait, 1, kPollMs) <= 0) continue;
    char buffer[4096];
    const ssize_t size = ::recv(fd, buffer, sizeof(buffer), 0);
    if (size <= 0) break;
    received.append(buffer, static_cast<size_t>(size));
    const bool enough = reads_ == Reads::all || received.find("\r\n\r\n") == std::string::npos;
    const size_t request = enough ? request_size(received) : received.size();
    if (request == 0) continue;
    std::string answer(1, kHangUp);
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(received.substr(0, request));
      if (next_ < answers_.size()) answer = answers_[next_++];
    }
    received.erase(0, request);
    const char end = answer.empty() ? kSilence : answer.back();
    if (end == kHangUp || end == kSilence) answer.resize(answer.size() - 1);
    send_with_pauses(fd, answer);
    if (end == kHangUp) break;
    if (reads_ == Reads::head) {  // and nothing more
      while (!stopping_) std::this_thread::sleep_for(std::chrono::milliseconds(kPollMs));
      break;
    }
  }
  ::close(fd);
}

std::string whole(int status, const std::string& body, const std::string& headers) {
  return fmt::format(
      "HTTP/1.1 {} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}\r\n{}", status,
      body.size(), headers, body);
}

std::string stream(const std::vector<std::string>& events, const std::string& end) {
  std::string text =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string& event : events) {
    const std::string data = "data: " + event + "\n\n";
    text += fmt::format("{:x}\r\n{}\r\n", data.size(), data);
  }
  return text + end;
}

}  // namespace switchyard::client
