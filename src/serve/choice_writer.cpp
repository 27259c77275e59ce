// SPDX-License-Identifier: Apache-2.0
#include "serve/choice_writer.h"

#include <utility>

#include "serve/logprobs_json.h"

namespace switchyard::serve {

ChoiceWriter::ChoiceWriter(const ReplyFrame& frame, int index, std::vector<int32_t> prompt_tokens,
                           bool reports_logprobs, std::optional<ToolReader> reader,
                           std::function<std::string()> new_call_id)
    : frame_(frame),
      index_(index),
      reader_(std::move(reader)),
      new_call_id_(std::move(new_call_id)) {
  choice_.reports_logprobs = reports_logprobs;
  choice_.prompt_tokens = std::move(prompt_tokens);
}

std::vector<AnswerPiece> ChoiceWriter::pieces_of(const Event& event) {
  std::vector<AnswerPiece> pieces;
  if (reader_) {
    reader_->push(event.text, pieces);
    if (event.finish != FinishReason::none) {
      reader_->finish(pieces);
      choice_.is_cut = reader_->is_cut();
    }
  } else if (!event.text.empty()) {
    pieces.push_back({AnswerPiece::Kind::content, event.text});
  }
  return pieces;
}

void ChoiceWriter::keep(const AnswerPiece& piece) {
  switch (piece.kind) {
    case AnswerPiece::Kind::content:
      choice_.text += piece.text;
      return;
    case AnswerPiece::Kind::call:
      choice_.calls.push_back({new_call_id_(), piece.text, ""});
      return;
    case AnswerPiece::Kind::arguments:
      choice_.calls.back().arguments += piece.text;
      return;
  }
}

void ChoiceWriter::take(const Event& event, const Send& send) {
  choice_.output_tokens += static_cast<int64_t>(event.tokens.size());
  choice_.finish = event.finish;
  const std::vector<AnswerPiece> pieces = pieces_of(event);
  if (send) return send_pieces(pieces, event, send);
  for (const AnswerPiece& piece : pieces) keep(piece);
  choice_.logprobs.insert(choice_.logprobs.end(), event.logprobs.begin(), event.logprobs.end());
  if (frame_.token_ids)
    choice_.tokens.insert(choice_.tokens.end(), event.tokens.begin(), event.tokens.end());
}

void ChoiceWriter::send_role(bool null_content, const Send& send) {
  if (role_sent_ || frame_.endpoint != Endpoint::chat) return;
  role_sent_ = true;
  send({.index = index_, .role = true, .null_content = null_content});
}

/// With the first chunk of an event.
void ChoiceWriter::attach_reports(Delta& delta, const Event& event) {
  delta.reports_logprobs = choice_.reports_logprobs && !event.logprobs.empty();
  delta.logprobs = event.logprobs;
  delta.text_offset = text_offset_;
  if (delta.reports_logprobs)
    for (const TokenLogprobs& token : event.logprobs)
      text_offset_ += count_characters(frame_.token_bytes(token.chosen.token));
  delta.tokens = event.tokens;
  if (!std::exchange(prompt_sent_, true)) delta.prompt_tokens = choice_.prompt_tokens;
}

void ChoiceWriter::send_pieces(const std::vector<AnswerPiece>& pieces, const Event& event,
                               const Send& send) {
  // What is reported of tokens must not wait for text that is held back.
  const bool bare_report = pieces.empty() && reports() && !event.tokens.empty();
  for (size_t i = 0; i < pieces.size() + (bare_report ? 1 : 0); ++i) {
    const AnswerPiece piece = bare_report ? AnswerPiece{} : pieces[i];
    send_role(piece.kind != AnswerPiece::Kind::content, send);
    Delta delta{.index = index_};
    if (i == 0 && reports()) attach_reports(delta, event);
    std::string id;
    if (piece.kind == AnswerPiece::Kind::content) {
      delta.text = piece.text;
    } else {
      delta.call = piece.call;
      if (piece.kind == AnswerPiece::Kind::call) {
        id = new_call_id_();
        delta.call_id = id;
        delta.name = piece.text;
        choice_.calls.push_back({id, piece.text, ""});
      } else {
        delta.arguments = piece.text;
      }
    }
    send(delta);
  }
  if (event.finish == FinishReason::none) return;
  send_role(false, send);
  Delta last{.index = index_, .finish = event.finish};
  last.called = !choice_.calls.empty() && !choice_.is_cut;
  if (choice_.moe) last.moe = &*choice_.moe;
  send(last);
}

}  // namespace switchyard::serve
