// SPDX-License-Identifier: Apache-2.0
// Prompts from files: one a line, or JSON lines of {"prompt": ..., "topic": ...}.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace switchyard::cli {

struct Prompt {
  std::string text;
  std::string topic;  ///< empty: none
  std::string where;  ///< "prompts.txt:17", for messages
};

/// A name that ends in .jsonl holds JSON lines, any other plain ones; empty lines are skipped.
/// Prompts without a topic of their own get `topic`. Errors: bad_request for a line, with its
/// number, and for a file without prompts; bad_file for one that cannot be read.
Result<std::vector<Prompt>> read_prompts(const std::string& path, const std::string& topic);

/// A file's name without folders and ending: "texts/german.txt" is "german".
std::string stem(std::string_view path);

}  // namespace switchyard::cli
