// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_moe_row.h"

#include <cstdlib>
#include <string>

#include <fmt/format.h>

#include "base/json.h"
#include "cli/terminal.h"

namespace switchyard::cli {
namespace {

void write_row(JsonWriter& json, const MoeRow& row) {
  const auto number = [&](const char* key, double value) {
    // Six digits, through text: more would be noise.
    json.field(key, std::strtod(fmt::format("{:.6g}", value).c_str(), nullptr));
  };
  json.begin_object().field("shape", row.shape).field("tokens", row.tokens);
  json.field("routing", row.routing).field("dtype", row.dtype).field("kernel", row.kernel);
  number("time_us", row.time_us);
  number("floor_us", row.floor_us);
  number("experts_touched", row.experts_touched);
  number("imbalance", row.imbalance);
  number("drop_rate", row.drop_rate);
  number("gbps", row.gbps);
  number("gflops", row.gflops);
  number("capacity", row.capacity);
  number("time_spread", row.time_spread);
  number("best_us", row.best_us);
  number("rows", row.rows);
  json.field("runs", row.runs).field("layers", row.layers).field("threads", row.threads);
  json.field("gemm", row.gemm);
  if (!row.phases_us.empty()) {
    json.key("phases_us").begin_object();
    for (const auto& [phase, time_us] : row.phases_us) number(phase.c_str(), time_us);
    json.end_object();
  }
  json.end_object();
}

Table make_table(const std::vector<MoeRow>& rows) {
  std::vector<Column> columns{
      {"shape", Align::left},    {"tokens", Align::right},    {"routing", Align::left},
      {"dtype", Align::left},    {"kernel", Align::left},     {"capacity", Align::right},
      {"time us", Align::right}, {"spread", Align::right},    {"/ floor", Align::right},
      {"touched", Align::right}, {"imbalance", Align::right}, {"dropped", Align::right},
      {"GB/s", Align::right},    {"GFLOP/s", Align::right}};
  const bool phases = !rows.empty() && !rows.front().phases_us.empty();
  if (phases)
    for (const auto& phase : rows.front().phases_us)
      columns.emplace_back(phase.first + " us", Align::right);
  Table table(columns);
  for (const MoeRow& row : rows) {
    std::vector<std::string> cells{
        row.shape,
        std::to_string(row.tokens),
        row.routing,
        row.dtype,
        row.kernel,
        row.capacity == 0 ? "dropless" : fmt::format("{:g}", row.capacity),
        fmt::format("{:.1f}", row.time_us),
        fmt::format("{:.0f}%", 100 * row.time_spread),
        fmt::format("{:.2f}", row.time_us / row.floor_us),
        fmt::format("{:.1f}", row.experts_touched),
        fmt::format("{:.2f}", row.imbalance),
        fmt::format("{:.2f}%", 100 * row.drop_rate),
        fmt::format("{:.1f}", row.gbps),
        fmt::format("{:.0f}", row.gflops)};
    for (const auto& phase : row.phases_us) cells.push_back(fmt::format("{:.1f}", phase.second));
    table.add(std::move(cells));
  }
  return table;
}

}  // namespace

std::string moe_rows_text(const std::vector<MoeRow>& rows, const std::string& format) {
  if (format == "md") return make_table(rows).markdown();
  if (format == "csv") return make_table(rows).csv();
  std::string text;
  if (format == "json") {
    JsonWriter json(text, 2);
    json.begin_array();
    for (const MoeRow& row : rows) write_row(json, row);
    json.end_array();
    return text + '\n';
  }
  for (const MoeRow& row : rows) {
    JsonWriter json(text);
    write_row(json, row);
    text += '\n';
  }
  return text;
}

}  // namespace switchyard::cli
