// SPDX-License-Identifier: Apache-2.0
// Greedy ids and tokenisation out of libllama, for check_greedy.py. Commands on stdin, one a line,
// one JSON line each on stdout:
//
//   greedy N id id ...     the N ids that follow the prompt, never stopping at an end token
//   tokenize HEX           the ids of a UTF-8 text written in hexadecimal
//
// The KV cache is f32 and flash attention is off, so that an f32 model is computed in f32.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include <llama.h>

namespace {

[[noreturn]] void fail(const std::string& message) {
  std::fprintf(stderr, "llama_greedy: %s\n", message.c_str());
  std::exit(2);
}

void print_ids(const std::vector<llama_token>& ids) {
  std::string line = "[";
  for (size_t i = 0; i < ids.size(); ++i) line += (i > 0 ? "," : "") + std::to_string(ids[i]);
  std::cout << line << "]" << std::endl;
}

llama_context* make_context(llama_model* model, int threads) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = 2048;
  params.n_batch = params.n_ubatch = 512;
  params.n_threads = params.n_threads_batch = threads;
  params.type_k = params.type_v = GGML_TYPE_F32;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) fail("cannot make a context");
  return context;
}

std::vector<llama_token> continue_greedily(llama_context* context, std::vector<llama_token> prompt,
                                           int count) {
  const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(context)));
  llama_memory_clear(llama_get_memory(context), true);
  std::vector<llama_token> ids, feed = std::move(prompt);
  while (static_cast<int>(ids.size()) < count) {
    if (llama_decode(context, llama_batch_get_one(feed.data(), static_cast<int>(feed.size()))) != 0)
      fail("llama_decode failed");
    const float* logits = llama_get_logits_ith(context, -1);
    const auto best = std::max_element(logits, logits + vocabulary) - logits;
    ids.push_back(static_cast<llama_token>(best));
    feed = {ids.back()};
  }
  return ids;
}

std::vector<llama_token> tokenize(const llama_model* model, const std::string& hex) {
  std::string text;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    text += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  std::vector<llama_token> ids(text.size() + 8);
  const int count =
      llama_tokenize(llama_model_get_vocab(model), text.data(), static_cast<int>(text.size()),
                     ids.data(), static_cast<int>(ids.size()), false, true);
  if (count < 0) fail("the tokens of a text do not fit the buffer");
  ids.resize(count);
  return ids;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) fail("usage: llama_greedy MODEL.gguf [THREADS]");
  const int threads = argc > 2 ? std::max(1, std::atoi(argv[2])) : 2;
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level >= GGML_LOG_LEVEL_WARN) std::fputs(text, stderr);
      },
      nullptr);
  llama_backend_init();
  std::fprintf(stderr, "%s\n", llama_print_system_info());
  llama_model* model = llama_model_load_from_file(argv[1], llama_model_default_params());
  if (model == nullptr) fail(std::string("cannot load ") + argv[1]);
  llama_context* context = make_context(model, threads);

  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command, hex;
    words >> command;
    if (command == "greedy") {
      int count = 0;
      words >> count;
      std::vector<llama_token> prompt;
      for (llama_token id; words >> id;) prompt.push_back(id);
      if (prompt.empty()) fail("a greedy command without prompt ids");
      print_ids(continue_greedily(context, std::move(prompt), count));
    } else if (command == "tokenize") {
      words >> hex;
      print_ids(tokenize(model, hex));
    } else {
      fail("unknown command '" + command + "'");
    }
  }
  llama_free(context);
  llama_model_free(model);
  llama_backend_free();
  return 0;
}
