// SPDX-License-Identifier: Apache-2.0
// ChoiceWriter: one choice of a call, from the engine's events to what the client reads: the whole choice, or the chunks of a
// stream. A chat that was shown tools has its text taken apart into what is said and what is called.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "switchyard/request.h"

#include "serve/reply_json.h"
#include "serve/tool_reader.h"

namespace switchyard::serve {

class ChoiceWriter {
 public:
  using Send = std::function<void(const Delta&)>;
  /// With a `reader` where tools may be called; `new_call_id` names calls.
  ChoiceWriter(const ReplyFrame& frame, int index, std::vector<int32_t> prompt_tokens,
               bool reports_logprobs, std::optional<ToolReader> reader,
               std::function<std::string()> new_call_id);

  /// Adds an event to the choice; with `send`, as chunks. The last event ends it.
  void take(const Event& event, const Send& send);
  /// The whole choice, once it has ended.
  Choice take_choice() { return std::move(choice_); }
  void add_moe(const RequestMoe& moe) { choice_.moe = moe; }

 private:
  std::vector<AnswerPiece> pieces_of(const Event& event);
  void keep(const AnswerPiece& piece);
  void send_pieces(const std::vector<AnswerPiece>& pieces, const Event& event, const Send& send);
  void send_role(bool null_content, const Send& send);
  void attach_reports(Delta& delta, const Event& event);
  bool reports() const { return choice_.reports_logprobs || frame_.token_ids; }

  const ReplyFrame& frame_;
  const int index_;
  std::optional<ToolReader> reader_;
  std::function<std::string()> new_call_id_;
  Choice choice_;
  bool role_sent_ = false, prompt_sent_ = false;
  int64_t text_offset_ = 0;  // characters of the tokens so far
};

}  // namespace switchyard::serve
