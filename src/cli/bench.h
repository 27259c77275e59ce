// SPDX-License-Identifier: Apache-2.0
// The sub-commands of bench. One file each, one line each in the table of bench.cpp.
#pragma once
#include "cli/command.h"

namespace switchyard::cli {

std::unique_ptr<Command> make_bench_latency(CLI::App& parent, CLI::App*& app);
std::unique_ptr<Command> make_bench_moe(CLI::App& parent, CLI::App*& app);
std::unique_ptr<Command> make_bench_quality(CLI::App& parent, CLI::App*& app);
std::unique_ptr<Command> make_bench_serve(CLI::App& parent, CLI::App*& app);

}  // namespace switchyard::cli
