// SPDX-License-Identifier: Apache-2.0
// switchyard bench: the measurements, one file each.
#include "cli/bench.h"

#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

namespace switchyard::cli {
namespace {

/// The measurements, in the order of the help. To add one: a file that defines its make function,
/// and a line here.
constexpr MakeCommand kBenches[] = {make_bench_latency, make_bench_moe, make_bench_quality,
                                    make_bench_serve};

class Bench final : public Command {
 public:
  Bench(CLI::App& parent, CLI::App*& app);
  ExitCode run() override;

 private:
  std::vector<std::pair<CLI::App*, std::unique_ptr<Command>>> benches_;
};

Bench::Bench(CLI::App& parent, CLI::App*& app) {
  app = parent.add_subcommand("bench", "Measures");
  app->require_subcommand(1);
  for (const MakeCommand make : kBenches) {
    CLI::App* parser = nullptr;
    auto command = make(*app, parser);
    benches_.emplace_back(parser, std::move(command));
  }
}

ExitCode Bench::run() {
  for (const auto& [parser, command] : benches_)
    if (parser->parsed()) return command->run();
  return kUsage;  // the parser has asked for one of them
}

}  // namespace

std::unique_ptr<Command> make_bench(CLI::App& parent, CLI::App*& app) {
  return std::make_unique<Bench>(parent, app);
}

}  // namespace switchyard::cli
