// SPDX-License-Identifier: Apache-2.0
// switchyard check: validates a model folder and names every fault with its class.
#include "model/check.h"

#include <cstdio>
#include <string>

#include <CLI/CLI.hpp>

#include "base/json.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "engine/generation_config.h"
#include "text/chat.h"
#include "text/tokenizer.h"

namespace switchyard::cli {
namespace {

class Check final : public Command {
 public:
  Check(CLI::App& parent, CLI::App*& app);
  ExitCode run() override;

 private:
  void print(const std::vector<model::Fault>& faults) const;
  void print_json(const std::vector<model::Fault>& faults) const;

  std::string path_;
  bool headers_only_ = false, json_ = false;
};

Check::Check(CLI::App& parent, CLI::App*& app) {
  app =
      parent.add_subcommand("check", "Validates a model folder: 0 sound, 3 invalid, 4 unsupported");
  app->add_option("MODEL", path_, "A Hugging Face model folder")->required();
  app->add_flag("--headers-only", headers_only_, "Do not read the weights for NaN and infinity");
  app->add_flag("--json", json_, "Print one JSON object");
}

/// The parts of a folder beside config and weights.
void check_texts(const std::string& folder, std::vector<model::Fault>& faults) {
  const auto add = [&](const char* fault_class, const auto& result) {
    if (!result.ok()) faults.push_back({fault_class, result.error()});
  };
  add("tokenizer", text::open_tokenizer(folder));
  add("chat_template", text::ChatTemplate::open(folder));
  add("generation_config", engine::read_generation_config(folder));
}

/// An unknown architecture says that nothing else was judged; else damage weighs more than what is merely unknown here.
ExitCode worst(const std::vector<model::Fault>& faults) {
  ExitCode code = kOk;
  for (const model::Fault& fault : faults) {
    if (fault.fault_class == "unsupported_model") return exit_code(fault.error.code);
  }
  for (const model::Fault& fault : faults) {
    const ExitCode one = exit_code(fault.error.code);
    if (code == kOk || (code == kUnsupported && one != kUnsupported)) code = one;
  }
  return code;
}

ExitCode Check::run() {
  auto found = model::check_checkpoint(
      path_, headers_only_ ? model::CheckDepth::headers : model::CheckDepth::weights);
  if (!found.ok()) return report(found.error());
  std::vector<model::Fault> faults = *std::move(found);
  check_texts(path_, faults);
  if (json_) {
    print_json(faults);
  } else {
    print(faults);
  }
  return worst(faults);
}

void Check::print(const std::vector<model::Fault>& faults) const {
  const Look look = stdout_look();
  for (const model::Fault& fault : faults)
    std::printf("%s  %s\n", styled(fault.fault_class, Style::red, look).c_str(),
                printable(fault.error.message).c_str());
  if (faults.empty()) {
    std::printf("%s  %s\n", styled("sound", Style::green, look).c_str(), path_.c_str());
  } else {
    std::printf("%zu fault%s in %s\n", faults.size(), faults.size() == 1 ? "" : "s", path_.c_str());
  }
}

void Check::print_json(const std::vector<model::Fault>& faults) const {
  std::string text;
  JsonWriter json(text, 2);
  json.begin_object().field("path", path_).field("sound", faults.empty());
  json.key("faults").begin_array();
  for (const model::Fault& fault : faults)
    json.begin_object()
        .field("class", fault.fault_class)
        .field("code", code_name(fault.error.code))
        .field("message", fault.error.message)
        .end_object();
  json.end_array().end_object();
  std::printf("%s\n", text.c_str());
}

}  // namespace

std::unique_ptr<Command> make_check(CLI::App& parent, CLI::App*& app) {
  return std::make_unique<Check>(parent, app);
}

}  // namespace switchyard::cli
