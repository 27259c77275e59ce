// SPDX-License-Identifier: Apache-2.0
// ToolReader: takes apart the text of an answer, as it comes, into what is said and what is called (ToolFormat).
//
// Where a grammar has forced the text, arguments go out while they are written. Elsewhere a call is held back until it is
// whole: what turns out to be none, or of no function of the request, is content, with all of its white space. White space
// before a call and behind the last one is no content. White space between the parts of a call may be any.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "switchyard/tools.h"

namespace switchyard::serve {

struct AnswerPiece {
  enum class Kind : unsigned char { content, call, arguments } kind = Kind::content;
  std::string text;  ///< content; the name of a call, which begins here; more of its arguments
  int call = 0;      ///< which one, from 0
};

class ToolReader {
 public:
  enum class Text : unsigned char { forced, free };
  /// `names` are those of the functions.
  ToolReader(ToolFormat format, std::vector<std::string> names, Text text);

  void push(std::string_view text, std::vector<AnswerPiece>& out);
  /// No more text.
  void finish(std::vector<AnswerPiece>& out);
  int num_calls() const noexcept { return num_calls_; }
  /// At the end: the arguments of the last call are not whole.
  bool is_cut() const noexcept { return is_cut_; }

 private:
  enum class State : unsigned char { said, head, call, name, tail };
  /// Texts of which one has to come, white space aside.
  struct Expected {
    std::string text;
    size_t read = 0;
    State next = State::said;
  };

  void push_byte(char byte, std::vector<AnswerPiece>& out);
  void say(char byte, std::vector<AnswerPiece>& out);
  void say_certain(char byte, std::vector<AnswerPiece>& out);
  void flush_blank(std::vector<AnswerPiece>& out);
  void expect(std::vector<Expected> texts);
  void read_expected(char byte, std::vector<AnswerPiece>& out);
  void begin_call();
  void read_call(char byte, std::vector<AnswerPiece>& out);
  void read_name(char byte, std::vector<AnswerPiece>& out);
  bool find_arguments(char byte, std::vector<AnswerPiece>& out);
  void end_call(std::vector<AnswerPiece>& out);
  bool take_whole(std::vector<AnswerPiece>& out);
  void open(std::string name, std::vector<AnswerPiece>& out);
  void behind_call();
  void give_up(std::vector<AnswerPiece>& out);
  void send_arguments(std::vector<AnswerPiece>& out);
  bool knows(std::string_view name) const;
  bool is_bare() const noexcept { return !format_.behind_name.empty(); }

  const ToolFormat format_;
  const std::vector<std::string> names_;
  const Text text_;
  State state_ = State::said;
  int num_calls_ = 0, failures_ = 0;

  bool said_ = false, is_cut_ = false;

  std::string blank_;      // said: white space that a call may follow, before held_
  std::string held_;       // said: the beginning of a marker
  std::string raw_;        // of what may become a call: all of it, in case it does not
  size_t no_call_in_ = 0;  // of raw_: white space and marker, where it has them
  std::vector<Expected> expected_;

  // Of the JSON object that is being read.
  std::string object_, name_;
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false;
  size_t key_at_ = 0;          // forced: where the last string of the object itself begins
  bool in_arguments_ = false;  // forced: they are going out
  std::string arguments_;      // forced: not sent yet
};

}  // namespace switchyard::serve
