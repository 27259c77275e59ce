// SPDX-License-Identifier: Apache-2.0
// What structured output costs: the time to compile a schema, and of masks along a random output of each: the first time that a
// position is met, and again. Usage: bench_grammar MODEL_FOLDER. Prints one row per schema.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "grammar/matcher.h"
#include "text/token_bytes.h"
#include "text/tokenizer.h"

namespace {

using namespace switchyard;
using grammar::Grammar;

struct Schema {
  const char *name, *text;
};

constexpr Schema kSchemas[] = {
    {"any object", R"({"type": "object"})"},
    {"flat object",
     R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0,
        "maximum": 150}, "email": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}},
        "required": ["name", "age", "tags"], "additionalProperties": false})"},
    {"counted strings",
     R"({"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 200}, "maxItems": 20})"},
    {"recursive",
     R"({"$defs": {"node": {"type": "object", "properties": {"value": {"type": "number"}, "children": {"type": "array",
        "items": {"$ref": "#/$defs/node"}}}, "required": ["value", "children"]}}, "$ref": "#/$defs/node"})"},
    {"pattern", R"({"type": "string", "pattern": "^[A-Z][a-z]+( [A-Z][a-z]+){1,4}$"})"},
};

double us_since(int64_t start_ns) { return static_cast<double>(now_ns() - start_ns) * 1e-3; }

/// Microseconds of the masks along one random output.
std::vector<double> walk(grammar::Matcher matcher, const grammar::TokenTrie& tokens,
                         uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<double> times;
  for (int step = 0; step < 200; ++step) {
    const int64_t start = now_ns();
    const auto mask = matcher.allowed();
    times.push_back(us_since(start));
    std::vector<int32_t> allowed;
    for (int32_t token = 0; token < tokens.num_tokens(); ++token)
      if (mask[static_cast<size_t>(token) / 64] >> (token % 64) & 1) allowed.push_back(token);
    if (allowed.empty()) break;
    matcher.accept(allowed[random() % allowed.size()]);
  }
  std::sort(times.begin(), times.end());
  return times;
}

double at(const std::vector<double>& times, double share) {
  return times[static_cast<size_t>(share * static_cast<double>(times.size() - 1))];
}

void measure(const Schema& schema, const std::shared_ptr<const grammar::TokenTrie>& tokens) {
  const int64_t start = now_ns();
  auto compiled = Grammar::compile_text(schema.text);
  const double compile_us = us_since(start);
  if (!compiled.ok()) {
    std::fprintf(stderr, "%s: %s\n", schema.name, compiled.error().message.c_str());
    return;
  }
  const int states = compiled->network().size();
  const auto constraint = std::make_shared<grammar::Constraint>(*std::move(compiled), tokens);
  const auto first = walk(grammar::Matcher(constraint), *tokens, 1);
  const auto other = walk(grammar::Matcher(constraint), *tokens, 2);
  const auto again = walk(grammar::Matcher(constraint), *tokens, 1);
  std::printf("%-16s %7d %11.0f %10.1f %10.1f %10.1f %10.1f %10.2f\n", schema.name, states,
              compile_us, at(first, 0.5), at(first, 1), at(other, 0.5), at(other, 0.99),
              at(again, 0.5));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: bench_grammar MODEL_FOLDER\n");
    return 2;
  }
  const auto tokenizer = text::open_tokenizer(argv[1]);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str());
    return 1;
  }
  int64_t start = now_ns();
  auto bytes = text::token_bytes(**tokenizer);
  const double bytes_us = us_since(start);
  start = now_ns();
  std::vector<int32_t> ends;
  if ((*tokenizer)->eos_id()) ends.push_back(*(*tokenizer)->eos_id());
  const auto tokens = std::make_shared<const grammar::TokenTrie>(std::move(bytes), ends);
  std::printf("%d tokens, %d nodes; bytes of tokens %.0f us, tree %.0f us\n", tokens->num_tokens(),
              tokens->size(), bytes_us, us_since(start));
  std::printf("%-16s %7s %11s %10s %10s %10s %10s %10s\n", "schema", "states", "compile us",
              "first p50", "first max", "other p50", "other p99", "again p50");
  for (const Schema& schema : kSchemas) measure(schema, tokens);
  return 0;
}
