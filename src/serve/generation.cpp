// SPDX-License-Identifier: Apache-2.0
#include "serve/generation.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "serve/prepare.h"

namespace switchyard::serve {
namespace {

constexpr int kCompletionTokens = 16;  // OpenAI's default of that endpoint

/// Mean over the layers that had picks.
double experts_touched(const RequestMoe& moe) {
  int64_t touched = 0, layers = 0;
  for (const auto& picks : moe.picks) {
    const auto of_layer =
        std::count_if(picks.begin(), picks.end(), [](uint32_t count) { return count > 0; });
    touched += of_layer;
    layers += of_layer > 0;
  }
  return layers == 0 ? 0 : static_cast<double>(touched) / static_cast<double>(layers);
}

}  // namespace

Generation::Generation(Engine& engine, Call call, ReplyFrame frame,
                       std::shared_ptr<HttpExchange> exchange, GenerationHooks hooks)
    : engine_(engine),
      call_(std::move(call)),
      frame_(std::move(frame)),
      exchange_(std::move(exchange)),
      hooks_(std::move(hooks)) {}

// The record is written before somebody waits for the client's end, or under the lock while the call is not over: its line
// is written by whoever ends the call, and reads it without the lock.
void Generation::begin() {
  if (hooks_.record) {
    hooks_.record->choices = static_cast<int>(call_.num_choices());
    hooks_.record->stream = call_.stream;
  }
  exchange_->on_disconnect([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->on_gone();
  });
  auto error = prepare();
  if (!error) error = submit_all();
  const std::lock_guard lock(mutex_);
  if (hooks_.record && !over_) hooks_.record->prompt_tokens = usage_.prompt_tokens;
  if (error) return fail_locked(*error);
  if (over_) return cancel_all();  // the client went, or the server gave up, in between
  all_in_ = true;
  if (call_.stream) exchange_->start_stream(head());
  for (const Early& early : std::exchange(early_, {}))
    if (!over_) handle(early.choice, early.event);
}

/// Texts become tokens, once for all choices of a prompt; lengths are checked.
std::optional<ApiError> Generation::prepare() {
  if (auto error = prepare_call(engine_, call_, tool_format_)) return error;
  for (Request& request : call_.prompts) {
    if (is_over()) return std::nullopt;
    if (auto error = check_ids(request)) return error;
    auto tokens = engine_.tokenize(request);
    if (!tokens.ok()) return template_error(tokens.error(), call_.endpoint);
    request.messages.clear();
    request.prompt.clear();
    request.prompt_tokens = *std::move(tokens);
    if (auto error = check_length(request)) return error;
    usage_.prompt_tokens += static_cast<int64_t>(request.prompt_tokens.size());
  }
  if (auto error = check_reports(call_)) return error;
  make_writers();
  return std::nullopt;
}

void Generation::make_writers() {
  const bool forced = call_.prompts.front().constraint.kind != OutputConstraint::Kind::none;
  std::optional<ToolReader> reader;
  if (tool_format_) {
    std::vector<std::string> names;
    for (const CallTools::Tool& tool : call_.tools.tools) names.push_back(tool.schema.name);
    reader.emplace(*tool_format_, std::move(names),
                   forced ? ToolReader::Text::forced : ToolReader::Text::free);
  }
  writers_.reserve(call_.num_choices());
  for (size_t i = 0; i < call_.num_choices(); ++i) {
    const Request& request = call_.prompts[i / static_cast<size_t>(call_.n)];
    writers_.emplace_back(
        frame_, static_cast<int>(i),
        call_.return_token_ids ? request.prompt_tokens : std::vector<int32_t>(),
        request.sampling.logprobs.has_value(), reader,
        [length = tool_format_ ? tool_format_->id_characters : 0] { return new_call_id(length); });
  }
}

bool Generation::is_over() {
  const std::lock_guard lock(mutex_);
  return over_;
}

/// The client's own ids.
std::optional<ApiError> Generation::check_ids(const Request& request) const {
  const int vocab = engine_.summary().vocab;
  const std::pair<const char*, const std::vector<int32_t>*> fields[] = {
      {"prompt", &request.prompt_tokens}, {"stop_token_ids", &request.sampling.stop_token_ids}};
  for (const auto& [name, ids] : fields)
    for (size_t i = 0; i < ids->size(); ++i)
      if ((*ids)[i] < 0 || (*ids)[i] >= vocab)
        return refuse_field(name, "invalid_value", "{}[{}] is {}, expected a token id in [0, {})",
                            name, i, (*ids)[i], vocab);
  for (const TokenBias& bias : request.sampling.logit_bias)
    if (bias.token >= vocab)
      return refuse_field("logit_bias", "invalid_value",
                          "logit_bias has the key \"{}\", expected a token id in [0, {})",
                          bias.token, vocab);
  return std::nullopt;
}

std::optional<ApiError> Generation::check_length(Request& request) const {
  const char* param = call_.endpoint == Endpoint::chat ? "messages" : "prompt";
  const int limit = engine_.summary().max_model_len;
  const size_t prompt = request.prompt_tokens.size();
  if (prompt == 0)
    return refuse_field(param, "invalid_value", "the {} are empty: expected at least one token",
                        param);
  const bool fits = prompt < static_cast<size_t>(limit);
  const int room = fits ? limit - static_cast<int>(prompt) : 0;
  if (!fits || call_.max_tokens.value_or(1) > room)
    return refuse_field(
        param, "context_length_exceeded",
        "this model's prompt and output together may have {} tokens, but {} were requested ({} in "
        "the {}, {} to generate): shorten one of them",
        limit, prompt + static_cast<size_t>(call_.max_tokens.value_or(1)), prompt, param,
        call_.max_tokens.value_or(1));
  const int by_default =
      call_.endpoint == Endpoint::chat ? room : std::min(room, kCompletionTokens);
  request.sampling.max_tokens = call_.max_tokens.value_or(by_default);
  if (request.sampling.min_tokens > request.sampling.max_tokens)
    return refuse_field("min_tokens", "invalid_value", "min_tokens is {}, but at most {} may come",
                        request.sampling.min_tokens, request.sampling.max_tokens);
  return std::nullopt;
}

/// Lengths and sampling were looked at before: with a schema, it is what the engine refuses.
ApiError Generation::submit_error(const Error& error) const {
  ApiError refusal = api_error(error);
  const OutputConstraint& constraint = call_.prompts.front().constraint;
  if (constraint.kind == OutputConstraint::Kind::none || refusal.status != 400) return refusal;
  for (const char* field : {"ignore_eos", "min_tokens"}) {
    if (!refusal.message.starts_with(field)) continue;
    refusal.param = field;
    return refusal;
  }
  refusal.code = "invalid_schema";
  const bool of_tools = constraint.kind == OutputConstraint::Kind::tool_calls;
  // Places in the schema of an answer begin with "#", those in a tool's with its name.
  const bool of_answer =
      !of_tools || (constraint.instead == OutputConstraint::Instead::json_schema &&
                    refusal.message.starts_with("#"));
  refusal.param = of_answer ? "response_format" : "tools";
  return refusal;
}

std::optional<ApiError> Generation::submit_all() {
  for (size_t i = 0; i < writers_.size(); ++i) {
    if (is_over()) return std::nullopt;
    const auto n = static_cast<size_t>(call_.n);
    Request request = call_.prompts[i / n];
    if (request.sampling.seed) *request.sampling.seed += i % n;  // choices of one prompt differ
    const auto id = engine_.submit(
        std::move(request),
        [self = shared_from_this(), i](const Event& event) { self->on_event(i, event); });
    if (!id.ok()) return submit_error(id.error());
    const std::lock_guard lock(mutex_);
    ids_.push_back(*id);
  }
  return std::nullopt;
}

void Generation::on_event(size_t choice, const Event& event) {
  const std::lock_guard lock(mutex_);
  if (left_waiting_ && event.finish != FinishReason::none) tell_left(event.timings.queue_s > 0);
  if (over_) return;
  if (all_in_) return handle(choice, event);
  early_.push_back({choice, event});
}

/// What is known of the call after this event.
void Generation::record(const Event& event) {
  CallRecord& record = *hooks_.record;
  record.output_tokens += std::ssize(event.tokens);
  if (!any_token_ && !event.tokens.empty()) record.first_token_ns = now_ns();
  if (event.finish == FinishReason::none) return;
  record.finish = event.finish;
  if (event.timings.queue_s > 0)  // else no step of it ever began
    record.queue_s = std::max(record.queue_s.value_or(0), event.timings.queue_s);
  if (call_.moe_stats) record.experts_touched = experts_touched(event.moe);
}

void Generation::handle(size_t index, const Event& event) {
  if (hooks_.record) record(event);
  any_token_ = any_token_ || !event.tokens.empty();
  if (event.finish == FinishReason::error || event.finish == FinishReason::cancelled)
    return fail_locked(engine_error(event));
  usage_.completion_tokens += static_cast<int64_t>(event.tokens.size());
  ChoiceWriter& writer = writers_[index];
  if (event.finish != FinishReason::none) {
    if (call_.moe_stats) writer.add_moe(event.moe);
    // Choices of one prompt share it: what one of them found in the cache is said once.
    if (index % static_cast<size_t>(call_.n) == 0)
      usage_.cached_tokens += event.timings.cached_tokens;
    if (hooks_.record) hooks_.record->cached_tokens = usage_.cached_tokens;
  }
  writer.take(event, call_.stream ? sender() : ChoiceWriter::Send());
  if (event.finish != FinishReason::none && ++ended_ == writers_.size()) finish();
}

ChoiceWriter::Send Generation::sender() {
  return [this](const Delta& delta) {
    exchange_->write(chunk_event(frame_, delta, call_.continuous_usage ? &usage_ : nullptr));
  };
}

void Generation::finish() {
  over_ = true;
  if (call_.stream) {
    if (call_.include_usage) exchange_->write(usage_event(frame_, usage_));
    exchange_->write(std::string(kDoneEvent));
    exchange_->end_stream(HttpExchange::After::keep_alive);
    return;
  }
  HttpReply reply = head();
  std::vector<Choice> choices;
  for (ChoiceWriter& writer : writers_) choices.push_back(writer.take_choice());
  reply.body = whole_json(frame_, choices, usage_);
  exchange_->reply(std::move(reply));
}

/// An ordinary error while nothing was sent; in a stream its last event, without the word that all went well.
void Generation::fail_locked(const ApiError& error) {
  cancel_all();
  if (over_) return;
  over_ = true;
  if (hooks_.record) hooks_.record->error = error.code;
  if (all_in_ && call_.stream) {
    exchange_->write(error_event(error));
    exchange_->end_stream(HttpExchange::After::close);
    return;
  }
  HttpReply reply = error_reply(error);
  hooks_.on_head(reply);
  exchange_->reply(std::move(reply));
}

void Generation::abort(const ApiError& error) {
  const std::lock_guard lock(mutex_);
  fail_locked(error);
}

void Generation::on_gone() {
  const std::lock_guard lock(mutex_);
  if (over_) return;
  over_ = true;
  cancel_all();
  if (hooks_.record) hooks_.record->finish = FinishReason::cancelled;
  if (any_token_) return hooks_.on_disconnect(GenerationHooks::Left::while_decoding);
  left_waiting_ = true;
  if (ids_.empty()) tell_left(false);
}

/// Once, of a client that went without a token.
void Generation::tell_left(bool a_step_had_begun) {
  left_waiting_ = false;
  hooks_.on_disconnect(a_step_had_begun ? GenerationHooks::Left::before_first_token
                                        : GenerationHooks::Left::in_queue);
}

/// Ended ones are not bothered: the engine ignores them.
void Generation::cancel_all() {
  for (const RequestId id : ids_) engine_.cancel(id);
}

HttpReply Generation::head() {
  HttpReply reply;
  if (call_.stream) {
    reply.content_type = "text/event-stream";
    reply.headers.emplace_back("Cache-Control", "no-cache");
    reply.headers.emplace_back("X-Accel-Buffering", "no");
  }
  hooks_.on_head(reply);
  return reply;
}

ApiError Generation::engine_error(const Event& event) const {
  if (event.finish == FinishReason::cancelled || !event.error)
    return {503, "cancelled", "the request was cancelled by the server", ""};
  if (const std::string death = engine_.health().death; !death.empty())
    return {503, "engine_dead", death, ""};
  ApiError error = api_error(*event.error);
  error.message += fmt::format(" (request {})", frame_.id);
  return error;
}

}  // namespace switchyard::serve
