// SPDX-License-Identifier: Apache-2.0
#include "model/runner.h"

#include <algorithm>
#include <numeric>

namespace switchyard::test {
namespace {

// Appends every layer's picks to a RunOutput.
class Recorder final : public model::RoutingObserver {
 public:
  explicit Recorder(RunOutput* output) : output_(output) {}
  void on_routing(int moe_layer, const Routing& routing) override {
    if (output_ == nullptr) return;
    output_->expert.resize(std::max<size_t>(output_->expert.size(), moe_layer + 1));
    output_->weight.resize(std::max<size_t>(output_->weight.size(), moe_layer + 1));
    const int64_t picks = routing.expert.shape.elements();
    const auto* expert = routing.expert.as<int32_t>();
    const auto* weight = routing.weight.as<float>();
    output_->expert[moe_layer].insert(output_->expert[moe_layer].end(), expert, expert + picks);
    output_->weight[moe_layer].insert(output_->weight[moe_layer].end(), weight, weight + picks);
  }

 private:
  RunOutput* output_;
};

}  // namespace

Result<std::unique_ptr<Runner>> Runner::load(const std::string& folder,
                                             const model::ModelConfig& config, DType dtype,
                                             int threads, DeviceId device) {
  std::unique_ptr<Runner> runner(new Runner(threads));
  const model::LoadOptions options{.dtype = dtype,
                                   .max_step_tokens = kMaxTokens,
                                   .max_sequences = kMaxTokens,
                                   .block_tokens = kBlockTokens,
                                   .num_kv_blocks = kMaxBlocks * 2,
                                   .max_blocks_per_sequence = kMaxBlocks,
                                   .on_progress = {}};
  SWITCHYARD_ASSIGN(runner->model_,
                    model::Model::load(folder, config, options, Stream(device, runner->pool_)));
  return runner;
}

Result<std::vector<float>> Runner::step(const std::vector<int32_t>& ids, int begin, int end,
                                        RunOutput* output) {
  const int count = end - begin;
  std::vector<int32_t> token(ids.begin() + begin, ids.begin() + end), position(count), row(count);
  std::iota(position.begin(), position.end(), begin);
  std::iota(row.begin(), row.end(), 0);
  std::vector<int32_t> offset = {0, count}, context = {begin}, table(kMaxBlocks);
  for (int i = 0; i < kMaxBlocks; ++i) table[i] = (i * 11 + 5) % (2 * kMaxBlocks);
  const model::StepInput input{.token = TensorView::of(token.data(), {count}),
                               .position = TensorView::of(position.data(), {count}),
                               .seq_offset = TensorView::of(offset.data(), {2}),
                               .context_len = TensorView::of(context.data(), {1}),
                               .block_table = TensorView::of(table.data(), {1, kMaxBlocks}),
                               .logit_row = TensorView::of(row.data(), {count}),
                               .decode_only = count == 1};
  if (output != nullptr) {
    output->hidden.resize(model_->config().blocks.size());
    model_->set_hidden_probe([output](int block, TensorView hidden) {
      const auto* x = hidden.as<float>();
      output->hidden[block].insert(output->hidden[block].end(), x, x + hidden.shape.elements());
    });
  }
  Recorder recorder(output);
  SWITCHYARD_ASSIGN(const model::StepOutput out, model_->forward(input, &recorder));
  model_->set_hidden_probe({});
  const auto* logits = out.logits.as<float>();
  return std::vector<float>(logits, logits + out.logits.shape.elements());
}

Result<RunOutput> Runner::run(const std::vector<int32_t>& ids, int step_size) {
  const int total = static_cast<int>(ids.size()), size = step_size == 0 ? total : step_size;
  std::vector<int> chunks(total / size, size);
  if (total % size != 0) chunks.push_back(total % size);
  return run_chunks(ids, chunks);
}

Result<RunOutput> Runner::run_chunks(const std::vector<int32_t>& ids,
                                     const std::vector<int>& chunks) {
  RunOutput output;
  int begin = 0;
  for (const int size : chunks) {
    SWITCHYARD_ASSIGN(const std::vector<float> logits, step(ids, begin, begin + size, &output));
    output.logits.insert(output.logits.end(), logits.begin(), logits.end());
    begin += size;
  }
  return output;
}

Result<std::vector<int32_t>> Runner::greedy(const std::vector<int32_t>& ids, int count) {
  std::vector<int32_t> all = ids, produced;
  const int64_t vocab = model_->config().vocab;
  int done = 0;
  while (static_cast<int>(produced.size()) < count) {
    SWITCHYARD_ASSIGN(const std::vector<float> logits,
                      step(all, done, static_cast<int>(all.size()), nullptr));
    done = static_cast<int>(all.size());
    const auto last = logits.end() - vocab;
    all.push_back(static_cast<int32_t>(std::max_element(last, logits.end()) - last));
    produced.push_back(all.back());
  }
  return produced;
}

}  // namespace switchyard::test
