// SPDX-License-Identifier: Apache-2.0
// Generation: a call on its way: its choices run in the engine, their events become a stream or one answer.
//
// begin() runs on a worker, events come from the engine's loop, farewells from the network thread; one mutex joins them.
// Nothing is sent before all choices are in the engine, so a call that is refused half way is still an ordinary error.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "switchyard/engine.h"

#include "serve/call.h"
#include "serve/choice_writer.h"
#include "serve/http.h"
#include "serve/reply_json.h"
#include "serve/request_record.h"

namespace switchyard::serve {

/// What a generation tells its server.
struct GenerationHooks {
  /// The head of every answer: fills in the headers that all have. Called once.
  std::function<void(HttpReply&)> on_head;
  enum class Left : uint8_t { in_queue, before_first_token, while_decoding };
  std::function<void(Left)> on_disconnect;
  /// Keeps the call's place in the server for as long as it lives.
  std::shared_ptr<void> place;
  /// What the log will say of the call; null: nobody asks.
  std::shared_ptr<CallRecord> record;
};

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(Engine& engine, Call call, ReplyFrame frame, std::shared_ptr<HttpExchange> exchange,
             GenerationHooks hooks);

  /// Tokenizes and submits, or answers with the error.
  void begin();
  /// Ends the call with this error, wherever it is.
  void abort(const ApiError& error);

 private:
  struct Early {
    size_t choice;
    Event event;
  };

  std::optional<ApiError> prepare();
  void make_writers();
  ChoiceWriter::Send sender();
  std::optional<ApiError> submit_all();
  ApiError submit_error(const Error& error) const;
  bool is_over();
  std::optional<ApiError> check_ids(const Request& request) const;
  std::optional<ApiError> check_length(Request& request) const;
  void on_event(size_t choice, const Event& event);
  void handle(size_t index, const Event& event);
  void finish();
  void fail_locked(const ApiError& error);
  void on_gone();
  void tell_left(bool a_step_had_begun);
  void cancel_all();
  void record(const Event& event);
  HttpReply head();
  ApiError engine_error(const Event& event) const;

  Engine& engine_;
  Call call_;
  const ReplyFrame frame_;
  const std::shared_ptr<HttpExchange> exchange_;
  GenerationHooks hooks_;

  std::mutex mutex_;
  std::optional<ToolFormat> tool_format_;  // where tools are shown
  std::vector<ChoiceWriter> writers_;      // [P n]
  std::vector<RequestId> ids_;             // submitted
  std::vector<Early> early_;               // events before all were submitted
  bool all_in_ = false, over_ = false, any_token_ = false;
  bool left_waiting_ =
      false;  // the client went without a token: the engine will say whether a step had begun
  size_t ended_ = 0;
  Usage usage_;
};

}  // namespace switchyard::serve
