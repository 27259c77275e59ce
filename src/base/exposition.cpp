// SPDX-License-Identifier: Apache-2.0
#include "base/exposition.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace switchyard {
namespace {

Error bad_line(std::string_view line, std::string_view why) {
  return fail(Code::bad_file, "metrics text: {}: found '{}'", why, line.substr(0, 120));
}

/// Up to the next space; both are taken off `text`.
std::string_view take_word(std::string_view& text) {
  const size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

/// `key="value",...}` with its escapes; `text` goes on after the brace.
bool take_labels(std::string_view& text, Labels& labels) {
  while (!text.empty() && text.front() != '}') {
    const size_t equals = text.find("=\"");
    if (equals == std::string_view::npos) return false;
    std::string key(text.substr(0, equals)), value;
    text.remove_prefix(equals + 2);
    while (!text.empty() && text.front() != '"') {
      const bool escaped = text.front() == '\\' && text.size() > 1;
      const char c = text[escaped ? 1 : 0];
      value += escaped && c == 'n' ? '\n' : c;
      text.remove_prefix(escaped ? 2 : 1);
    }
    if (text.empty()) return false;
    text.remove_prefix(1);
    if (text.starts_with(',')) text.remove_prefix(1);
    labels.emplace_back(std::move(key), std::move(value));
  }
  if (text.empty()) return false;
  text.remove_prefix(1);
  return true;
}

bool parse_number(std::string_view text, double& value) {
  if (text == "+Inf" || text == "-Inf") {
    value = text[0] == '+' ? HUGE_VAL : -HUGE_VAL;
    return true;
  }
  if (text == "NaN") {
    value = std::numeric_limits<double>::quiet_NaN();
    return true;
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool is_suffix_of(std::string_view suffix, std::string_view type) {
  if (suffix.empty()) return type != "histogram";
  return type == "histogram" && (suffix == "_bucket" || suffix == "_sum" || suffix == "_count");
}

/// One sample of the family that was named before it.
Status add_sample(std::string_view line, std::vector<MetricFamily>& families) {
  std::string_view rest = line;
  const std::string_view name = rest.substr(0, rest.find_first_of("{ "));
  rest.remove_prefix(name.size());
  if (families.empty() || !name.starts_with(families.back().name) ||
      !is_suffix_of(name.substr(families.back().name.size()), families.back().type))
    return bad_line(line, "expected a sample of the family that was named last");
  Sample sample;
  sample.suffix = name.substr(families.back().name.size());
  if (rest.starts_with('{')) {
    rest.remove_prefix(1);
    if (!take_labels(rest, sample.labels)) return bad_line(line, "expected {label=\"value\",...}");
  }
  if (!rest.starts_with(' ') || !parse_number(rest.substr(1), sample.value))
    return bad_line(line, "expected one number after the name");
  families.back().samples.push_back(std::move(sample));
  return {};
}

Status add_line(std::string_view line, std::vector<MetricFamily>& families) {
  if (line.empty()) return {};
  if (!line.starts_with('#')) return add_sample(line, families);
  std::string_view rest = line.substr(1);
  if (rest.starts_with(' ')) rest.remove_prefix(1);
  const std::string_view kind = take_word(rest);
  if (kind != "HELP" && kind != "TYPE") return {};  // a comment
  const std::string_view name = take_word(rest);
  if (name.empty()) return bad_line(line, "expected a name");
  if (families.empty() || families.back().name != name)
    families.push_back({std::string(name), "untyped", "", {}});
  (kind == "HELP" ? families.back().help : families.back().type) = rest;
  return {};
}

bool has_labels(const Sample& sample, const Labels& wanted) {
  return std::all_of(wanted.begin(), wanted.end(),
                     [&](const auto& label) { return sample.label(label.first) == label.second; });
}

/// A text cut into families: "# HELP name ..." up to the next one.
struct Block {
  std::string_view name, head;
  std::vector<std::string_view> samples;
};

std::vector<Block> blocks_of(std::string_view text) {
  std::vector<Block> blocks;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end);
    if (line.starts_with("# HELP ")) {
      std::string_view rest = line.substr(7);
      blocks.push_back({take_word(rest), line, {}});
    } else if (line.starts_with("# ") && !blocks.empty()) {
      blocks.back().head = {blocks.back().head.data(), blocks.back().head.size() + line.size()};
    } else if (!blocks.empty()) {
      blocks.back().samples.push_back(line);
    }
  }
  return blocks;
}

/// The sample without its value.
std::string_view series_of(std::string_view line) { return line.substr(0, line.rfind(' ')); }

/// Adds counters of the same labels; what has none of the same stays as it is.
void write_joined(const Block& first, const Block& second, std::string& out) {
  std::vector<bool> joined(second.samples.size());
  for (const std::string_view line : first.samples) {
    const auto same =
        std::find_if(second.samples.begin(), second.samples.end(),
                     [&](std::string_view other) { return series_of(other) == series_of(line); });
    double mine = 0, other = 0;
    const auto value = [](std::string_view text) {
      text = text.substr(text.rfind(' ') + 1);
      return text.substr(0, text.find('\n'));
    };
    if (same == second.samples.end() || !parse_number(value(line), mine) ||
        !parse_number(value(*same), other)) {
      out += line;
      continue;
    }
    joined[static_cast<size_t>(same - second.samples.begin())] = true;
    out += fmt::format("{} {}\n", series_of(line), mine + other);
  }
  for (size_t i = 0; i < second.samples.size(); ++i)
    if (!joined[i]) out += second.samples[i];
}

}  // namespace

std::string_view Sample::label(std::string_view name) const noexcept {
  for (const auto& [key, text] : labels)
    if (key == name) return text;
  return {};
}

Result<Exposition> Exposition::parse(std::string_view text) {
  Exposition exposition;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    SWITCHYARD_TRY(add_line(text.substr(0, end), exposition.families_));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return exposition;
}

const MetricFamily* Exposition::find(std::string_view name) const noexcept {
  for (const MetricFamily& family : families_)
    if (family.name == name) return &family;
  return nullptr;
}

double Exposition::sum(std::string_view name, const Labels& labels) const {
  double sum = 0;
  if (const MetricFamily* family = find(name))
    for (const Sample& sample : family->samples)
      if (sample.suffix.empty() && has_labels(sample, labels)) sum += sample.value;
  return sum;
}

std::string join_expositions(std::string_view first, std::string_view second) {
  const std::vector<Block> left = blocks_of(first), right = blocks_of(second);
  const auto of_name = [](const std::vector<Block>& blocks, std::string_view name) {
    return std::find_if(blocks.begin(), blocks.end(),
                        [&](const Block& block) { return block.name == name; });
  };
  std::string out;
  for (const Block& block : left) {
    out += block.head;
    const auto other = of_name(right, block.name);
    write_joined(block, other == right.end() ? Block{} : *other, out);
  }
  for (const Block& block : right) {
    if (of_name(left, block.name) != left.end()) continue;
    out += block.head;
    for (const std::string_view line : block.samples) out += line;
  }
  return out;
}

Buckets Buckets::since(const Buckets& earlier) const {
  if (earlier.bounds != bounds || earlier.count() > count()) return *this;
  Buckets more = *this;
  for (size_t i = 0; i < counts.size(); ++i) more.counts[i] -= earlier.counts[i];
  more.sum -= earlier.sum;
  return more;
}

double Buckets::quantile(double q) const {
  if (!(count() > 0)) return std::numeric_limits<double>::quiet_NaN();
  const double rank = q * count();
  const auto at = static_cast<size_t>(
      std::find_if(counts.begin(), counts.end(), [&](double c) { return c >= rank; }) -
      counts.begin());
  if (at + 1 >= bounds.size()) return bounds.size() < 2 ? HUGE_VAL : bounds[bounds.size() - 2];
  const double below = at == 0 ? 0 : counts[at - 1], low = at == 0 ? 0 : bounds[at - 1];
  const double inside = counts[at] - below;
  return inside > 0 ? low + (bounds[at] - low) * (rank - below) / inside : bounds[at];
}

Buckets buckets_of(const Exposition& exposition, std::string_view name, const Labels& labels) {
  Buckets buckets;
  const MetricFamily* const family = exposition.find(name);
  if (family == nullptr) return buckets;
  for (const Sample& sample : family->samples) {
    if (!has_labels(sample, labels)) continue;
    if (sample.suffix == "_sum") buckets.sum += sample.value;
    if (sample.suffix != "_bucket") continue;
    double bound = 0;
    if (!parse_number(sample.label("le"), bound)) continue;
    const auto at = std::lower_bound(buckets.bounds.begin(), buckets.bounds.end(), bound);
    const auto index = at - buckets.bounds.begin();
    if (at == buckets.bounds.end() || *at != bound) {
      buckets.bounds.insert(at, bound);
      buckets.counts.insert(buckets.counts.begin() + index, 0);
    }
    buckets.counts[static_cast<size_t>(index)] += sample.value;
  }
  return buckets;
}

}  // namespace switchyard
