// SPDX-License-Identifier: Apache-2.0
// A server that sends each connection, in their order, the bytes that a test has written down, whatever it is asked.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace switchyard::client {

class HostileServer {
 public:
  /// For each request, in the order of their coming: what is answered. An answer that ends in kHangUp is followed by a
  /// close, one in kSilence by nothing at all.
  enum class Reads : uint8_t { all, head };  ///< of each request, before it is answered
  explicit HostileServer(std::vector<std::string> answers, Reads reads = Reads::all);
  ~HostileServer();

  static constexpr char kHangUp = '\x01', kSilence = '\x02';
  /// Within an answer: 50 ms go by.
  static constexpr char kPause = '\x03';
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  int connections() const { return connections_; }
  std::vector<std::string> requests();

 private:
  void run();
  void talk(int fd);

  std::vector<std::string> answers_;
  const Reads reads_;
  std::mutex mutex_;
  size_t next_ = 0;
  std::vector<std::string> requests_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::atomic<int> connections_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> talks_;
  std::thread thread_;
};

/// A whole answer with a length, and a stream of events as chunks, with or without its last chunk.
std::string whole(int status, const std::string& body, const std::string& headers = "");
std::string stream(const std::vector<std::string>& events, const std::string& end = "0\r\n\r\n");

}  // namespace switchyard::client
