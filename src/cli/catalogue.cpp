// SPDX-License-Identifier: Apache-2.0
#include "cli/catalogue.h"

#include <string_view>

#include <fmt/format.h>

#include "cli/terminal.h"
#include "device/cpu_features.h"
#include "kernels/select.h"
#include "model/family.h"
#include "moe/route/table.h"

namespace switchyard::cli {
namespace {

std::string families_table() {
  Table table({{"family", Align::left}, {"models", Align::left}, {"model_type", Align::left}});
  for (const model::Family* family : model::families()) {
    std::string types;
    for (const std::string_view type : family->model_types)
      types += fmt::format("{}`{}`", types.empty() ? "" : ", ", type);
    table.add({std::string(family->name), std::string(family->models), types});
  }
  return table.markdown();
}

std::string routers_table() {
  Table table({{"router", Align::left}, {"what it does", Align::left}});
  for (const moe::Selector& selector : moe::selectors())
    table.add({std::string(selector.name), std::string(selector.help)});
  return table.markdown();
}

std::string formats_table() {
  Table table({{"format", Align::left}, {"what is read", Align::left}});
  table.add({"safetensors",
             "`model.safetensors.index.json` with its shards, or one `model.safetensors`; f32, f16 "
             "and bf16 weights"});
  return table.markdown();
}

/// The lowest level of instruction sets that has everything a kernel needs; empty for none.
std::string_view level_of(uint64_t needs) {
  if (needs == 0) return "";
  for (const uint64_t level : {kIsaAvx2, kIsaAvx512, kIsaAmx})
    if ((needs & ~level) == 0) return isa_level_name(level);
  return isa_level_name(needs);
}

/// The kernels of one operation, best first, with what the machine must have.
template <class Op>
void add_kernels(Table& table, const char* op) {
  std::string kernels;
  for (const Kernel<Op>& kernel : kernels::table<Op>()) {
    const std::string_view needs = level_of(kernel.needs.cpu_features);
    const std::string_view name = kernel.name.substr(kernel.name.find('.') + 1);
    kernels += fmt::format("{}`{}`", kernels.empty() ? "" : ", ", name);
    if (kernel.role == Role::baseline) kernels += " (for comparison)";
    if (!needs.empty() && kernel.role == Role::candidate) kernels += fmt::format(" ({})", needs);
  }
  table.add({op, kernels});
}

std::string kernels_table() {
  Table table({{"operation", Align::left}, {"kernels, best first", Align::left}});
  add_kernels<GroupedGemm>(table, "grouped_gemm");
  add_kernels<Attention>(table, "attention");
  add_kernels<RmsNorm>(table, "rms_norm");
  add_kernels<PrepareQkv>(table, "prepare_qkv");
  add_kernels<Gather>(table, "gather");
  add_kernels<Combine>(table, "combine");
  add_kernels<Route>(table, "route");
  return table.markdown();
}

}  // namespace

std::string catalogue_markdown() {
  return families_table() + '\n' + routers_table() + '\n' + formats_table() + '\n' +
         kernels_table();
}

}  // namespace switchyard::cli
