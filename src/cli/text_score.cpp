// SPDX-License-Identifier: Apache-2.0
#include "cli/text_score.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/trace.h"

namespace switchyard::cli {
namespace {

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

class PickCounter final : public model::RoutingObserver {
 public:
  explicit PickCounter(TextScore& score) : score_(score) {}
  void on_routing(int moe_layer, const Routing& routing) override {
    const auto layer = static_cast<size_t>(moe_layer);
    if (score_.layers.size() <= layer) score_.layers.resize(layer + 1);
    score_.layers[layer].picks += routing.expert.shape.elements();
    score_.layers[layer].dropped += routing.counts.dropped;
    score_.unrouted_tokens += routing.counts.unrouted_tokens;
  }

 private:
  TextScore& score_;
};

/// -log softmax(logits)[target], in double. NaN when a logit is NaN or infinite.
double negative_log_likelihood(std::span<const float> logits, int32_t target) {
  const float highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += static_cast<double>(std::exp(logit - highest));
  return std::log(sum) - static_cast<double>(logits[static_cast<size_t>(target)] - highest);
}

/// One text under way.
class Scoring {
 public:
  Scoring(model::Model& model, Pool& pool, std::span<const int32_t> ids, const WindowSpec& spec)
      : model_(model), pool_(pool), ids_(ids), spec_(spec), blocks_(spec.num_blocks()) {
    std::iota(blocks_.begin(), blocks_.end(), 0);
  }

  Result<TextScore> run() {
    const auto rows = static_cast<int64_t>(ids_.size()) - 1;  // the last token predicts nothing
    for (int64_t window = 0; window < rows; window += spec_.context) {
      const int64_t end = std::min(window + spec_.context, rows);
      for (int64_t begin = window; begin < end; begin += spec_.step_tokens)
        SWITCHYARD_TRY(step(window, begin, std::min(begin + spec_.step_tokens, end)));
    }
    if (score_.tokens == 0)
      return fail(Code::bad_request,
                  "the text has {} tokens: none is left to score behind {} that are context alone",
                  ids_.size(), spec_.unscored);
    return std::move(score_);
  }

 private:
  /// Feeds ids [begin, end) of the window that starts at `window`.
  Status step(int64_t window, int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    position_.resize(static_cast<size_t>(count));
    std::iota(position_.begin(), position_.end(), static_cast<int32_t>(begin - window));
    // A step without scored rows still asks for its last one: a model gives some logits.
    const int64_t first = std::min(std::max(window + spec_.unscored, begin), end - 1);
    row_.resize(static_cast<size_t>(end - first));
    std::iota(row_.begin(), row_.end(), static_cast<int32_t>(first - begin));
    const std::vector<int32_t> offset{0, static_cast<int32_t>(count)};
    const std::vector<int32_t> context{static_cast<int32_t>(begin - window)};
    const int64_t num_blocks = std::ssize(blocks_);
    const model::StepInput input{.token = TensorView::of(ids_.data() + begin, {count}),
                                 .position = TensorView::of(position_.data(), {count}),
                                 .seq_offset = TensorView::of(offset.data(), {2}),
                                 .context_len = TensorView::of(context.data(), {1}),
                                 .block_table = TensorView::of(blocks_.data(), {1, num_blocks}),
                                 .logit_row = TensorView::of(row_.data(), {end - first}),
                                 .decode_only = count == 1};
    PickCounter counter(score_);
    const int64_t start_ns = now_ns();
    SWITCHYARD_ASSIGN(const model::StepOutput output, model_.forward(input, &counter));
    score_.forward_s += static_cast<double>(now_ns() - start_ns) * 1e-9;
    score_.fed_tokens += count;
    if (first < window + spec_.unscored) return {};
    return add_rows(output.logits, first);
  }

  /// Rows of logits [N, V] for the tokens behind ids[first], ids[first + 1], ...
  Status add_rows(const TensorView& logits, int64_t first) {
    const int64_t rows = logits.shape[0], vocab = logits.shape[1];
    nats_.resize(static_cast<size_t>(rows));
    pool_.for_range(rows, 1 + 16384 / vocab, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r)
        nats_[static_cast<size_t>(r)] =
            negative_log_likelihood({logits.as<float>() + r * vocab, static_cast<size_t>(vocab)},
                                    ids_[static_cast<size_t>(first + r + 1)]);
    });
    for (int64_t r = 0; r < rows; ++r) {
      const double nats = nats_[static_cast<size_t>(r)];
      if (!std::isfinite(nats))
        return fail(Code::internal,
                    "the logits of token {} hold NaN or infinity: run `switchyard check` on the "
                    "model, and try --dtype f32",
                    first + r);
      score_.nats += nats;
    }
    score_.tokens += rows;
    return {};
  }

  model::Model& model_;
  Pool& pool_;
  std::span<const int32_t> ids_;
  const WindowSpec& spec_;
  std::vector<int32_t> blocks_, position_, row_;
  std::vector<double> nats_;
  TextScore score_;
};

}  // namespace

void TextScore::add(const TextScore& other) {
  tokens += other.tokens;
  nats += other.nats;
  fed_tokens += other.fed_tokens;
  forward_s += other.forward_s;
  unrouted_tokens += other.unrouted_tokens;
  layers.resize(std::max(layers.size(), other.layers.size()));
  for (size_t i = 0; i < other.layers.size(); ++i) {
    layers[i].picks += other.layers[i].picks;
    layers[i].dropped += other.layers[i].dropped;
  }
}

double TextScore::perplexity() const { return std::exp(nats_per_token()); }

double TextScore::drop_rate() const {
  Layer sum;
  for (const Layer& layer : layers) {
    sum.picks += layer.picks;
    sum.dropped += layer.dropped;
  }
  return share(sum.dropped, sum.picks);
}

double TextScore::drop_rate(size_t layer) const {
  return share(layers[layer].dropped, layers[layer].picks);
}

Result<TextScore> score_text(model::Model& model, Pool& pool, std::span<const int32_t> ids,
                             const WindowSpec& spec) {
  return Scoring(model, pool, ids, spec).run();
}

}  // namespace switchyard::cli
