// SPDX-License-Identifier: Apache-2.0
// A command of the program: its options are declared on a parser, then it runs. One file per
// command, one line each in the table of main.cpp.
#pragma once
#include <memory>

#include "cli/exit_code.h"

namespace CLI {
class App;
}

namespace switchyard::cli {

class Command {
 public:
  virtual ~Command() = default;
  /// Runs with the options that the parser has filled in.
  virtual ExitCode run() = 0;
};

/// Adds the command to `parent` and returns what will run it; `app` is set to its parser.
using MakeCommand = std::unique_ptr<Command> (*)(CLI::App& parent, CLI::App*& app);

std::unique_ptr<Command> make_run(CLI::App& parent, CLI::App*& app);
std::unique_ptr<Command> make_serve(CLI::App& parent, CLI::App*& app);
std::unique_ptr<Command> make_inspect(CLI::App& parent, CLI::App*& app);
std::unique_ptr<Command> make_bench(CLI::App& parent, CLI::App*& app);
std::unique_ptr<Command> make_record(CLI::App& parent, CLI::App*& app);
std::unique_ptr<Command> make_stats(CLI::App& parent, CLI::App*& app);
std::unique_ptr<Command> make_plan(CLI::App& parent, CLI::App*& app);
std::unique_ptr<Command> make_check(CLI::App& parent, CLI::App*& app);
std::unique_ptr<Command> make_doctor(CLI::App& parent, CLI::App*& app);

}  // namespace switchyard::cli
