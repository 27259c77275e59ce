// SPDX-License-Identifier: Apache-2.0
// switchyard record: runs prompts through the engine, as a service would, and writes where their
// tokens were routed. What `switchyard stats` and `switchyard plan` read.
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "switchyard/version.h"

#include "base/files.h"
#include "base/result.h"
#include "cli/command.h"
#include "cli/interrupts.h"
#include "cli/model_options.h"
#include "cli/prompts.h"
#include "cli/sampling_options.h"
#include "cli/trace_sink.h"
#include "text/tokenizer.h"

namespace switchyard::cli {
namespace {

constexpr uint64_t kMostTextBytes = uint64_t{1} << 30;

/// A request with the place that it came from.
struct Job {
  Request request;
  std::string where;
};

/// Submits jobs, a bounded number at a time, and waits for them. The sinks run on the loop thread.
class Traffic {
 public:
  Traffic(Engine& engine, size_t most_at_once) : engine_(engine), most_at_once_(most_at_once) {}

  /// The first error of a request ends the traffic; Ctrl-C ends it without one.
  Status run(std::vector<Job> jobs);

 private:
  void wait_for_room();
  Status submit(Job job);
  void on_event(const Event& event, const std::string& where);
  void cancel_all();

  Engine& engine_;
  size_t most_at_once_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::deque<RequestId> ids_;
  size_t running_ = 0;
  Status status_;
};

void Traffic::wait_for_room() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return running_ < most_at_once_ || !status_.ok(); });
}

void Traffic::on_event(const Event& event, const std::string& where) {
  if (event.finish == FinishReason::none) return;
  const std::lock_guard lock(mutex_);
  --running_;
  if (event.error && status_.ok()) status_ = with_context(*event.error, where);
  ended_.notify_one();
}

Status Traffic::submit(Job job) {
  {
    const std::lock_guard lock(mutex_);
    SWITCHYARD_TRY(status_);
    ++running_;
  }
  auto id = engine_.submit(std::move(job.request), [this, where = job.where](const Event& event) {
    on_event(event, where);
  });
  const std::lock_guard lock(mutex_);
  if (id.ok()) {
    ids_.push_back(*id);
    return {};
  }
  --running_;
  return with_context(std::move(id).error(), job.where);
}

void Traffic::cancel_all() {
  const std::lock_guard lock(mutex_);
  for (const RequestId id : ids_) engine_.cancel(id);
}

Status Traffic::run(std::vector<Job> jobs) {
  Interrupts::on_interrupt([this] { cancel_all(); });
  Status status;
  for (Job& job : jobs) {
    wait_for_room();
    if (Interrupts::interrupted()) break;
    status = submit(std::move(job));
    if (!status.ok()) break;
  }
  if (!status.ok() || Interrupts::interrupted()) cancel_all();
  engine_.wait_idle();
  Interrupts::on_interrupt({});
  return status.ok() ? status_ : status;
}

class Record final : public Command {
 public:
  Record(CLI::App& parent, CLI::App*& app);
  ExitCode run() override;

 private:
  Result<std::vector<Prompt>> read_inputs() const;
  Result<std::vector<Job>> make_jobs(std::vector<Prompt> prompts) const;
  Status add_text(const std::string& path, const text::Tokenizer& tokenizer,
                  std::vector<Job>& jobs) const;
  Request make_request(const std::string& topic) const;
  Status record(std::vector<Prompt> prompts);
  std::string topic_of(const std::string& path) const { return topic_ ? *topic_ : stem(path); }

  ModelOptions model_;
  SamplingOptions sampling_;
  std::vector<std::string> prompts_, inputs_, texts_;
  std::optional<std::string> topic_;
  std::string output_;
  int chunk_tokens_ = 512;
  bool picks_ = false, prefill_only_ = false;
  std::unique_ptr<Engine> engine_;
  TraceSink sink_;
};

Record::Record(CLI::App& parent, CLI::App*& app) {
  app = parent.add_subcommand("record", "Runs prompts and writes where their tokens were routed");
  model_.declare(*app);
  app->add_option("-p,--prompt", prompts_, "A prompt; may be given several times")
      ->allow_extra_args(false);
  app->add_option("--input", inputs_,
                  "A file of prompts, one a line, or with the ending .jsonl objects such as "
                  "{\"prompt\": \"...\", \"topic\": \"...\"}; one or several");
  app->add_option("--text", texts_,
                  "A file that is one long text, cut into prompts; one or several");
  app->add_option("--chunk-tokens", chunk_tokens_, "Longest piece of a --text")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  app->add_option("--topic", topic_,
                  "Label of prompts without one (default: the name of their file)");
  app->add_option("-o,--output", output_, "The trace to write, such as chat.swt")->required();
  app->add_flag("--picks", picks_, "Every pick with its weight, not the counts of a step alone");
  app->add_flag("--prefill-only", prefill_only_, "Read the prompts and answer nothing");
  sampling_.declare(*app);
}

Result<std::vector<Prompt>> Record::read_inputs() const {
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < prompts_.size(); ++i)
    prompts.push_back({prompts_[i], topic_.value_or(""), fmt::format("prompt {}", i + 1)});
  for (const std::string& path : inputs_) {
    SWITCHYARD_ASSIGN(std::vector<Prompt> more, read_prompts(path, topic_of(path)));
    for (Prompt& prompt : more) prompts.push_back(std::move(prompt));
  }
  if (prompts.empty() && texts_.empty())
    return fail(Code::bad_request, "nothing to record: give -p, --input or --text");
  return prompts;
}

Request Record::make_request(const std::string& topic) const {
  Request request;
  request.moe_stats = false;  // the trace has them
  request.sampling = sampling_.apply(engine_->default_sampling());
  if (prefill_only_) request.sampling.max_tokens = 1;
  request.topic = topic;
  return request;
}

Status Record::add_text(const std::string& path, const text::Tokenizer& tokenizer,
                        std::vector<Job>& jobs) const {
  SWITCHYARD_ASSIGN(const std::string text, read_text_file(path, kMostTextBytes));
  auto encoded = tokenizer.encode(text, {.add_special_tokens = false, .parse_special = false});
  if (!encoded.ok()) return with_context(std::move(encoded).error(), path);
  const std::vector<int32_t>& ids = *encoded;
  if (ids.empty()) return fail(Code::bad_request, "{}: is empty: expected a text", path);
  const auto room = static_cast<size_t>(std::max(engine_->summary().max_model_len - 1, 1));
  const size_t piece = std::min(static_cast<size_t>(chunk_tokens_), room);
  for (size_t begin = 0; begin < ids.size(); begin += piece) {
    const size_t end = std::min(begin + piece, ids.size());
    Request request = make_request(topic_of(path));
    request.prompt_tokens.assign(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                 ids.begin() + static_cast<std::ptrdiff_t>(end));
    jobs.push_back({std::move(request), fmt::format("{}: tokens {} to {}", path, begin, end)});
  }
  return {};
}

Result<std::vector<Job>> Record::make_jobs(std::vector<Prompt> prompts) const {
  std::vector<Job> jobs;
  for (Prompt& prompt : prompts) {
    Request request = make_request(prompt.topic);
    request.prompt = std::move(prompt.text);
    jobs.push_back({std::move(request), std::move(prompt.where)});
  }
  if (texts_.empty()) return jobs;
  SWITCHYARD_ASSIGN(const auto tokenizer, text::open_tokenizer(model_.engine.model));
  for (const std::string& path : texts_) SWITCHYARD_TRY(add_text(path, *tokenizer, jobs));
  return jobs;
}

Status Record::record(std::vector<Prompt> prompts) {
  SWITCHYARD_ASSIGN(std::vector<Job> jobs, make_jobs(std::move(prompts)));
  const ModelSummary& summary = engine_->summary();
  if (summary.moe_layers == 0)
    return fail(Code::unsupported, "{}: has no MoE layer, so there is no routing to record",
                model_.engine.model);
  std::string folder = model_.engine.model;
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  SWITCHYARD_TRY(sink_.open(
      output_, {folder.substr(folder.find_last_of('/') + 1), std::string("switchyard ") + kVersion,
                summary.moe_layers, summary.experts, summary.top_k, picks_}));
  Traffic traffic(*engine_, 4 * static_cast<size_t>(model_.engine.max_sequences));
  SWITCHYARD_TRY(traffic.run(std::move(jobs)));
  return sink_.finish();
}

ExitCode Record::run() {
  if (const Status status = sampling_.apply({}).check(); !status.ok())
    return report(status.error());
  auto prompts = read_inputs();
  if (!prompts.ok()) return report(prompts.error());
  model_.engine.on_routed_step = [this](const RoutedStep& step) { sink_.push(step); };
  model_.engine.routed_picks = picks_;
  model_.engine.prefix_cache = false;  // a trace holds every token
  auto engine = open_engine(model_);
  if (!engine.ok()) return report(engine.error());
  engine_ = *std::move(engine);
  if (const Status status = record(*std::move(prompts)); !status.ok())
    return report(status.error());
  if (!model_.quiet)
    std::fprintf(stderr, "%s: %s tokens in %s steps%s\n", output_.c_str(),
                 count_text(sink_.num_tokens()).c_str(), count_text(sink_.num_steps()).c_str(),
                 Interrupts::interrupted() ? ", interrupted" : "");
  return Interrupts::interrupted() ? kInterrupted : kOk;
}

}  // namespace

std::unique_ptr<Command> make_record(CLI::App& parent, CLI::App*& app) {
  return std::make_unique<Record>(parent, app);
}

}  // namespace switchyard::cli
