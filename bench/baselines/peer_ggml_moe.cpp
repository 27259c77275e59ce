// SPDX-License-Identifier: Apache-2.0
// MoE layers alone through ggml's public API: the peer figure beside our own layer benchmark.
//
//   x [T,D] -> for each of L layers: up, gate [T,K,F] = mul_mat_id(W, x, ids); h = silu(gate) * up;
//   down [T,K,D] = mul_mat_id(W, h, ids); y [T,D] = sum over K of weight * down
//
// The graph is the one that llama.cpp builds for such a layer. Routing is given (uniform, without
// repetition inside a token) and changes with every run and layer, so that no run finds the experts
// of the last one in cache by design. Each layer reads the same x: the arithmetic is the same as
// in a chain and nothing grows. One JSON object a line goes to stdout for each T.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include "splitmix64.h"

namespace {

struct Shape {
  const char* name;
  int experts, picks, width, expert_width;
};
constexpr Shape kShapes[] = {
    {"olmoe", 64, 8, 2048, 1024},
    {"mixtral-like", 8, 2, 2048, 7168},
    {"qwen3-30b-a3b", 128, 8, 2048, 768},
    {"tiny", 8, 2, 256, 512},
};

struct Options {
  std::string shape = "olmoe", dtype = "bf16";
  std::vector<int> tokens = {1, 16, 64, 512};
  int threads = 2, layers = 4, runs = 0;  // runs 0: 200 at one token, 24 below 128, else 8
};

[[noreturn]] void fail(const std::string& message) {
  std::fprintf(stderr, "peer_ggml_moe: %s\n", message.c_str());
  std::exit(2);
}

// Draws K different experts for each of T tokens: the first K steps of a Fisher-Yates shuffle.
std::vector<int32_t> draw_routing(const Shape& shape, int tokens, uint64_t seed) {
  SplitMix64 random{seed};
  std::vector<int32_t> ids;
  std::vector<int32_t> deck(shape.experts);
  for (int t = 0; t < tokens; ++t) {
    for (int e = 0; e < shape.experts; ++e) deck[e] = e;
    for (int k = 0; k < shape.picks; ++k) {
      std::swap(deck[k], deck[k + random.next() % (shape.experts - k)]);
      ids.push_back(deck[k]);
    }
  }
  return ids;
}

// Sum of four uniforms, scaled to the standard deviation wanted: normal enough for a speed test.
std::vector<float> make_noise(size_t count, float deviation, uint64_t seed) {
  SplitMix64 random{seed};
  std::vector<float> noise(count);
  for (float& value : noise) {
    const uint64_t bits = random.next();
    int sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<int>((bits >> (16 * i)) & 0xFFFF) - 0x8000;
    value = static_cast<float>(sum) * (deviation / 37837.0f);  // 37837 = 65536 / sqrt(3)
  }
  return noise;
}

ggml_type parse_dtype(const std::string& name) {
  if (name == "f32") return GGML_TYPE_F32;
  if (name == "bf16") return GGML_TYPE_BF16;
  if (name == "q8_0") return GGML_TYPE_Q8_0;
  if (name == "q4_0") return GGML_TYPE_Q4_0;
  if (name == "q4_K") return GGML_TYPE_Q4_K;
  fail("unknown --dtype " + name + "; expected f32, bf16, q8_0, q4_0 or q4_K");
}

// The buffer in which llama.cpp would keep such experts: the repacking one where it takes the type,
// the plain one otherwise (its AMX buffer refuses expert tensors).
ggml_backend_buffer_type_t expert_buffer(ggml_backend_t backend, ggml_type type) {
  if (type == GGML_TYPE_Q4_0 || type == GGML_TYPE_Q4_K) {
    ggml_backend_dev_t device = ggml_backend_get_device(backend);
    auto* list =
        reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(ggml_backend_reg_get_proc_address(
            ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts"));
    for (auto* buffer = list != nullptr ? list(device) : nullptr; buffer != nullptr && *buffer;
         ++buffer) {
      if (std::strcmp(ggml_backend_buft_name(*buffer), "CPU_REPACK") == 0) return *buffer;
    }
  }
  return ggml_backend_cpu_buffer_type();
}

struct Weights {
  ggml_context* context = nullptr;
  ggml_backend_buffer_t buffer = nullptr;
  std::vector<ggml_tensor*> gate, up, down;  // one of each a layer, [E,F,D], [E,F,D], [E,D,F]
};

// Converts one piece of noise and lays it end to end over the tensor.
void fill(ggml_tensor* tensor, const std::vector<float>& noise) {
  const int64_t row = tensor->ne[0];
  const int64_t piece_rows = static_cast<int64_t>(noise.size()) / row;
  std::vector<uint8_t> piece(ggml_row_size(tensor->type, row) * piece_rows);
  if (tensor->type == GGML_TYPE_BF16) {
    ggml_fp32_to_bf16_row(noise.data(), reinterpret_cast<ggml_bf16_t*>(piece.data()),
                          piece_rows * row);
  } else {
    ggml_quantize_chunk(tensor->type, noise.data(), piece.data(), 0, piece_rows, row, nullptr);
  }
  std::vector<uint8_t> whole(ggml_nbytes(tensor));
  for (size_t done = 0; done < whole.size();) {
    const size_t bytes = std::min(piece.size(), whole.size() - done);
    std::memcpy(whole.data() + done, piece.data(), bytes);
    done += bytes;
  }
  ggml_backend_tensor_set(tensor, whole.data(), 0, whole.size());
}

Weights make_weights(ggml_backend_t backend, const Shape& shape, ggml_type type, int layers) {
  Weights weights;
  weights.context = ggml_init({ggml_tensor_overhead() * (3 * layers + 1), nullptr, true});
  for (int l = 0; l < layers; ++l) {
    ggml_context* c = weights.context;
    weights.gate.push_back(
        ggml_new_tensor_3d(c, type, shape.width, shape.expert_width, shape.experts));
    weights.up.push_back(
        ggml_new_tensor_3d(c, type, shape.width, shape.expert_width, shape.experts));
    weights.down.push_back(
        ggml_new_tensor_3d(c, type, shape.expert_width, shape.width, shape.experts));
  }
  weights.buffer =
      ggml_backend_alloc_ctx_tensors_from_buft(weights.context, expert_buffer(backend, type));
  if (weights.buffer == nullptr) fail("not enough memory for the weights");
  ggml_backend_buffer_set_usage(weights.buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  const std::vector<float> noise = make_noise(7168u * 512, 0.02f, 1);
  for (auto* list : {&weights.gate, &weights.up, &weights.down}) {
    for (ggml_tensor* tensor : *list) fill(tensor, noise);
  }
  return weights;
}

struct Graph {
  ggml_context* context;
  ggml_cgraph* nodes;
  ggml_gallocr_t allocator;
  ggml_tensor *input, *pick_weights;
  std::vector<ggml_tensor*> ids;
};

// One layer; x is [T,D] and the result too.
ggml_tensor* add_layer(ggml_context* c, const Weights& weights, int layer, ggml_tensor* x,
                       ggml_tensor* ids, ggml_tensor* pick_weights) {
  const int64_t width = x->ne[0], tokens = x->ne[1], picks = ids->ne[0];
  ggml_tensor* rows = ggml_reshape_3d(c, x, width, 1, tokens);
  ggml_tensor* up = ggml_mul_mat_id(c, weights.up[layer], rows, ids);
  ggml_tensor* gate = ggml_mul_mat_id(c, weights.gate[layer], rows, ids);
  ggml_tensor* hidden = ggml_swiglu_split(c, gate, up);
  ggml_tensor* down = ggml_mul_mat_id(c, weights.down[layer], hidden, ids);
  down = ggml_mul(c, down, pick_weights);
  ggml_tensor* sum = nullptr;
  for (int64_t k = 0; k < picks; ++k) {
    ggml_tensor* part = ggml_view_2d(c, down, width, tokens, down->nb[2], k * down->nb[1]);
    sum = sum == nullptr ? part : ggml_add(c, sum, part);
  }
  return sum;
}

Graph build_graph(ggml_backend_t backend, const Weights& weights, const Shape& shape, int tokens) {
  const int layers = static_cast<int>(weights.gate.size());
  Graph graph;
  graph.context = ggml_init(
      {ggml_tensor_overhead() * static_cast<size_t>(64 * layers + 64) + ggml_graph_overhead(),
       nullptr, true});
  ggml_context* c = graph.context;
  graph.nodes = ggml_new_graph(c);
  graph.input = ggml_new_tensor_2d(c, GGML_TYPE_F32, shape.width, tokens);
  graph.pick_weights = ggml_new_tensor_3d(c, GGML_TYPE_F32, 1, shape.picks, tokens);
  ggml_set_input(graph.input);
  ggml_set_input(graph.pick_weights);
  for (int l = 0; l < layers; ++l) {
    ggml_tensor* ids = ggml_new_tensor_2d(c, GGML_TYPE_I32, shape.picks, tokens);
    ggml_set_input(ids);
    graph.ids.push_back(ids);
    ggml_tensor* out = add_layer(c, weights, l, graph.input, ids, graph.pick_weights);
    ggml_set_output(out);
    ggml_build_forward_expand(graph.nodes, out);
  }
  graph.allocator = ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend));
  if (!ggml_gallocr_alloc_graph(graph.allocator, graph.nodes)) fail("not enough memory");
  const std::vector<float> x = make_noise(static_cast<size_t>(shape.width) * tokens, 1.0f, 2);
  const std::vector<float> w(static_cast<size_t>(shape.picks) * tokens, 1.0f / shape.picks);
  ggml_backend_tensor_set(graph.input, x.data(), 0, ggml_nbytes(graph.input));
  ggml_backend_tensor_set(graph.pick_weights, w.data(), 0, ggml_nbytes(graph.pick_weights));
  return graph;
}

// Sorted milliseconds of the runs; the first two runs warm up and are left out.
std::vector<double> time_runs(ggml_backend_t backend, const Graph& graph, const Shape& shape,
                              int tokens, int runs) {
  constexpr int kWarmUp = 2;
  std::vector<double> times;
  for (int run = 0; run < runs + kWarmUp; ++run) {
    for (size_t l = 0; l < graph.ids.size(); ++l) {
      const auto ids = draw_routing(shape, tokens, 1000003u * static_cast<unsigned>(run) + l);
      ggml_backend_tensor_set(graph.ids[l], ids.data(), 0, ggml_nbytes(graph.ids[l]));
    }
    const auto start = std::chrono::steady_clock::now();
    if (ggml_backend_graph_compute(backend, graph.nodes) != GGML_STATUS_SUCCESS) {
      fail("ggml could not compute the graph");
    }
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    if (run >= kWarmUp) times.push_back(took.count());
  }
  std::sort(times.begin(), times.end());
  return times;
}

double median(const std::vector<double>& sorted) {
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 != 0 ? sorted[half] : 0.5 * (sorted[half - 1] + sorted[half]);
}

std::vector<int> parse_list(const std::string& text) {
  std::vector<int> values;
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    values.push_back(std::atoi(text.substr(at, comma - at).c_str()));
    if (values.back() < 1) fail("--tokens wants positive numbers, found '" + text + "'");
    at = comma + 1;
  }
  return values;
}

Options parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string key = argv[i];
    if (i + 1 == argc || key == "--help") {
      fail(
          "options: --shape olmoe|mixtral-like|qwen3-30b-a3b|tiny --dtype f32|bf16|q8_0|q4_0|q4_K"
          " --tokens 1,16,64,512 --threads N --layers N --runs N");
    }
    const std::string value = argv[i + 1];
    if (key == "--shape") {
      options.shape = value;
    } else if (key == "--dtype") {
      options.dtype = value;
    } else if (key == "--tokens") {
      options.tokens = parse_list(value);
    } else if (key == "--threads") {
      options.threads = std::max(1, std::atoi(value.c_str()));
    } else if (key == "--layers") {
      options.layers = std::max(1, std::atoi(value.c_str()));
    } else if (key == "--runs") {
      options.runs = std::max(1, std::atoi(value.c_str()));
    } else {
      fail("unknown option " + key);
    }
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse_options(argc, argv);
  const Shape* shape = nullptr;
  for (const Shape& candidate : kShapes) {
    if (options.shape == candidate.name) shape = &candidate;
  }
  if (shape == nullptr) fail("unknown --shape " + options.shape);
  const ggml_type type = parse_dtype(options.dtype);

  ggml_backend_t backend = ggml_backend_cpu_init();
  ggml_backend_cpu_set_n_threads(backend, options.threads);
  const Weights weights = make_weights(backend, *shape, type, options.layers);
  std::fprintf(stderr, "ggml %s (%s), expert buffer %s\n", ggml_version(), ggml_commit(),
               ggml_backend_buffer_name(weights.buffer));

  for (const int tokens : options.tokens) {
    const int runs = options.runs > 0 ? options.runs : tokens == 1 ? 200 : tokens < 128 ? 24 : 8;
    const Graph graph = build_graph(backend, weights, *shape, tokens);
    const std::vector<double> times = time_runs(backend, graph, *shape, tokens, runs);
    std::printf(
        "{\"engine\":\"ggml\",\"shape\":\"%s\",\"tokens\":%d,\"dtype\":\"%s\",\"threads\":%d,"
        "\"layers\":%d,\"median_ms\":%.3f,\"best_ms\":%.3f,\"runs\":%d}\n",
        shape->name, tokens, options.dtype.c_str(), options.threads, options.layers, median(times),
        times.front(), runs);
    std::fflush(stdout);
    ggml_gallocr_free(graph.allocator);
    ggml_free(graph.context);
  }
  ggml_backend_buffer_free(weights.buffer);
  ggml_free(weights.context);
  ggml_backend_free(backend);
  return 0;
}
