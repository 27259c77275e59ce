// SPDX-License-Identifier: Apache-2.0
#include "client/slo.h"

#include <charconv>
#include <cmath>
#include <numeric>
#include <utility>

namespace switchyard::client {
namespace {

constexpr double kNanosecond = 1e-6;  // in milliseconds: rounding is no miss

double seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

Status set_limit(Slo& slo, std::string_view name, std::string_view number) {
  const std::pair<std::string_view, double*> limits[] = {
      {"ttft", &slo.ttft_ms}, {"tpot", &slo.tpot_ms}, {"itl", &slo.itl_ms}, {"e2e", &slo.e2e_ms}};
  for (const auto& [known, limit] : limits) {
    if (name != known) continue;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), *limit);
    if (error == std::errc() && end == number.data() + number.size() && *limit > 0 &&
        std::isfinite(*limit))
      return {};
    return fail(Code::bad_request, "--slo {}: expected milliseconds above 0, found '{}'", name,
                number);
  }
  return fail(Code::bad_request, "--slo: '{}' is none of ttft, tpot, itl and e2e", name);
}

}  // namespace

Result<Slo> parse_slo(std::string_view text) {
  Slo slo;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const size_t colon = part.find(':');
    if (colon == std::string_view::npos)
      return fail(Code::bad_request, "--slo: expected NAME:MILLISECONDS, as ttft:200, found '{}'",
                  part);
    SWITCHYARD_TRY(set_limit(slo, part.substr(0, colon), part.substr(colon + 1)));
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
  return slo;
}

Latencies latencies_of(const Outcome& outcome) {
  Latencies at;
  at.e2e_s = seconds(outcome.ended_ns - outcome.planned_ns);
  if (outcome.first_event_ns > 0)
    at.first_event_s = seconds(outcome.first_event_ns - outcome.planned_ns);
  if (outcome.first_text_ns == 0) return at;
  at.ttft_s = seconds(outcome.first_text_ns - outcome.planned_ns);
  if (outcome.tokens() > 1)
    at.tpot_s = seconds(outcome.last_choice_ns - outcome.first_text_ns) /
                static_cast<double>(outcome.tokens() - 1);
  const auto& gaps = outcome.gaps_s;
  if (!gaps.empty())
    at.itl_s = std::accumulate(gaps.begin(), gaps.end(), 0.0) / static_cast<double>(gaps.size());
  return at;
}

bool keeps(const Slo& slo, const Latencies& latencies) {
  // A time that there is none of is missed when there was no text at all; one token alone has no gaps to keep.
  const bool no_text = latencies.ttft_s < 0;
  if (no_text && slo.ttft_ms + slo.tpot_ms + slo.itl_ms > 0) return false;
  const auto within = [](double limit_ms, double found_s) {
    return limit_ms == 0 || found_s * 1e3 <= limit_ms + kNanosecond;
  };
  return within(slo.ttft_ms, latencies.ttft_s) && within(slo.tpot_ms, latencies.tpot_s) &&
         within(slo.itl_ms, latencies.itl_s) && within(slo.e2e_ms, latencies.e2e_s);
}

}  // namespace switchyard::client
