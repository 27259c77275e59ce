// SPDX-License-Identifier: Apache-2.0
#include "cli/program.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace switchyard {
namespace {

namespace fs = std::filesystem;

const fs::path kDemo = fs::path(SWITCHYARD_SOURCE_DIR) / "models/demo";

struct Pipe {
  int ends[2] = {-1, -1};
  Pipe() { EXPECT_EQ(::pipe(ends), 0); }
  void close_end(int i) {
    if (ends[i] >= 0) ::close(ends[i]);
    ends[i] = -1;
  }
  ~Pipe() { close_end(0), close_end(1); }
};

[[noreturn]] void become_program(const std::vector<std::string>& arguments,
                                 const RunOptions& options, Pipe& out, Pipe& err, int input) {
  ::dup2(input, STDIN_FILENO);
  ::dup2(out.ends[1], STDOUT_FILENO);
  ::dup2(err.ends[1], STDERR_FILENO);
  for (Pipe* pipe : {&out, &err}) pipe->close_end(0), pipe->close_end(1);
  if (::chdir(SWITCHYARD_SOURCE_DIR) != 0) ::_exit(127);
  std::signal(SIGINT, SIG_DFL);
  for (const std::string& setting : options.environment)
    ::putenv(const_cast<char*>(setting.c_str()));
  std::vector<char*> raw{const_cast<char*>("switchyard")};
  for (const std::string& argument : arguments) raw.push_back(const_cast<char*>(argument.c_str()));
  raw.push_back(nullptr);
  ::execv(SWITCHYARD_PROGRAM, raw.data());
  ::_exit(127);
}

/// Reads both streams until both are closed.
void collect(int process, Pipe& out, Pipe& err, const RunOptions& options, Outcome& outcome) {
  pollfd streams[2] = {{out.ends[0], POLLIN, 0}, {err.ends[0], POLLIN, 0}};
  std::string* texts[2] = {&outcome.out, &outcome.err};
  bool told = false;
  for (int open = 2; open > 0;) {
    if (::poll(streams, 2, -1) < 0) continue;
    for (int i = 0; i < 2; ++i) {
      if (streams[i].fd < 0 || streams[i].revents == 0) continue;
      char buffer[4096];
      const ssize_t size = ::read(streams[i].fd, buffer, sizeof(buffer));
      if (size <= 0) {
        streams[i].fd = -1;
        --open;
        continue;
      }
      texts[i]->append(buffer, static_cast<size_t>(size));
      if (i == 0 && !told && options.on_first_output) options.on_first_output(process);
      told = told || i == 0;
    }
  }
}

}  // namespace

Outcome run_program(const std::vector<std::string>& arguments, const RunOptions& options) {
  Outcome outcome;
  Pipe out, err;
  FILE* input = std::tmpfile();  // a file, so that a program that does not read it cannot block us
  std::fwrite(options.input.data(), 1, options.input.size(), input);
  std::fflush(input);
  ::lseek(::fileno(input), 0, SEEK_SET);
  const pid_t process = ::fork();
  if (process == 0) become_program(arguments, options, out, err, ::fileno(input));
  out.close_end(1);
  err.close_end(1);
  std::fclose(input);
  collect(process, out, err, options, outcome);
  int status = 0;
  EXPECT_EQ(::waitpid(process, &status, 0), process);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (fs::temp_directory_path() / "switchyard-test-XXXXXX").string();
  EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void TemporaryFolder::write(const std::string& name, const std::string& content) const {
  std::ofstream(file(name), std::ios::binary) << content;
}

void TemporaryFolder::copy_demo(const std::string& name) const {
  fs::copy_file(kDemo / name, file(name));
}

void TemporaryFolder::copy_demo() const {
  for (const auto& entry : fs::directory_iterator(kDemo))
    if (entry.is_regular_file()) fs::copy_file(entry.path(), path_ / entry.path().filename());
}

}  // namespace switchyard
