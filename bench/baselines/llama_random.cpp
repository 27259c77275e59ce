// SPDX-License-Identifier: Apache-2.0
// Random weights of true geometry for llama.cpp's own, unchanged programs, without a file of tens of GB:
//
//   LD_PRELOAD=libllama_random.so llama-bench -m random:qwen3-30b-a3b -p 512 -n 128 -ngl 99 -fa 1
//
// random:NAME[:TYPE[:LAYERS[:SPREAD]]]; TYPE of matrices is bf16 (default) or f16, norms and routers are f32 as llama.cpp's
// converter stores them. LAYERS 0: as many as the model has. Opening such a name is caught, and llama_model_load_from_file_ptr gets a stream in its place:
// the bytes of a GGUF file of that geometry, made while they are read. Loading, placing and computing are llama.cpp's.
//
// Values are as those of `switchyard bench latency --random` (src/model/cuda/weights.cpp): norms 1; matrices uniform of
// variance 1 / inputs, those that add to the residual stream of 1 / (2 LAYERS) of it; embeddings of variance 1, plus SPREAD
// (0.5) times one row, so that experts' mean logits lie SPREAD deviations apart.
// They come from one block for each kind and number of inputs, read again and again from another place for each matrix; its
// length is prime, so that experts differ. Embeddings have a block of whole rows.
// There is no tokenizer: programs that time random ids need none.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include <dlfcn.h>
#include <ggml.h>
#include <gguf.h>
#include <llama.h>

#include "splitmix64.h"

namespace {

struct Geometry {
  const char *name, *arch;
  uint32_t layers, width, heads, kv_heads, head, vocab, experts, picks, expert_width, context;
  float rope_base, eps;
};
// As in src/model/geometries.cpp.
constexpr Geometry kGeometries[] = {
    {"olmoe-1b-7b", "olmoe", 16, 2048, 16, 16, 128, 50304, 64, 8, 1024, 4096, 1e4F, 1e-5F},
    {"qwen3-30b-a3b", "qwen3moe", 48, 2048, 32, 4, 128, 151936, 128, 8, 768, 40960, 1e6F, 1e-6F},
    {"mixtral-8x7b", "llama", 32, 4096, 32, 8, 128, 32000, 8, 2, 14336, 32768, 1e6F, 1e-5F},
    {"tiny-olmoe", "olmoe", 2, 256, 4, 4, 64, 512, 8, 2, 128, 4096, 1e4F, 1e-5F},
    {"tiny-qwen3", "qwen3moe", 2, 256, 4, 2, 64, 512, 16, 4, 128, 4096, 1e6F, 1e-6F},
    {"tiny-mixtral", "llama", 2, 256, 4, 2, 64, 512, 8, 2, 512, 4096, 1e6F, 1e-5F},
};

struct Order {
  Geometry geometry;
  ggml_type type;
  float spread;
};

[[noreturn]] void fail(const std::string& message) {
  std::fprintf(stderr, "llama_random: %s\n", message.c_str());
  std::exit(2);
}

float between_one(SplitMix64& random) {
  return static_cast<float>(random.next() >> 40) * 0x1p-23F - 1.0F;
}

using Block = std::vector<char>;

// Blocks of values that matrices are cut from, one for each type, number of inputs and scale; ones for no inputs.
class Blocks {
 public:
  // Stays where it is.
  const Block& get(ggml_type type, int64_t inputs, float scale) {
    Block& block = blocks_[{type, inputs, scale}];
    if (block.empty())
      block = encode(type, inputs > 0 ? draw(inputs, scale) : std::vector<float>(kValues, 1.0F));
    return block;
  }

  // So many rows that few of a prompt's tokens share one.
  const Block& get_rows(ggml_type type, int64_t width, float spread) {
    if (rows_.empty()) rows_ = encode(type, draw_rows(width, spread));
    return rows_;
  }

 private:
  static constexpr size_t kValues = 4194301, kRows = 16381;  // primes

  static std::vector<float> draw(int64_t inputs, float scale) {
    std::vector<float> values(kValues);
    SplitMix64 random{static_cast<uint64_t>(inputs)};
    const float bound = scale * std::sqrt(3.0F / static_cast<float>(inputs));
    for (float& value : values) value = bound * between_one(random);
    return values;
  }

  static std::vector<float> draw_rows(int64_t width, float spread) {
    std::vector<float> common(width), values(kRows * width);
    SplitMix64 random{1};
    const float bound = std::sqrt(3.0F);
    for (float& value : common) value = spread * bound * between_one(random);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = common[i % common.size()] + bound * between_one(random);
    return values;
  }

  static Block encode(ggml_type type, const std::vector<float>& values) {
    Block block(values.size() * ggml_type_size(type));
    const auto count = static_cast<int64_t>(values.size());
    void* to = block.data();
    if (type == GGML_TYPE_F32) std::memcpy(to, values.data(), block.size());
    if (type == GGML_TYPE_F16)
      ggml_fp32_to_fp16_row(values.data(), static_cast<ggml_fp16_t*>(to), count);
    if (type == GGML_TYPE_BF16)
      ggml_fp32_to_bf16_row(values.data(), static_cast<ggml_bf16_t*>(to), count);
    return block;
  }

  std::map<std::tuple<ggml_type, int64_t, float>, Block> blocks_;
  Block rows_;
};

struct GgufDeleter {
  void operator()(gguf_context* p) const { gguf_free(p); }
};
struct GgmlDeleter {
  void operator()(ggml_context* p) const { ggml_free(p); }
};

// The file that does not exist: header, then tensors, each a span of bytes filled from a block.
class Stream {
 public:
  explicit Stream(const Order& order)
      : order_(order), to_residual_(std::sqrt(0.5F / static_cast<float>(order.geometry.layers))) {
    gguf_.reset(gguf_init_empty());
    ggml_.reset(ggml_init({.mem_size = size_t{16} << 20, .mem_buffer = nullptr, .no_alloc = true}));
    add_keys();
    add_tensors();
    header_.resize(gguf_get_meta_size(gguf_.get()));
    gguf_get_meta_data(gguf_.get(), header_.data());
    for (Span& span : spans_) span.begin += header_.size();
    size_ = spans_.back().begin + spans_.back().bytes;
  }

  int64_t size() const { return size_; }
  int64_t position = 0;

  // Fills as much of the buffer as the file has from here on.
  int64_t read(char* to, int64_t bytes) {
    bytes = std::min(bytes, size_ - position);
    for (int64_t left = bytes; left > 0;) {
      const int64_t done = read_piece(to, left);
      to += done, left -= done, position += done;
    }
    return bytes;
  }

 private:
  struct Span {
    int64_t begin, bytes, start;  // start within the block
    const Block* block;
  };

  void add_keys() {
    const Geometry& g = order_.geometry;
    const auto whole = [&](const char* key, uint32_t value) {
      gguf_set_val_u32(gguf_.get(), (std::string(g.arch) + "." + key).c_str(), value);
    };
    const auto real = [&](const char* key, float value) {
      gguf_set_val_f32(gguf_.get(), (std::string(g.arch) + "." + key).c_str(), value);
    };
    gguf_set_val_str(gguf_.get(), "general.architecture", g.arch);
    gguf_set_val_str(gguf_.get(), "general.name", g.name);
    gguf_set_val_u32(
        gguf_.get(), "general.file_type",
        order_.type == GGML_TYPE_F16 ? LLAMA_FTYPE_MOSTLY_F16 : LLAMA_FTYPE_MOSTLY_BF16);
    gguf_set_val_str(gguf_.get(), "tokenizer.ggml.model", "none");
    whole("vocab_size", g.vocab);
    whole("block_count", g.layers);
    whole("context_length", g.context);
    whole("embedding_length", g.width);
    whole("feed_forward_length", g.expert_width);
    whole("expert_feed_forward_length", g.expert_width);
    whole("attention.head_count", g.heads);
    whole("attention.head_count_kv", g.kv_heads);
    whole("attention.key_length", g.head);
    whole("attention.value_length", g.head);
    whole("rope.dimension_count", g.head);
    real("rope.freq_base", g.rope_base);
    real("attention.layer_norm_rms_epsilon", g.eps);
    whole("expert_count", g.experts);
    whole("expert_used_count", g.picks);
  }

  void add_tensors() {
    const Geometry& g = order_.geometry;
    add_rows("token_embd", g.width, g.vocab);
    add_norm("output_norm", g.width);
    add("output", order_.type, g.width, g.vocab);
    for (uint32_t layer = 0; layer < g.layers; ++layer)
      add_layer("blk." + std::to_string(layer) + ".");
  }

  void add_layer(const std::string& p) {
    const Geometry& g = order_.geometry;
    const int64_t query = int64_t{g.heads} * g.head, key = int64_t{g.kv_heads} * g.head;
    add_norm(p + "attn_norm", g.width);
    add(p + "attn_q", order_.type, g.width, query);
    add(p + "attn_k", order_.type, g.width, key);
    add(p + "attn_v", order_.type, g.width, key);
    add(p + "attn_output", order_.type, query, g.width, 1, to_residual_);
    if (std::strcmp(g.arch, "llama") != 0) {
      const bool whole_rows = std::strcmp(g.arch, "olmoe") == 0;
      add_norm(p + "attn_q_norm", whole_rows ? query : g.head);
      add_norm(p + "attn_k_norm", whole_rows ? key : g.head);
    }
    add_norm(p + "ffn_norm", g.width);
    add(p + "ffn_gate_inp", GGML_TYPE_F32, g.width, g.experts);
    add(p + "ffn_gate_exps", order_.type, g.width, g.expert_width, g.experts);
    add(p + "ffn_up_exps", order_.type, g.width, g.expert_width, g.experts);
    add(p + "ffn_down_exps", order_.type, g.expert_width, g.width, g.experts, to_residual_);
  }

  void add_norm(const std::string& name, int64_t width) {
    add_span(name, ggml_new_tensor_1d(ggml_.get(), GGML_TYPE_F32, width),
             blocks_.get(GGML_TYPE_F32, 0, 1));
  }
  void add_rows(const std::string& name, int64_t width, int64_t rows) {
    add_span(name, ggml_new_tensor_2d(ggml_.get(), order_.type, width, rows),
             blocks_.get_rows(order_.type, width, order_.spread));
    spans_.back().start = 0;
  }
  void add(const std::string& name, ggml_type type, int64_t inputs, int64_t outputs,
           int64_t experts = 1, float scale = 1) {
    ggml_tensor* tensor = experts == 1
                              ? ggml_new_tensor_2d(ggml_.get(), type, inputs, outputs)
                              : ggml_new_tensor_3d(ggml_.get(), type, inputs, outputs, experts);
    add_span(name, tensor, blocks_.get(type, inputs, scale));
  }
  void add_span(const std::string& name, ggml_tensor* tensor, const Block& block) {
    ggml_set_name(tensor, (name + ".weight").c_str());
    gguf_add_tensor(gguf_.get(), tensor);
    const int64_t at = gguf_get_tensor_offset(gguf_.get(), gguf_get_n_tensors(gguf_.get()) - 1);
    const int64_t bytes = ggml_nbytes(tensor);
    const int64_t start = 1000003 * std::ssize(spans_) * ggml_type_size(tensor->type);
    spans_.push_back({at, bytes, start, &block});
  }

  int64_t read_piece(char* to, int64_t most) const {
    if (position < static_cast<int64_t>(header_.size())) {
      const int64_t bytes = std::min<int64_t>(most, header_.size() - position);
      std::memcpy(to, header_.data() + position, bytes);
      return bytes;
    }
    const auto next =
        std::upper_bound(spans_.begin(), spans_.end(), position,
                         [](int64_t at, const Span& span) { return at < span.begin; });
    const Span& span = *std::prev(next);
    const int64_t at = position - span.begin;
    if (at >= span.bytes) {  // the padding that follows it
      const int64_t bytes = std::min(most, next->begin - position);
      std::memset(to, 0, bytes);
      return bytes;
    }
    const int64_t block_bytes = std::ssize(*span.block), from = (span.start + at) % block_bytes;
    const int64_t bytes = std::min({most, span.bytes - at, block_bytes - from});
    std::memcpy(to, span.block->data() + from, bytes);
    return bytes;
  }

  Order order_;
  float to_residual_;  // Radford et al. 2019, 2.3
  std::unique_ptr<gguf_context, GgufDeleter> gguf_;
  std::unique_ptr<ggml_context, GgmlDeleter> ggml_;
  Blocks blocks_;
  std::vector<char> header_;
  std::vector<Span> spans_;
  int64_t size_ = 0;
};

std::string known_names() {
  std::string names;
  for (const Geometry& g : kGeometries) names += (names.empty() ? "" : ", ") + std::string(g.name);
  return names;
}

template <class T>
T number(const std::string& text, const char* what) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || at != end) fail("'" + text + "' " + what + ": expected a number");
  return value;
}

// What the text after "random:" asks for.
Order parse(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream words(text);
  for (std::string part; std::getline(words, part, ':');) parts.push_back(part);
  const auto* found = std::find_if(std::begin(kGeometries), std::end(kGeometries),
                                   [&](auto& g) { return !parts.empty() && parts[0] == g.name; });
  if (found == std::end(kGeometries))
    fail("no geometry is called '" + text + "': expected " + known_names());
  Order order{*found, GGML_TYPE_BF16, 0.5F};
  if (parts.size() > 1 && parts[1] == "f16") order.type = GGML_TYPE_F16;
  if (parts.size() > 1 && parts[1] != "f16" && parts[1] != "bf16")
    fail("matrices of type '" + parts[1] + "': expected bf16 or f16");
  if (parts.size() > 2) {
    const auto layers = number<uint32_t>(parts[2], "layers");
    if (layers > 0) order.geometry.layers = layers;
  }
  if (parts.size() > 3) order.spread = number<float>(parts[3], "of spread");
  if (!(order.spread >= 0 && order.spread <= 10))
    fail("'" + parts[3] + "' of spread: expected 0 to 10");
  return order;
}

ssize_t read_cookie(void* cookie, char* to, size_t bytes) {
  return static_cast<Stream*>(cookie)->read(to, static_cast<int64_t>(bytes));
}

int seek_cookie(void* cookie, off64_t* offset, int whence) {
  auto& stream = *static_cast<Stream*>(cookie);
  const int64_t from = whence == SEEK_CUR   ? stream.position
                       : whence == SEEK_END ? stream.size()
                                            : 0;
  stream.position = *offset += from;
  return 0;
}

}  // namespace

// In place of libllama's, by LD_PRELOAD.
extern "C" llama_model* llama_model_load_from_file(const char* path, llama_model_params params) {
  constexpr char kPrefix[] = "random:";
  if (std::strncmp(path, kPrefix, sizeof(kPrefix) - 1) != 0) {
    const auto real = reinterpret_cast<decltype(&llama_model_load_from_file)>(
        dlsym(RTLD_NEXT, "llama_model_load_from_file"));
    return real(path, params);
  }
  Stream stream(parse(path + sizeof(kPrefix) - 1));
  // Buffered, as it is by default: glibc reads an unbuffered one a byte at a time, which takes minutes.
  FILE* file = fopencookie(&stream, "r", {read_cookie, nullptr, seek_cookie, nullptr});
  if (file == nullptr) fail("cannot open a stream");
  params.load_mode = LLAMA_LOAD_MODE_NONE;  // nothing to map
  llama_model* model = llama_model_load_from_file_ptr(file, params);
  std::fclose(file);
  return model;
}
