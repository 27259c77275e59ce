// SPDX-License-Identifier: Apache-2.0
// switchyard bench serve: load on any server with OpenAI's interface, at one or more concurrencies or rates of arrival, and
// what its clients saw of it. Nothing but standard fields is sent unless asked for (--ignore-eos).
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/result.h"
#include "cli/bench.h"
#include "cli/bench_serve_report.h"
#include "cli/command.h"
#include "cli/open_files.h"
#include "cli/prompts.h"
#include "client/fetch.h"
#include "client/load.h"
#include "client/summary.h"

namespace switchyard::cli {
namespace {

constexpr uint32_t kWarmUpStream = 0x80000000;  // its requests are none of the measured ones

class BenchServe final : public Command {
 public:
  BenchServe(CLI::App& parent, CLI::App*& app);
  ExitCode run() override;

 private:
  void declare_load(CLI::App& app);
  void declare_requests(CLI::App& app);
  void declare_output(CLI::App& app);
  Status prepare();
  Status ask_server();
  Result<std::vector<client::Point>> points() const;
  Status warm_up(const client::Point& point) const;
  Result<ServeRow> measure(const client::Point& point) const;

  std::string url_, model_, prompt_file_, endpoint_ = "completions", key_, slo_text_;
  std::string input_ = "128", output_ = "128", format_ = "text", label_;
  std::vector<int> concurrency_;
  std::vector<double> rates_;
  int64_t num_requests_ = 0;
  int vocab_ = 0, warm_up_ = 1;
  double duration_s_ = 0, timeout_s_ = 600;
  client::Target target_;
  client::Workload workload_;
  client::Slo slo_;
};

BenchServe::BenchServe(CLI::App& parent, CLI::App*& app) {
  app = parent.add_subcommand(
      "serve", "Load on a server with OpenAI's interface, ours or another, seen from its clients");
  app->add_option("url", url_, "The server, as http://127.0.0.1:8000")->required();
  declare_load(*app);
  declare_requests(*app);
  declare_output(*app);
}

void BenchServe::declare_load(CLI::App& app) {
  app.add_option(
         "-c,--concurrency", concurrency_,
         "Clients that each send a request when their last has ended, as 1,8,32 (default 1); "
         "with --request-rate: one number, how many requests may be out at once")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 16));
  app.add_option(
         "--request-rate", rates_,
         "Requests a second that arrive by chance (Poisson), whatever the server does, as 2,4")
      ->delimiter(',')
      ->check(CLI::Range(1e-3, 1e6));
  app.add_option("-n,--num-requests", num_requests_,
                 "Requests of each point (default: 100; with --duration: no limit)")
      ->check(CLI::Range(1, 1 << 30));
  app.add_option("--duration", duration_s_, "Seconds after which no request of a point begins")
      ->check(CLI::PositiveNumber);
  app.add_option("--timeout", timeout_s_, "Seconds after which a request has failed")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--warmup", warm_up_, "Requests before each point that are not counted")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--cancel-rate", workload_.cancel_rate,
                 "Share of requests whose client leaves: half within a second, half mid-answer")
      ->check(CLI::Range(0.0, 1.0));
}

void BenchServe::declare_requests(CLI::App& app) {
  app.add_option("--endpoint", endpoint_, "completions or chat")
      ->check(CLI::IsMember({"completions", "chat"}))
      ->capture_default_str();
  app.add_option("--model", model_,
                 "The model to ask for (default: the first that the server names)");
  app.add_option(
      "--prompts", prompt_file_,
      "Prompts from a file, one a line, or JSON lines with \"prompt\", in turn (default: "
      "random token ids)");
  app.add_option("--input-tokens", input_, "Random ids of each prompt, as 128 or 64:256")
      ->capture_default_str();
  app.add_option("--output-tokens", output_, "max_tokens of each request, as 128 or 64:256")
      ->capture_default_str();
  app.add_option("--vocab", vocab_, "Random ids are below this (default: what the server tells)")
      ->check(CLI::Range(2, 1 << 24));
  app.add_flag("--ignore-eos", workload_.ignore_eos,
               "Ask for answers of full length (an extension that many servers know)");
  app.add_option("--temperature", workload_.temperature, "0: greedy")
      ->check(CLI::Range(0.0, 2.0))
      ->capture_default_str();
  app.add_option("--seed", workload_.seed, "Of prompts, lengths, arrivals and cancellations")
      ->capture_default_str();
  app.add_option("--api-key", key_,
                 "Sent as Authorization: Bearer, in the clear. Others on this machine can read "
                 "command lines: "
                 "better by the variable")
      ->envname("SWITCHYARD_API_KEY");
}

void BenchServe::declare_output(CLI::App& app) {
  app.add_option("--slo", slo_text_,
                 "Milliseconds that a good request keeps, as ttft:200,itl:50; of ttft, tpot, itl "
                 "(mean gap) and e2e");
  app.add_option("--label", label_, "A word for the rows of JSON");
  app.add_option("-o,--output", format_, "text, md, json or jsonl")
      ->check(CLI::IsMember({"text", "md", "json", "jsonl"}))
      ->capture_default_str();
}

ExitCode BenchServe::run() {
  calibrate_clock();
  (void)raise_open_files();  // many clients are many connections
  const Status prepared = prepare();
  if (!prepared.ok()) return report(prepared.error());
  const auto sweep = points();
  if (!sweep.ok()) return report(sweep.error());
  std::vector<ServeRow> rows;
  for (const client::Point& point : *sweep) {
    auto row = measure(point);
    if (!row.ok()) return report(row.error());
    if (format_ == "text") std::fputs(serve_block(*row).c_str(), stdout);
    if (format_ == "jsonl") std::fputs(serve_json_line(*row).c_str(), stdout);
    std::fflush(stdout);
    rows.push_back(*std::move(row));
  }
  if (format_ == "md") std::fputs(serve_table(rows).c_str(), stdout);
  if (format_ == "json") std::fputs(serve_json(rows).c_str(), stdout);
  return report_failures(rows);
}

Status BenchServe::prepare() {
  SWITCHYARD_ASSIGN(target_, client::parse_target(url_));
  SWITCHYARD_ASSIGN(slo_, client::parse_slo(slo_text_));
  SWITCHYARD_ASSIGN(workload_.input_tokens, client::parse_range(input_, "--input-tokens"));
  SWITCHYARD_ASSIGN(workload_.output_tokens, client::parse_range(output_, "--output-tokens"));
  workload_.endpoint = endpoint_ == "chat" ? client::Endpoint::chat : client::Endpoint::completions;
  if (!prompt_file_.empty()) {
    SWITCHYARD_ASSIGN(const auto prompts, read_prompts(prompt_file_, ""));
    for (const Prompt& prompt : prompts) workload_.prompts.push_back(prompt.text);
  } else if (workload_.endpoint == client::Endpoint::chat) {
    return fail(Code::bad_request,
                "--endpoint chat needs texts: name a file of them with --prompts");
  }
  SWITCHYARD_TRY(ask_server());
  workload_.model = model_;
  workload_.vocab = vocab_;
  return {};
}

/// The model's name, and the size of its vocabulary where the server tells it (ours and llama-server do).
Status BenchServe::ask_server() {
  const bool needs_vocab = vocab_ == 0 && workload_.prompts.empty();
  if (!model_.empty() && !needs_vocab) return {};
  SWITCHYARD_ASSIGN(const client::Page page, client::fetch(target_, "/v1/models", key_));
  const auto json = parse_json(page.body, "/v1/models");
  const Json* const data = json.ok() ? json->find("data") : nullptr;
  if (page.status != 200 || data == nullptr || !data->is_array() || data->as_array().empty())
    return fail(Code::unavailable,
                "{}/v1/models: expected a list of models, found status {}: {}; say --model and "
                "--vocab to go without",
                url_, page.status, page.body.substr(0, 200));
  for (const Json& entry : data->as_array()) {
    const Json* const id = entry.find("id");
    if (id == nullptr || !id->is_string()) continue;
    if (model_.empty()) model_ = id->as_string();
    if (id->as_string() != model_) continue;
    const Json* const meta = entry.find("meta");
    for (const char* const name : {"vocab", "n_vocab"}) {
      const Json* const vocab = meta == nullptr ? nullptr : meta->find(name);
      if (needs_vocab && vocab != nullptr && vocab->is_integer())
        vocab_ = static_cast<int>(std::clamp<int64_t>(vocab->as_int(), 0, 1 << 24));
    }
  }
  if (needs_vocab && vocab_ < 2)
    return fail(Code::bad_request,
                "the server does not tell the size of its vocabulary: say --vocab, or give texts "
                "with --prompts");
  return {};
}

Result<std::vector<client::Point>> BenchServe::points() const {
  if (!rates_.empty() && concurrency_.size() > 1)
    return fail(Code::bad_request,
                "--request-rate goes with one --concurrency, found {}: sweep one of them",
                concurrency_.size());
  client::Point point;
  point.num_requests = num_requests_ > 0 ? num_requests_ : duration_s_ > 0 ? 0 : 100;
  point.duration_s = duration_s_;
  point.timeout_s = timeout_s_;
  std::vector<client::Point> sweep;
  const std::vector<int> loops = concurrency_.empty() ? std::vector<int>{1} : concurrency_;
  for (const int concurrency : rates_.empty() ? loops : std::vector<int>()) {
    point.concurrency = concurrency;
    sweep.push_back(point);
  }
  for (const double rate : rates_) {
    point.concurrency = concurrency_.empty() ? 0 : concurrency_.front();
    point.rate = rate;
    sweep.push_back(point);
  }
  for (size_t i = 0; i < sweep.size(); ++i) sweep[i].stream = static_cast<uint32_t>(i);
  return sweep;
}

/// As many at once as the point has, so that its connections are no news to the server.
Status BenchServe::warm_up(const client::Point& point) const {
  if (warm_up_ == 0) return {};
  client::Workload workload = workload_;
  workload.cancel_rate = 0;
  client::Point warm = point;
  warm.rate = 0;
  warm.duration_s = 0;
  warm.num_requests = warm_up_;
  warm.concurrency = std::min(std::max(point.concurrency, 1), warm_up_);
  warm.stream |= kWarmUpStream;
  SWITCHYARD_ASSIGN(const client::Record record, client::play(target_, workload, key_, warm));
  for (const client::Outcome& outcome : record.outcomes)
    if (outcome.end != client::Outcome::End::answered)
      return fail(Code::unavailable, "a request of the warm-up failed: {}: {}", outcome.failure,
                  outcome.detail);
  return {};
}

Result<ServeRow> BenchServe::measure(const client::Point& point) const {
  SWITCHYARD_TRY(warm_up(point));
  SWITCHYARD_ASSIGN(const client::Record record, client::play(target_, workload_, key_, point));
  return ServeRow{label_, url_, workload_, point, slo_, client::summarize(record, slo_)};
}

}  // namespace

std::unique_ptr<Command> make_bench_serve(CLI::App& parent, CLI::App*& app) {
  return std::make_unique<BenchServe>(parent, app);
}

}  // namespace switchyard::cli
