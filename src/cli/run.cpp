// SPDX-License-Identifier: Apache-2.0
// switchyard run: answers prompts, or talks. Standard output carries generated text or JSON and
// nothing else.
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/files.h"
#include "base/json.h"
#include "base/result.h"
#include "cli/command.h"
#include "cli/interrupts.h"
#include "cli/model_options.h"
#include "cli/moe_report.h"
#include "cli/outputs.h"
#include "cli/sampling_options.h"
#include "cli/terminal.h"

namespace switchyard::cli {
namespace {

class Run final : public Command {
 public:
  Run(CLI::App& parent, CLI::App*& app);
  ExitCode run() override;

 private:
  ExitCode answer_all(std::vector<Request> requests);
  ExitCode converse();
  Result<std::vector<Request>> make_requests() const;
  Request make_request(std::string text) const;
  Status submit(Outputs& outputs, std::vector<Request> requests);
  void print(Outputs& outputs);
  void print_one(Outputs& outputs, size_t index);
  void show_experts_by_prompt(const Outputs& outputs) const;
  ExitCode finish(ExitCode code);
  void note(const std::string& text) const;

  ModelOptions model_;
  SamplingOptions sampling_;
  std::vector<std::string> prompts_;
  bool chat_ = false, json_ = false, moe_report_ = false, profile_ = false;
  bool phases_by_layer_ = false;
  std::string trace_file_;

  std::unique_ptr<Engine> engine_;
  std::vector<RequestId> ids_;  // of the requests that run; written before they can be cancelled
  std::mutex ids_mutex_;
  Look out_look_ = stdout_look(), err_look_ = stderr_look();
};

Run::Run(CLI::App& parent, CLI::App*& app) {
  app = parent.add_subcommand("run", "Answers prompts, or talks with --chat");
  model_.declare(*app);
  app->add_option("-p,--prompt", prompts_,
                  "A prompt; may be given several times (default: standard input)")
      ->allow_extra_args(false);
  app->add_flag("--chat", chat_, "The prompt is a user's message: use the model's chat template");
  sampling_.declare(*app);
  app->add_flag("--prefix-cache,!--no-prefix-cache", model_.engine.prefix_cache,
                "Prompts that begin alike share keys and values (default: on)");
  app->add_flag("--json", json_, "Print one JSON object at the end");
  app->add_flag("--moe-report,!--no-moe-report", moe_report_,
                "Which experts worked and where the time went, after the run");
  app->add_flag("--profile", profile_, "Where the time went, after the run");
  app->add_flag("--phases-by-layer", phases_by_layer_, "The same for each layer");
  app->add_option("--trace", trace_file_,
                  "Write a Chrome trace of the steps to this file, for ui.perfetto.dev");
}

ExitCode Run::run() {
  model_.engine.profile = profile_ || moe_report_ || phases_by_layer_;
  if (!trace_file_.empty()) model_.engine.trace_events = kChromeTraceEvents;
  // A wrong value must not wait for the load: every engine would refuse it.
  if (const Status status = sampling_.apply({}).check(); !status.ok())
    return report(status.error());
  auto engine = open_engine(model_);
  if (!engine.ok()) return report(engine.error());
  engine_ = *std::move(engine);
  if (prompts_.empty() && !json_ && stdin_is_terminal()) return finish(converse());
  auto requests = make_requests();
  if (!requests.ok()) return report(requests.error());
  return finish(answer_all(*std::move(requests)));
}

Request Run::make_request(std::string text) const {
  Request request;
  request.sampling = sampling_.apply(engine_->default_sampling());
  request.moe_stats = json_ || moe_report_;
  if (chat_) {
    request.messages.push_back({"user", std::move(text)});
  } else {
    request.prompt = std::move(text);
  }
  return request;
}

Result<std::vector<Request>> Run::make_requests() const {
  std::vector<Request> requests;
  for (const std::string& prompt : prompts_) requests.push_back(make_request(prompt));
  if (!requests.empty()) return requests;
  std::string text(std::istreambuf_iterator<char>(std::cin), {});
  if (chat_ && !text.empty() && text.back() == '\n') text.pop_back();
  if (text.empty())
    return fail(Code::bad_request, "standard input is empty: give a prompt there or with -p");
  requests.push_back(make_request(std::move(text)));
  return requests;
}

/// Submits all requests; from now on Ctrl-C cancels them.
Status Run::submit(Outputs& outputs, std::vector<Request> requests) {
  {
    const std::lock_guard lock(ids_mutex_);
    ids_.clear();
  }
  Interrupts::on_interrupt([this] {
    const std::lock_guard lock(ids_mutex_);
    for (const RequestId id : ids_) engine_->cancel(id);
  });
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::lock_guard lock(ids_mutex_);
    auto id = engine_->submit(std::move(requests[i]),
                              [&outputs, i](const Event& event) { outputs.push(i, event); });
    if (!id.ok()) return std::move(id).error();
    ids_.push_back(*id);
    if (Interrupts::interrupted()) engine_->cancel(*id);
  }
  return {};
}

ExitCode Run::answer_all(std::vector<Request> requests) {
  Outputs outputs(requests.size());
  const Status submitted = submit(outputs, std::move(requests));
  if (!submitted.ok()) {
    for (const RequestId id : ids_) engine_->cancel(id);
    engine_->wait_idle();
    return report(submitted.error());
  }
  print(outputs);
  engine_->wait_idle();
  if (moe_report_) show_experts_by_prompt(outputs);
  ExitCode code = Interrupts::interrupted() ? kInterrupted : kOk;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto& error = outputs.at(i).last->error;
    if (error) code = report(*error);
  }
  return code;
}

void Run::print(Outputs& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (json_) {
      for (size_t seen = 0; !outputs.ended(i);) seen += outputs.wait_for_text(i, seen).size();
      continue;
    }
    if (outputs.size() > 1)
      note(styled(clip(fmt::format("[{}/{}] {}", i + 1, outputs.size(), printable(prompts_[i])),
                       err_look_.columns - 1),
                  Style::bold, err_look_));
    print_one(outputs, i);
  }
  if (!json_) return;
  std::string text;
  JsonWriter json(text);
  if (outputs.size() > 1) json.begin_object().key("outputs").begin_array();
  for (size_t i = 0; i < outputs.size(); ++i) write_output(json, outputs.at(i));
  if (outputs.size() > 1) json.end_array().end_object();
  std::printf("%s\n", text.c_str());
}

void Run::show_experts_by_prompt(const Outputs& outputs) const {
  std::vector<PromptExperts> prompts;
  for (size_t i = 0; i < outputs.size() && i < prompts_.size(); ++i)
    prompts.push_back({printable(prompts_[i]), &outputs.at(i).last->moe});
  const std::string text = prompt_report(prompts, err_look_);
  if (!text.empty()) std::fputs(('\n' + text).c_str(), stderr);
}

/// Follows one request to its end. On a terminal, control characters are shown, not obeyed.
void Run::print_one(Outputs& outputs, size_t index) {
  for (size_t seen = 0;;) {
    const bool ended = outputs.ended(index);  // before the text is taken: none comes after the end
    const std::string piece =
        ended ? outputs.at(index).text.substr(seen) : outputs.wait_for_text(index, seen);
    seen += piece.size();
    const std::string shown = out_look_.terminal ? printable(piece, Keep::line_breaks) : piece;
    std::fwrite(shown.data(), 1, shown.size(), stdout);
    std::fflush(stdout);
    if (ended) break;
  }
  std::fputc('\n', stdout);
  std::fflush(stdout);
  note(styled(timing_text(outputs.at(index)), Style::dim, err_look_));
}

/// A prompt per line; with --chat, a conversation.
ExitCode Run::converse() {
  note(chat_ ? "Type a message; end with Ctrl-D." : "Type a prompt; end with Ctrl-D.");
  std::vector<Message> history;
  for (std::string line;;) {
    Interrupts::on_interrupt({});
    std::fputs(styled("> ", Style::bold, err_look_).c_str(), stderr);
    std::fflush(stderr);
    if (!std::getline(std::cin, line)) break;
    if (line.empty()) continue;
    Request request = make_request(line);
    if (chat_) {
      history.push_back(request.messages.back());
      request.messages = history;
    }
    Outputs outputs(1);
    std::vector<Request> requests;
    requests.push_back(std::move(request));
    const Status submitted = submit(outputs, std::move(requests));
    if (!submitted.ok()) {
      report(submitted.error());
      if (chat_) history.pop_back();
      continue;
    }
    print_one(outputs, 0);
    engine_->wait_idle();  // the sink has returned: `outputs` may go
    if (Interrupts::interrupted()) return kInterrupted;
    if (const auto& error = outputs.at(0).last->error) return report(*error);
    if (chat_) history.push_back({"assistant", outputs.at(0).text});
  }
  std::fputc('\n', stderr);
  return kOk;
}

/// Reports and the trace; the exit code of the run unless writing fails.
ExitCode Run::finish(ExitCode code) {
  Interrupts::on_interrupt({});
  const EngineStats stats = engine_->stats();
  if (moe_report_) std::fputs(('\n' + expert_report(stats, err_look_)).c_str(), stderr);
  if (model_.engine.profile) std::fputs(('\n' + phase_report(stats, err_look_)).c_str(), stderr);
  if (phases_by_layer_) std::fputs(('\n' + layer_phase_report(stats, err_look_)).c_str(), stderr);
  if (!trace_file_.empty()) {
    const Status written = write_file_atomic(trace_file_, engine_->chrome_trace());
    if (!written.ok()) return report(written.error());
    note(fmt::format("trace: {}", trace_file_));
  }
  return code;
}

void Run::note(const std::string& text) const {
  if (!model_.quiet) std::fprintf(stderr, "%s\n", text.c_str());
}

}  // namespace

std::unique_ptr<Command> make_run(CLI::App& parent, CLI::App*& app) {
  return std::make_unique<Run>(parent, app);
}

}  // namespace switchyard::cli
