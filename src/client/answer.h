// SPDX-License-Identifier: Apache-2.0
// AnswerReader: the events of one streamed completion, of either endpoint, become an outcome. No sockets.
#pragma once
#include <string_view>

#include "base/json.h"
#include "client/outcome.h"

namespace switchyard::client {

class AnswerReader {
 public:
  explicit AnswerReader(Outcome& outcome) : outcome_(outcome) {}

  /// One event. False: nothing more is to be read, the outcome stands. "[DONE]" is the good end.
  bool take(std::string_view data, int64_t now_ns);
  /// The stream ended by itself, completely.
  void end_of_stream();
  /// It did not: `kind` says how.
  void fail(std::string_view kind, std::string_view detail);

 private:
  bool take_choices(const Json::Array& choices, int64_t now_ns);
  void take_usage(const Json& usage);
  void add_text(int64_t now_ns);

  Outcome& outcome_;
  bool finished_ = false;  // a finish_reason has come
};

/// Kind and detail of an answer that is no stream, from its status and body.
void describe_refusal(int status, std::string_view body, Outcome& outcome);

}  // namespace switchyard::client
