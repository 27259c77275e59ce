// SPDX-License-Identifier: Apache-2.0
// What the profile costs: the same steps with and without it, taking turns in one engine, so that a drift of the
// machine meets both. One JSON line for each kind of step; bench/instrumentation_overhead.py keeps them.
//
//   bench_profile_overhead MODEL [rounds] [threads]
//
// A round plays every case once with the profile and once without, in an order that alternates from round to round. The
// ratio of a round is seconds inside steps with over without; the line has the median over the rounds and a 95 %
// interval of it from resampled rounds.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "switchyard/switchyard.h"

#include "base/json.h"

namespace switchyard {
namespace {

/// Requests that share their steps.
struct Case {
  const char* name;
  int sequences, prompt_tokens, output_tokens;
};
constexpr Case kCases[] = {
    {"decode_1", 1, 8, 128}, {"decode_16", 16, 8, 64}, {"prefill_512", 1, 512, 1}};

Request make_request(const Case& which, int sequence, int vocab) {
  Request request;
  for (int i = 0; i < which.prompt_tokens; ++i)
    request.prompt_tokens.push_back(
        static_cast<int32_t>((i * 7919 + sequence * 104729 + 11) % vocab));
  request.sampling.temperature = 0;
  request.sampling.max_tokens = which.output_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

/// Seconds inside steps.
double play(Engine& engine, const Case& which, bool profiled) {
  engine.set_profile(profiled);
  engine.reset_stats();
  for (int s = 0; s < which.sequences; ++s)
    engine.submit(make_request(which, s, engine.summary().vocab), [](const Event&) {}).value();
  engine.wait_idle();
  return engine.stats().step_s;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// The middle 95 % of the medians of resampled rounds.
std::pair<double, double> interval(const std::vector<double>& ratios) {
  constexpr int kSamples = 2000;
  std::mt19937 random(1);
  std::vector<double> medians;
  for (int i = 0; i < kSamples; ++i) {
    std::vector<double> sample;
    for (size_t k = 0; k < ratios.size(); ++k) sample.push_back(ratios[random() % ratios.size()]);
    medians.push_back(median(std::move(sample)));
  }
  std::sort(medians.begin(), medians.end());
  return {medians[kSamples / 40], medians[kSamples - 1 - kSamples / 40]};
}

void measure(Engine& engine, const Case& which, int rounds) {
  for (const bool profiled : {false, true}) play(engine, which, profiled);  // warm
  std::vector<double> ratios, off;
  for (int round = 0; round < rounds; ++round) {
    double seconds[2] = {};  // without, with
    for (int turn = 0; turn < 2; ++turn) {
      const bool profiled = (turn + round) % 2 == 1;
      seconds[profiled ? 1 : 0] = play(engine, which, profiled);
    }
    ratios.push_back(seconds[1] / seconds[0]);
    off.push_back(seconds[0]);
  }
  const auto [low, high] = interval(ratios);
  std::string line;
  JsonWriter json(line);
  json.begin_object().field("part", "profile_overhead").field("case", which.name);
  json.field("sequences", which.sequences).field("prompt_tokens", which.prompt_tokens);
  json.field("output_tokens", which.output_tokens).field("rounds", rounds);
  json.field("threads", engine.summary().threads).field("kernel", engine.summary().kernel);
  json.field("median_ratio", median(ratios)).field("ratio_low", low).field("ratio_high", high);
  json.field("median_seconds_without", median(off)).key("ratios").begin_array();
  for (const double ratio : ratios) json.real(ratio);
  json.end_array().end_object();
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: bench_profile_overhead MODEL [rounds] [threads]\n");
    return 2;
  }
  EngineOptions options;
  options.model = argv[1];
  options.threads = argc > 3 ? std::atoi(argv[3]) : 0;
  options.prefix_cache = false;  // every round plays the same prompts
  auto engine = Engine::open(options);
  if (!engine.ok()) {
    std::fprintf(stderr, "%s\n", engine.error().message.c_str());
    return 1;
  }
  const int rounds = std::max(argc > 2 ? std::atoi(argv[2]) : 40, 2);
  for (const Case& which : kCases) measure(**engine, which, rounds);
  return 0;
}

}  // namespace
}  // namespace switchyard

int main(int argc, char** argv) { return switchyard::run(argc, argv); }
