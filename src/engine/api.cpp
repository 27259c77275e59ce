// SPDX-License-Identifier: Apache-2.0
// Behind include/switchyard/engine.h: opens the parts of an engine and keeps them together.
#include <algorithm>
#include <mutex>
#include <optional>

#include "switchyard/engine.h"

#include "base/log.h"
#include "base/trace.h"
#include "engine/expert_metrics.h"
#include "engine/generation_config.h"
#include "engine/host_memory.h"
#include "engine/loop.h"
#include "engine/loop_thread.h"
#include "engine/memory_plan.h"
#include "engine/model_facts.h"
#include "engine/number_tokenizer.h"
#include "model/capacity_limit.h"
#include "model/devices.h"
#include "model/geometries.h"
#include "model/model.h"
#include "text/chat.h"
#include "text/token_bytes.h"
#include "text/tokenizer.h"

namespace switchyard {
namespace {

using engine::EngineLoop;

/// The real model behind the loop's port.
class LoadedModel final : public engine::ModelPort {
 public:
  explicit LoadedModel(std::unique_ptr<model::Model> model) : model_(std::move(model)) {}
  Result<model::StepOutput> forward(const model::StepInput& input,
                                    model::RoutingObserver* observer) override {
    return model_->forward(input, observer);
  }
  bool can_pick() const noexcept override { return model_->can_pick(); }
  Result<TensorView> read_logits() override { return model_->read_logits(); }
  model::AheadCounts steps_ahead() const noexcept override { return model_->steps_ahead(); }
  model::GuessCounts guesses() const noexcept override { return model_->guesses(); }
  void between_steps() override { model_->between_steps(); }
  const model::Model& model() const noexcept { return *model_; }

 private:
  std::unique_ptr<model::Model> model_;
};

/// What is read before any weight is.
struct Folder {
  model::ModelConfig config;
  std::unique_ptr<text::Tokenizer> tokenizer;
  /// Or why there is none that works: then only requests with messages are refused.
  Result<text::ChatTemplate> chat = Error{};
  engine::GenerationDefaults defaults;
};

Result<text::ChatTemplate> open_chat(const std::string& path) {
  auto chat = text::ChatTemplate::open(path);
  if (!chat.ok()) {
    log(LogLevel::warning, "chat is off, prompts work: {}", chat.error().message);
    return std::move(chat).error();
  }
  if (chat->has_value()) return **std::move(chat);
  return fail(Code::bad_request,
              "{} has no chat template: give a prompt, or add chat_template to "
              "tokenizer_config.json",
              path);
}

Result<Folder> read_folder(const std::string& path) {
  Folder folder;
  SWITCHYARD_ASSIGN(folder.config, model::Model::read_config(path));
  SWITCHYARD_ASSIGN(folder.tokenizer, text::open_tokenizer(path));
  folder.chat = open_chat(path);
  SWITCHYARD_ASSIGN(folder.defaults, engine::read_generation_config(path));
  // generation_config.json, else config.json, else the tokenizer's.
  auto& eos = folder.defaults.eos_ids;
  if (eos.empty()) eos = folder.config.eos_ids;
  if (eos.empty() && folder.tokenizer->eos_id()) eos.push_back(*folder.tokenizer->eos_id());
  std::erase_if(eos, [&](int32_t id) { return id < 0 || id >= folder.config.vocab; });
  return folder;
}

/// What a folder of random weights would say.
Result<Folder> read_random(const std::string& name, float spread) {
  constexpr float kMostSpread = 10;
  if (!(spread >= 0 && spread <= kMostSpread))
    return fail(
        Code::bad_request,
        "experts' mean logits cannot be {} deviations apart: give a spread from 0 (even) to {}",
        spread, kMostSpread);
  Folder folder;
  SWITCHYARD_ASSIGN(folder.config, model::read_geometry(name));
  folder.tokenizer = engine::make_number_tokenizer(folder.config.vocab);
  folder.chat = fail(Code::bad_request, "a model of random weights does not chat");
  return folder;
}

std::vector<int> experts_of(const model::ModelConfig& config) {
  std::vector<int> experts;
  for (const model::BlockSpec& block : config.blocks)
    if (block.router) experts.push_back(block.router->num_experts);
  return experts;
}

model::LoadOptions load_options(const EngineOptions& options, const engine::MemoryPlan& plan) {
  model::LoadOptions load;
  load.dtype = engine::precision_dtype(options.precision);
  load.random_weights = !options.random_model.empty();
  load.random_spread = options.random_spread;
  load.max_step_tokens = options.max_step_tokens;
  load.max_sequences = options.max_sequences;
  load.block_tokens = options.block_tokens;
  load.num_kv_blocks = plan.num_blocks;
  load.max_blocks_per_sequence = schedule::blocks_for(plan.max_model_len, options.block_tokens);
  if (options.on_progress)
    load.on_progress = [report = options.on_progress](const char* stage, int64_t done,
                                                      int64_t total) {
      report(LoadProgress{stage, done, total});
    };
  return load;
}

engine::LoopOptions loop_options(const EngineOptions& options, const engine::MemoryPlan& plan,
                                 const Folder& folder) {
  engine::LoopOptions loop;
  loop.limits.max_sequences = options.max_sequences;
  loop.limits.max_step_tokens = options.max_step_tokens;
  loop.limits.block_tokens = options.block_tokens;
  loop.limits.num_blocks = plan.num_blocks;
  loop.limits.ageing_s = options.ageing_s;
  loop.limits.min_decode_batch = options.min_decode_batch;
  loop.limits.decode_wait_s = options.decode_wait_s;
  loop.queue = {options.max_queued_requests, options.max_queued_tokens};
  loop.prefix_cache = options.prefix_cache && options.capacity_factor == 0;
  loop.max_model_len = plan.max_model_len;
  loop.vocab = folder.config.vocab;
  loop.experts = experts_of(folder.config);
  loop.capacity_factor = options.capacity_factor;
  loop.eos_ids = folder.defaults.eos_ids;
  loop.metric_detail = options.metric_detail;
  loop.routing_sink = options.on_routed_step;
  loop.wants_routing = options.wants_routed_step;
  if (options.routed_picks) loop.routing_detail = engine::RoutingDetail::picks;
  return loop;
}

std::vector<text::ChatMessage> chat_messages(const std::vector<Message>& messages) {
  std::vector<text::ChatMessage> copies;
  copies.reserve(messages.size());
  for (const Message& message : messages) {
    text::ChatMessage& copy = copies.emplace_back();
    copy.role = message.role;
    copy.content = message.content;
    copy.tool_call_id = message.tool_call_id;
    copy.name = message.name;
    for (const ToolCall& call : message.tool_calls)
      copy.tool_calls.push_back({call.id, call.name, call.arguments});
  }
  return copies;
}

Result<text::ChatRender> chat_render(const ChatOptions& chat) {
  text::ChatRender render;
  render.add_generation_prompt = chat.add_generation_prompt;
  render.continue_final_message = chat.continue_final_message;
  const std::pair<const std::string*, Json*> texts[] = {
      {&chat.tools, &render.tools}, {&chat.template_variables, &render.variables}};
  for (const auto& [text, json] : texts) {
    if (text->empty()) continue;
    auto parsed = parse_json(*text, "chat options");
    if (!parsed.ok()) return fail(Code::bad_request, "{}", parsed.error().message);
    *json = *std::move(parsed);
  }
  return render;
}

Result<ToolFormat> find_tool_format(const Folder& folder) {
  if (!folder.chat.ok()) return folder.chat.error();
  SWITCHYARD_ASSIGN(const text::ToolFormat known, folder.chat->tool_format());
  ToolFormat format{known.name,       known.marker,      known.begin,
                    known.call_begin, known.behind_name, known.call_end,
                    known.between,    known.end,         known.id_characters};
  const std::string all = format.begin + format.call_begin + format.behind_name + format.call_end +
                          format.between + format.end;
  const text::Tokenizer& tokenizer = *folder.tokenizer;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (tokenizer.is_special(id) && !tokenizer.token_text(id).empty() &&
        all.find(tokenizer.token_text(id)) != std::string::npos)
      format.special_tokens.push_back(id);
  return format;
}

class OpenedEngine final : public Engine {
 public:
  /// The pool and tracer must exist before the model that uses them.
  OpenedEngine(const EngineOptions& options, Folder folder)
      : options_(options), folder_(std::move(folder)), pool_(PoolOptions{options.threads}) {
    tracer_.set_layers(static_cast<int>(folder_.config.blocks.size()));
    tracer_.enable_sums(options.profile);
    if (options.trace_events > 0) tracer_.enable_events(static_cast<size_t>(options.trace_events));
  }

  Status load(int64_t start_ns);

  Result<RequestId> submit(Request request, std::function<void(const Event&)> sink) override {
    SWITCHYARD_ASSIGN(engine::Ticket ticket, loop_->reserve());
    if (request.prompt_tokens.empty() || !request.messages.empty()) {
      SWITCHYARD_ASSIGN(request.prompt_tokens, tokenize(request));
    }
    return loop_->submit(std::move(request), std::move(sink), std::move(ticket));
  }
  void cancel(RequestId id) override { loop_->cancel(id); }
  void wait_idle() override { loop_->wait_idle(); }
  bool wait_idle_for(double seconds) override { return loop_->wait_idle_for(seconds); }
  void drain() override { loop_->drain(); }
  EngineHealth health() const override {
    return {thread_->death(), loop_->requests(), loop_->steps()};
  }
  Result<std::vector<int32_t>> tokenize(const Request& request) const override;
  Result<std::string> render(const Request& request) const override;
  std::string token_bytes(int32_t token) const override;
  Result<ToolFormat> tool_format() const override { return tool_format_; }
  bool template_reads(const std::string& variable) const override {
    return folder_.chat.ok() && folder_.chat->mentions(variable);
  }
  Result<std::string> detokenize(std::span<const int32_t> tokens) const override;
  const ModelSummary& summary() const override { return summary_; }
  SamplingParams default_sampling() const override { return folder_.defaults.sampling; }
  EngineStats stats() const override;
  void reset_stats() override;
  void set_profile(bool on) override { tracer_.enable_sums(on); }
  std::string chrome_trace() const override { return tracer_.chrome_trace(); }
  std::string metrics_text() const override {
    return metrics_.prometheus_text() + engine::expert_metrics_text(loop_->statistics(),
                                                                    options_.metric_detail,
                                                                    options_.metric_top_experts);
  }

 private:
  EngineOptions options_;
  Folder folder_;
  Pool pool_;
  Tracer tracer_;
  MetricRegistry metrics_;
  std::optional<LoadedModel> model_;
  std::optional<EngineLoop> loop_;
  ModelSummary summary_;
  Result<ToolFormat> tool_format_ = Error{};
  mutable std::once_flag bytes_made_;
  mutable std::vector<std::string> bytes_;  // of tokens; made for the first who asks
  mutable std::mutex phases_mutex_;
  // At the last reset.
  ZoneTimes phases_base_;
  std::vector<ZoneTimes> layer_phases_base_;  // [layers]
  std::optional<engine::LoopThread> thread_;  // last: it uses all of the above
};

Status OpenedEngine::load(int64_t start_ns) {
  SWITCHYARD_TRY(model::limit_capacity(
      folder_.config, {options_.capacity_factor, options_.overflow, options_.capacity_rounding}));
  SWITCHYARD_ASSIGN(const DeviceId device, model::parse_device(options_.device));
  SWITCHYARD_ASSIGN(const int64_t available, model::find_device(device)->available_bytes(
                                                 device.index, engine::host_memory().available));
  const auto needs = engine::memory_needs_on(device, folder_.config, options_);
  SWITCHYARD_ASSIGN(const engine::MemoryPlan plan, engine::plan_memory(needs, options_, available));
  const engine::LoopOptions loop = loop_options(options_, plan, folder_);
  SWITCHYARD_TRY(loop.limits.check());
  SWITCHYARD_TRY(loop.queue.check());
  SWITCHYARD_ASSIGN(auto model,
                    model::Model::load(options_.model, folder_.config, load_options(options_, plan),
                                       Stream(device, pool_, &tracer_)));
  summary_ = engine::summarize(*model, plan, options_, pool_.num_threads());
  model_.emplace(std::move(model));
  loop_.emplace(*model_, *folder_.tokenizer, loop, pool_, tracer_, metrics_);
  summary_.chat_template = folder_.chat.ok() ? folder_.chat->source() : "";
  tool_format_ = find_tool_format(folder_);
  summary_.load_s = static_cast<double>(now_ns() - start_ns) * 1e-9;
  engine::register_facts(metrics_, summary_, folder_.config, model_->model().memory(), options_);
  tracer_.reset();  // zones of the load are no part of a step
  layer_phases_base_ = tracer_.layer_times();
  thread_.emplace(*loop_);
  return {};
}

Result<std::vector<int32_t>> OpenedEngine::tokenize(const Request& request) const {
  if (!request.messages.empty()) {
    if (!folder_.chat.ok()) return folder_.chat.error();
    SWITCHYARD_ASSIGN(const text::ChatRender options, chat_render(request.chat));
    return folder_.chat->encode(chat_messages(request.messages), options, *folder_.tokenizer);
  }
  if (!request.prompt_tokens.empty()) return request.prompt_tokens;
  // A raw prompt is the caller's own text, so names of special tokens in it are special tokens.
  return folder_.tokenizer->encode(
      request.prompt, text::EncodeOptions{.add_special_tokens = true, .parse_special = true});
}

Result<std::string> OpenedEngine::render(const Request& request) const {
  if (!request.messages.empty()) {
    if (!folder_.chat.ok()) return folder_.chat.error();
    SWITCHYARD_ASSIGN(const text::ChatRender options, chat_render(request.chat));
    return folder_.chat->render(chat_messages(request.messages), options);
  }
  if (!request.prompt_tokens.empty()) return detokenize(request.prompt_tokens);
  return request.prompt;
}

std::string OpenedEngine::token_bytes(int32_t token) const {
  if (token < 0 || token >= folder_.tokenizer->vocab_size()) return "";
  if (folder_.tokenizer->is_special(token))
    return std::string(folder_.tokenizer->token_text(token));
  std::call_once(bytes_made_, [this] { bytes_ = text::token_bytes(*folder_.tokenizer); });
  return bytes_[static_cast<size_t>(token)];
}

Result<std::string> OpenedEngine::detokenize(std::span<const int32_t> tokens) const {
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= folder_.config.vocab)
      return fail(Code::bad_request, "tokens[{}] is {}, expected a token id in [0, {})", i,
                  tokens[i], folder_.config.vocab);
  return folder_.tokenizer->decode(tokens, {.skip_special_tokens = false});
}

EngineStats OpenedEngine::stats() const {
  EngineStats stats = loop_->statistics().read();
  if (!tracer_.on()) return stats;
  const std::lock_guard lock(phases_mutex_);
  const ZoneTimes times = tracer_.times();
  for (int i = 0; i < kNumZones; ++i) {
    const auto zone = static_cast<Zone>(i);
    stats.phase_s.emplace_back(zone_name(zone), times[zone] - phases_base_[zone]);
  }
  const std::vector<ZoneTimes> layers = tracer_.layer_times();
  for (size_t l = 0; l < layers.size(); ++l) {
    std::vector<double>& seconds = stats.layer_phase_s.emplace_back();
    for (size_t i = 0; i < kNumZones; ++i)
      seconds.push_back(layers[l].seconds[i] - layer_phases_base_[l].seconds[i]);
  }
  return stats;
}

void OpenedEngine::reset_stats() {
  loop_->statistics().reset();
  const std::lock_guard lock(phases_mutex_);
  phases_base_ = tracer_.times();
  layer_phases_base_ = tracer_.layer_times();
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::open(const EngineOptions& options) {
  const int64_t start_ns = now_ns();
  SWITCHYARD_ASSIGN(Folder folder, options.random_model.empty()
                                       ? read_folder(options.model)
                                       : read_random(options.random_model, options.random_spread));
  auto opened = std::make_unique<OpenedEngine>(options, std::move(folder));
  SWITCHYARD_TRY(opened->load(start_ns));
  return std::unique_ptr<Engine>(std::move(opened));
}

}  // namespace switchyard
