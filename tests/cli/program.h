// SPDX-License-Identifier: Apache-2.0
// Runs the built program and collects what it said.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace switchyard {

struct Outcome {
  int code = -1;  ///< exit code; 128 + signal when it was killed
  std::string out, err;
};

struct RunOptions {
  std::string input;                     ///< standard input
  std::vector<std::string> environment;  ///< "NAME=VALUE" added to ours
  /// Called once with the process id when the first byte has come on standard output.
  std::function<void(int process)> on_first_output;
};

/// Runs `switchyard ARGUMENTS` in the source folder and waits for its end.
Outcome run_program(const std::vector<std::string>& arguments, const RunOptions& options = {});

/// A folder that is removed with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  void write(const std::string& name, const std::string& content) const;
  /// Copies a file of models/demo.
  void copy_demo(const std::string& name) const;
  /// Copies all that the demo model needs to run.
  void copy_demo() const;

 private:
  std::string path_;
};

}  // namespace switchyard
