// SPDX-License-Identifier: Apache-2.0
// switchyard bench quality: what a capacity costs. For each capacity factor the perplexity of held-out
// text (exp of the mean negative log-likelihood of a token; text_score.h says which tokens), the
// share of picks that experts turned away, and the tokens per second, logits of every position included.
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/files.h"
#include "base/json.h"
#include "base/result.h"
#include "cli/bench.h"
#include "cli/model_options.h"
#include "cli/text_score.h"
#include "engine/host_memory.h"
#include "engine/memory_plan.h"
#include "model/capacity_limit.h"
#include "model/devices.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace switchyard::cli {
namespace {

constexpr uint64_t kMaxInputBytes = uint64_t{1} << 30;

struct Input {
  std::string path;
  std::vector<int32_t> ids;
};

struct Row {
  std::string input;  // a path, or "all"
  float factor = 0;
  TextScore score;
  double dropless_perplexity = 0;  // of the same input; 0: not measured
};

class BenchQuality final : public Command {
 public:
  BenchQuality(CLI::App& parent, CLI::App*& app);
  ExitCode run() override;

 private:
  Status measure();
  Status read_inputs();
  Result<std::unique_ptr<model::Model>> load(float factor);
  Status score_all(float factor);
  void compare_with_dropless();
  std::string table_text() const;
  std::string json_text() const;
  void write(JsonWriter& json, const Row& row) const;

  ModelOptions model_;
  std::vector<std::string> paths_;
  std::vector<float> factors_{0, 1, 1.25f, 1.5f, 2};
  WindowSpec windows_;
  std::string format_ = "md";

  model::ModelConfig config_;
  std::optional<Pool> pool_;
  std::vector<Input> inputs_;
  std::vector<Row> rows_;
  std::string kernel_;
};

BenchQuality::BenchQuality(CLI::App& parent, CLI::App*& app) {
  app = parent.add_subcommand("quality", "Perplexity and drop rate by capacity factor");
  model_.declare_model(*app);
  app->add_option("--input", paths_,
                  "A text file; may be given several times. Special tokens may be written in it")
      ->required()
      ->allow_extra_args(false);
  app->add_option("--capacity", factors_, "Capacity factors, as 0,1,1.25 (0: dropless)")
      ->delimiter(',')
      ->capture_default_str();
  model_.declare_capacity_rules(*app);
  app->add_option("-c,--context", windows_.context, "Tokens of a window; windows do not overlap")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  app->add_option("--unscored", windows_.unscored,
                  "First tokens of each window that are context alone (llama.cpp: half of it)")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  app->add_option("-o,--output", format_, "md, csv, json or jsonl")
      ->check(CLI::IsMember({"md", "csv", "json", "jsonl"}))
      ->capture_default_str();
}

ExitCode BenchQuality::run() {
  if (const Status status = measure(); !status.ok()) return report(status.error());
  const bool table = format_ == "md" || format_ == "csv";
  std::fputs((table ? table_text() : json_text()).c_str(), stdout);
  return kOk;
}

Status BenchQuality::measure() {
  model_.install_log();
  windows_.step_tokens = std::min(model_.engine.max_step_tokens, windows_.context);
  if (windows_.unscored >= windows_.context)
    return fail(Code::bad_request, "--unscored is {}, expected less than --context ({})",
                windows_.unscored, windows_.context);
  SWITCHYARD_ASSIGN(config_, model::Model::read_config(model_.engine.model));
  for (const float factor : factors_) {  // a wrong one must not wait for the others
    model::ModelConfig config = config_;
    SWITCHYARD_TRY(model::limit_capacity(config, model_.capacity_limit(factor)));
  }
  SWITCHYARD_TRY(read_inputs());
  pool_.emplace(PoolOptions{model_.engine.threads});
  for (const float factor : factors_) SWITCHYARD_TRY(score_all(factor));
  compare_with_dropless();
  return {};
}

Status BenchQuality::read_inputs() {
  SWITCHYARD_ASSIGN(const auto tokenizer, text::open_tokenizer(model_.engine.model));
  for (const std::string& path : paths_) {
    SWITCHYARD_ASSIGN(const std::string text, read_text_file(path, kMaxInputBytes));
    auto ids = tokenizer->encode(
        text, text::EncodeOptions{.add_special_tokens = true, .parse_special = true});
    if (!ids.ok()) return with_context(ids.error(), path);
    const auto beyond =
        std::find_if(ids->begin(), ids->end(), [&](int32_t id) { return id >= config_.vocab; });
    if (beyond != ids->end())
      return fail(Code::bad_file, "{}: the tokenizer gives token {}, but the model knows {}", path,
                  *beyond, config_.vocab);
    inputs_.push_back({path, *std::move(ids)});
  }
  return {};
}

Result<std::unique_ptr<model::Model>> BenchQuality::load(float factor) {
  model::ModelConfig config = config_;
  SWITCHYARD_TRY(model::limit_capacity(config, model_.capacity_limit(factor)));
  EngineOptions options = model_.engine_options();
  const DType dtype = engine::precision_dtype(options.precision);
  options.max_step_tokens = options.max_sequences = windows_.step_tokens;
  options.max_model_len = windows_.context;
  SWITCHYARD_ASSIGN(const DeviceId device, model::parse_device(options.device));
  const auto needs = engine::memory_needs_on(device, config, options);
  windows_.block_tokens = options.block_tokens;
  options.kv_cache_bytes = windows_.num_blocks() * needs.kv_block_bytes;
  SWITCHYARD_ASSIGN(const int64_t available, model::find_device(device)->available_bytes(
                                                 device.index, engine::host_memory().available));
  SWITCHYARD_TRY(engine::plan_memory(needs, options, available));
  const model::LoadOptions load{.dtype = dtype,
                                .max_step_tokens = windows_.step_tokens,
                                .max_sequences = windows_.step_tokens,
                                .block_tokens = options.block_tokens,
                                .num_kv_blocks = windows_.num_blocks(),
                                .max_blocks_per_sequence = static_cast<int>(windows_.num_blocks()),
                                .on_progress = {}};
  return model::Model::load(options.model, config, load, Stream(device, *pool_));
}

Status BenchQuality::score_all(float factor) {
  SWITCHYARD_ASSIGN(const auto model, load(factor));
  kernel_ = std::string(model->expert_kernel());
  Row all{"all", factor, {}, 0};
  for (const Input& input : inputs_) {
    if (!model_.quiet)
      std::fprintf(stderr, "capacity %g: %s\n", static_cast<double>(factor), input.path.c_str());
    auto score = score_text(*model, *pool_, input.ids, windows_);
    if (!score.ok()) return with_context(score.error(), input.path);
    all.score.add(*score);
    rows_.push_back({input.path, factor, *std::move(score), 0});
  }
  if (inputs_.size() > 1) rows_.push_back(std::move(all));
  return {};
}

void BenchQuality::compare_with_dropless() {
  for (Row& row : rows_)
    for (const Row& other : rows_)
      if (other.factor == 0 && other.input == row.input)
        row.dropless_perplexity = other.score.perplexity();
}

std::string percent(double share) { return fmt::format("{:.2f}", 100 * share); }

std::string BenchQuality::table_text() const {
  Table table({{"input", Align::left},
               {"capacity", Align::right},
               {"tokens", Align::right},
               {"perplexity", Align::right},
               {"nats/token", Align::right},
               {"vs dropless", Align::right},
               {"dropped %", Align::right},
               {"by layer %", Align::left},
               {"unrouted", Align::right},
               {"t/s", Align::right}});
  for (const Row& row : rows_) {
    const TextScore& score = row.score;
    std::string layers;
    for (size_t i = 0; i < score.layers.size(); ++i)
      layers += (i > 0 ? " " : "") + percent(score.drop_rate(i));
    table.add(
        {row.input, fmt::format("{}", row.factor), std::to_string(score.tokens),
         fmt::format("{:.4f}", score.perplexity()), fmt::format("{:.4f}", score.nats_per_token()),
         row.dropless_perplexity > 0
             ? fmt::format("{:+.2f} %", 100 * (score.perplexity() / row.dropless_perplexity - 1))
             : "",
         percent(score.drop_rate()), layers, std::to_string(score.unrouted_tokens),
         fmt::format("{:.1f}", score.tokens_per_s())});
  }
  return format_ == "csv" ? table.csv() : table.markdown();
}

void BenchQuality::write(JsonWriter& json, const Row& row) const {
  const TextScore& score = row.score;
  json.begin_object().field("model", config_.architecture).field("path", model_.engine.model);
  json.field("input", row.input).field("dtype", model_.dtype).field("kernel", kernel_);
  json.field("threads", pool_->num_threads());
  json.field("context", windows_.context).field("unscored", windows_.unscored);
  json.field("step_tokens", windows_.step_tokens);
  json.field("capacity_factor", static_cast<double>(row.factor))
      .field("overflow", model_.engine.overflow);
  json.field("capacity_rounding", model_.engine.capacity_rounding);
  json.field("tokens", score.tokens).field("nats_per_token", score.nats_per_token());
  json.field("perplexity", score.perplexity());
  json.field("drop_rate", score.drop_rate()).field("unrouted_tokens", score.unrouted_tokens);
  json.key("layers").begin_array();
  for (size_t i = 0; i < score.layers.size(); ++i)
    json.begin_object()
        .field("picks", score.layers[i].picks)
        .field("dropped", score.layers[i].dropped)
        .field("drop_rate", score.drop_rate(i))
        .end_object();
  json.end_array().field("tokens_per_s", score.tokens_per_s()).end_object();
}

std::string BenchQuality::json_text() const {
  std::string text;
  if (format_ == "json") {
    JsonWriter json(text, 2);
    json.begin_array();
    for (const Row& row : rows_) write(json, row);
    json.end_array();
    return text + '\n';
  }
  for (const Row& row : rows_) {
    JsonWriter json(text);
    write(json, row);
    text += '\n';
  }
  return text;
}

}  // namespace

std::unique_ptr<Command> make_bench_quality(CLI::App& parent, CLI::App*& app) {
  return std::make_unique<BenchQuality>(parent, app);
}

}  // namespace switchyard::cli
