// SPDX-License-Identifier: Apache-2.0
// switchyard: the program. Parses the command line and runs one command; everything else is in the
// commands.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "switchyard/version.h"

#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/interrupts.h"
#include "cli/suggestion.h"

namespace switchyard::cli {
namespace {

/// The commands, in the order of the help. To add one: a file that defines its make function, and a
/// line here.
constexpr MakeCommand kCommands[] = {make_run,   make_serve, make_inspect, make_bench, make_record,
                                     make_stats, make_plan,  make_check,   make_doctor};

ExitCode usage(const std::string& message) {
  std::fprintf(stderr, "switchyard: %s\n", message.c_str());
  return kUsage;
}

/// The parser of the innermost command that was given.
CLI::App& innermost(CLI::App& app) {
  const auto given = app.get_subcommands();
  return given.empty() ? app : innermost(*given.front());
}

/// What the user could have meant at this place: options, or commands for a word.
std::vector<std::string> known_words(const CLI::App& app, bool is_option) {
  std::vector<std::string> words;
  if (is_option) {
    for (const CLI::Option* option : app.get_options())
      for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
  } else {
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
      words.push_back(command->get_name());
  }
  return words;
}

ExitCode refuse_unknown(CLI::App& app, const std::string& word) {
  const CLI::App& at = innermost(app);
  const bool is_option = word.size() > 1 && word[0] == '-';
  const std::string name = word.substr(0, word.find('='));
  std::string message = (is_option ? "unknown option " : "unexpected argument ") + name;
  if (const auto nearest = find_nearest(name, known_words(at, is_option)))
    message += "; did you mean " + *nearest + "?";
  return usage(message + " See: " + at.get_name() + " --help");
}

/// Unknown words are collected rather than thrown, so that the message can say what was meant.
void collect_extras(CLI::App& app) {
  app.allow_extras();
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; }))
    collect_extras(*command);
}

ExitCode run_program(int argc, char** argv) {
  CLI::App app("Switchyard serves Mixture-of-Experts language models.", "switchyard");
  app.set_version_flag("--version", std::string("switchyard ") + kVersion);
  std::vector<std::pair<CLI::App*, std::unique_ptr<Command>>> commands;
  for (const MakeCommand make : kCommands) {
    CLI::App* parser = nullptr;
    auto command = make(app, parser);
    commands.emplace_back(parser, std::move(command));
  }
  collect_extras(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {  // --help, --version
    app.exit(request);
    return kOk;
  } catch (const CLI::ParseError& error) {
    const auto unknown = app.remaining(true);
    return unknown.empty() ? usage(error.what()) : refuse_unknown(app, unknown.front());
  }
  const auto unknown = app.remaining(true);
  if (!unknown.empty()) return refuse_unknown(app, unknown.front());
  for (const auto& [parser, command] : commands)
    if (parser->parsed()) return command->run();
  std::fputs(app.help().c_str(), stderr);
  return kUsage;
}

}  // namespace
}  // namespace switchyard::cli

int main(int argc, char** argv) {
  switchyard::cli::Interrupts::install();
  return switchyard::cli::run_program(argc, argv);
}
