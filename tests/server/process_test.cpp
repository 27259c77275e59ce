// SPDX-License-Identifier: Apache-2.0
// The program: `switchyard serve` says what `switchyard run` says, and ends as it should on signals.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/client.h"

namespace switchyard {
namespace {

class Program {
 public:
  explicit Program(const std::vector<std::string>& arguments) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    process_ = ::fork();
    if (process_ == 0) {
      ::dup2(ends[1], STDERR_FILENO);
      ::close(ends[0]);
      std::vector<char*> raw{const_cast<char*>("switchyard")};
      for (const auto& argument : arguments) raw.push_back(const_cast<char*>(argument.c_str()));
      raw.push_back(nullptr);
      ::execv(SWITCHYARD_PROGRAM, raw.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    err_ = ends[0];
  }
  ~Program() {
    if (process_ > 0) ::kill(process_, SIGKILL), (void)wait();
    ::close(err_);
  }

  /// The port of the line that says where it serves; 0 when the program ended before.
  uint16_t wait_port() {
    constexpr std::string_view kUrl = "serving on http://127.0.0.1:";
    for (char c; ::read(err_, &c, 1) == 1;) {
      log_ += c;
      const size_t at = log_.find(kUrl);
      if (c == '\n' && at != std::string::npos)
        return static_cast<uint16_t>(std::atoi(log_.c_str() + at + kUrl.size()));
    }
    return 0;
  }
  void signal(int number) const { ::kill(process_, number); }
  int wait() {
    int status = 0;
    ::waitpid(process_, &status, 0);
    process_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  /// -1: it runs on after so many seconds.
  int wait_for(double seconds) {
    for (int looks = static_cast<int>(seconds * 100); looks > 0; --looks) {
      int status = 0;
      if (::waitpid(process_, &status, WNOHANG) == process_) {
        process_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      }
      ::usleep(10'000);
    }
    return -1;
  }
  const std::string& log() const { return log_; }

 private:
  pid_t process_ = -1;
  int err_ = -1;
  std::string log_;
};

std::vector<std::string> serve_demo(const std::string& port = "0") {
  return {"serve",     std::string(SWITCHYARD_SOURCE_DIR) + "/models/demo",
          "--dtype",   "f32",
          "--threads", "2",
          "--port",    port};
}

std::string run_text(const std::string& prompt, int tokens) {
  const std::string command =
      fmt::format("{} run {}/models/demo --dtype f32 --threads 2 -q --temperature 0 -n {} -p '{}'",
                  SWITCHYARD_PROGRAM, SWITCHYARD_SOURCE_DIR, tokens, prompt);
  FILE* const out = ::popen(command.c_str(), "r");
  std::string text;
  for (int c; (c = std::fgetc(out)) != EOF;) text += static_cast<char>(c);
  EXPECT_EQ(::pclose(out), 0);
  if (text.ends_with('\n')) text.pop_back();  // which run adds
  return text;
}

TEST(Process, ServesWhatRunSaysAndDrainsOnTerm) {
  const std::string expected = run_text("The kernel provides", 300);
  Program program(serve_demo());
  const uint16_t port = program.wait_port();
  ASSERT_NE(port, 0) << program.log();
  Client client(port);
  client.send(post_text(
      "/v1/completions",
      R"({"prompt":"The kernel provides","max_tokens":300,"temperature":0,"stream":true})"));
  ASSERT_TRUE(client.wait_for("data: "));
  program.signal(SIGTERM);
  const Response response = client.read_response();
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(streamed_text(response.body), expected);
  EXPECT_EQ(program.wait(), 0);
}

TEST(Process, ASecondSignalEndsAtOnce) {
  Program program(serve_demo());
  const uint16_t port = program.wait_port();
  ASSERT_NE(port, 0) << program.log();
  Client client(port);
  client.send(
      post_text("/v1/completions",
                R"({"prompt":"a","max_tokens":2000,"ignore_eos":true,"stream":true,"n":16})"));
  ASSERT_TRUE(client.wait_for("data: "));
  program.signal(SIGTERM);
  while (get(port, "/health").status == 200) ::usleep(1000);
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 130);
}

TEST(Process, AnEmptyKeyInTheEnvironmentDoesNotOpenTheServer) {
  ::setenv("SWITCHYARD_API_KEY", "", 1);
  Program program(serve_demo());
  ::unsetenv("SWITCHYARD_API_KEY");
  EXPECT_EQ(program.wait_port(), 0);
  EXPECT_NE(program.log().find("SWITCHYARD_API_KEY is set but empty"), std::string::npos)
      << program.log();
  EXPECT_EQ(program.wait(), 2);
}

/// Memory-1 (vllm#15182): what does not fit is refused before any weight is read.
TEST(Process, WhatDoesNotFitHasItsExitCode) {
  auto arguments = serve_demo();
  arguments.insert(arguments.end(), {"--kv-cache-size", "100000gb"});
  Program program(arguments);
  EXPECT_EQ(program.wait_port(), 0);
  EXPECT_NE(program.log().find("does not fit"), std::string::npos) << program.log();
  EXPECT_EQ(program.wait(), 5);
}

/// vllm#40926: a step that hangs. Here one of seconds, for a watchdog that allows it a hundredth: it looks four times a second.
TEST(Process, AnEngineThatDoesNotGetOnEndsItWithFailureAndEveryCallIsTold) {
  auto arguments = serve_demo();
  arguments.insert(arguments.end(),
                   {"--max-step-tokens", "32768", "--no-prefix-cache", "--stall-timeout", "0.01"});
  Program program(arguments);
  const uint16_t port = program.wait_port();
  ASSERT_NE(port, 0) << program.log();
  std::string prompt = "[5";
  for (int i = 1; i < 2000; ++i) prompt += fmt::format(",{}", 5 + i % 300);
  prompt += ']';
  std::string prompts = prompt;
  for (int i = 1; i < 16; ++i) prompts += "," + prompt;
  const std::string call = "{\"prompt\":[" + prompts + "],\"max_tokens\":4,\"stream\":";
  Client stream(port), whole(port);
  stream.send(post_text("/v1/completions", call + "true}"));
  whole.send(post_text("/v1/completions", call + "false}"));
  EXPECT_NE(stream.read_response().body.find(R"("code":"engine_dead")"), std::string::npos);
  EXPECT_EQ(whole.read_response().error_code(), "engine_dead");
  stream.close();
  whole.close();
  EXPECT_EQ(program.wait(), 1);
}

/// A socket on which systemd would listen.
class Supervisor {
 public:
  Supervisor() : path_(::testing::TempDir() + "switchyard_notify") {
    ::unlink(path_.c_str());
    fd_ = ::socket(AF_UNIX, SOCK_DGRAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    EXPECT_LT(path_.size(), sizeof(address.sun_path));
    std::copy(path_.begin(), path_.end(), address.sun_path);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Supervisor() {
    ::close(fd_);
    ::unlink(path_.c_str());
  }
  const std::string& path() const { return path_; }
  /// The next message within ten seconds.
  std::string wait() const {
    pollfd ready{fd_, POLLIN, 0};
    char buffer[256];
    if (::poll(&ready, 1, 10'000) <= 0) return "";
    const ssize_t size = ::recv(fd_, buffer, sizeof(buffer), 0);
    return {buffer, static_cast<size_t>(std::max<ssize_t>(size, 0))};
  }

 private:
  std::string path_;
  int fd_ = -1;
};

TEST(Process, TellsSystemdWhenItIsReadyAndWhenItStops) {
  const Supervisor supervisor;
  ::setenv("NOTIFY_SOCKET", supervisor.path().c_str(), 1);
  Program program(serve_demo());
  ::unsetenv("NOTIFY_SOCKET");
  EXPECT_EQ(supervisor.wait(), "READY=1");
  EXPECT_NE(program.wait_port(), 0);
  program.signal(SIGTERM);
  EXPECT_EQ(supervisor.wait(), "STOPPING=1");
  EXPECT_EQ(program.wait(), 0);
}

TEST(Process, AnAddressInUseHasItsExitCode) {
  Program first(serve_demo());
  const uint16_t port = first.wait_port();
  ASSERT_NE(port, 0) << first.log();
  Program second(serve_demo(std::to_string(port)));
  EXPECT_EQ(second.wait(), 6);
  first.signal(SIGINT);
  EXPECT_EQ(first.wait(), 0);
}

TEST(Process, EndsThoughNobodyReadsItsLog) {
  std::vector<std::string> arguments = serve_demo();
  arguments.insert(arguments.end(), {"--log-format", "text"});
  Program program(arguments);
  const uint16_t port = program.wait_port();
  ASSERT_NE(port, 0);
  const std::string id = "x-request-id: " + std::string(100, 'i') + "\r\n";
  for (int i = 0; i < 600; ++i)  // more than the 64 KiB of a pipe
    ASSERT_EQ(get(port, "/live", id).status, 200);
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait_for(20), 0);
}

}  // namespace
}  // namespace switchyard
