// SPDX-License-Identifier: Apache-2.0
// switchyard inspect: a model's headers; `inspect kernels`: which kernel would be chosen, and why;
// `inspect tables`: what this build knows.
#include <cstdio>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/json.h"
#include "cli/catalogue.h"
#include "cli/command.h"
#include "cli/inspection.h"
#include "cli/terminal.h"
#include "kernels/select.h"

namespace switchyard::cli {
namespace {

class Inspect final : public Command {
 public:
  Inspect(CLI::App& parent, CLI::App*& app);
  ExitCode run() override;

 private:
  ExitCode show_model() const;
  ExitCode show_kernels() const;

  CLI::App* kernels_ = nullptr;
  CLI::App* tables_ = nullptr;
  std::string path_, op_, problem_;
  bool json_ = false, tensors_ = false;
};

Inspect::Inspect(CLI::App& parent, CLI::App*& app) {
  app =
      parent.add_subcommand("inspect", "Shows what a model folder holds, without reading weights");
  app->require_subcommand(0, 1);
  app->add_option("MODEL", path_, "A Hugging Face model folder");
  app->add_flag("--json", json_, "Print one JSON object");
  app->add_flag("--tensors", tensors_, "Every tensor instead of one line per pattern");
  kernels_ = app->add_subcommand("kernels", "Which kernel an operation would use, and why");
  kernels_->add_option("--op", op_, "The operation")->required();
  kernels_->add_option("--problem", problem_,
                       "Its sizes, as \"m=64 n=1408 k=2048 groups=64 weight=bf16\"");
  tables_ =
      app->add_subcommand("tables", "Model families, routers, formats and kernels of this build");
}

ExitCode Inspect::run() {
  if (kernels_->parsed()) return show_kernels();
  if (tables_->parsed()) {
    std::fputs(catalogue_markdown().c_str(), stdout);
    return kOk;
  }
  return show_model();
}

ExitCode Inspect::show_model() const {
  if (path_.empty())
    return report(
        Error(Code::bad_request, "inspect needs a MODEL folder, or one of: kernels, tables"));
  const auto inspection = inspect_model(path_);
  if (!inspection.ok()) return report(inspection.error());
  const TensorDetail detail = tensors_ ? TensorDetail::every_tensor : TensorDetail::groups;
  std::string text;
  if (json_) {
    JsonWriter json(text, 2);
    write_inspection(json, *inspection, detail);
    text += '\n';
  } else {
    text = inspection_text(*inspection, detail, stdout_look());
  }
  std::fputs(text.c_str(), stdout);
  return kOk;
}

ExitCode Inspect::show_kernels() const {
  const auto candidates = kernels::explain_text(op_, problem_);
  if (!candidates.ok()) return report(candidates.error());
  const Look look = stdout_look();
  int widest = 0;
  for (const kernels::Candidate& candidate : *candidates)
    widest = std::max(widest, display_width(candidate.name));
  for (const kernels::Candidate& candidate : *candidates) {
    const bool chosen = candidate.verdict == "chosen";
    std::printf("  %s  %s\n", pad(candidate.name, widest, Align::left).c_str(),
                styled(candidate.verdict, chosen ? Style::green : Style::plain, look).c_str());
  }
  return kOk;
}

}  // namespace

std::unique_ptr<Command> make_inspect(CLI::App& parent, CLI::App*& app) {
  return std::make_unique<Inspect>(parent, app);
}

}  // namespace switchyard::cli
