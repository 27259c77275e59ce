// SPDX-License-Identifier: Apache-2.0
#include "kernels/select.h"

#include <algorithm>
#include <atomic>
#include <optional>

#include <fmt/format.h>

#include "base/environment.h"
#include "base/log.h"
#include "device/cpu_features.h"
#include "kernels/cpu/table.h"
#include "kernels/ref/table.h"

namespace switchyard::kernels {
namespace {

template <class Op>
constexpr std::string_view kOpName = {};
template <>
constexpr std::string_view kOpName<GroupedGemm> = "grouped_gemm";
template <>
constexpr std::string_view kOpName<Attention> = "attention";
template <>
constexpr std::string_view kOpName<RmsNorm> = "rms_norm";
template <>
constexpr std::string_view kOpName<PrepareQkv> = "prepare_qkv";
template <>
constexpr std::string_view kOpName<Gather> = "gather";
template <>
constexpr std::string_view kOpName<Combine> = "combine";
template <>
constexpr std::string_view kOpName<Route> = "route";

constexpr std::string_view kOpNames[] = {kOpName<GroupedGemm>, kOpName<Attention>, kOpName<RmsNorm>,
                                         kOpName<PrepareQkv>,  kOpName<Gather>,    kOpName<Combine>,
                                         kOpName<Route>};
constexpr std::string_view kMoeFfn = "moe_ffn";  // of CUDA devices alone

// The variant that SWITCHYARD_KERNEL pins for an op, or nothing. Checks the whole variable, so that
// a misspelt op is told at once.
Result<std::optional<std::string>> find_pin(std::string_view op) {
  const std::optional<std::string> pins = environment("SWITCHYARD_KERNEL");
  std::optional<std::string> found;
  if (!pins) return found;
  const std::string_view text = *pins;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string_view pin = text.substr(at, end - at);
    const size_t equals = pin.find('=');
    const std::string_view name = pin.substr(0, equals);
    const bool known = name == kMoeFfn || std::ranges::count(kOpNames, name) > 0;
    if (equals == std::string_view::npos || !known) {
      return fail(Code::unsupported,
                  "SWITCHYARD_KERNEL: '{}' is not OP=VARIANT with OP one of {}, {}", pin,
                  fmt::join(kOpNames, ", "), kMoeFfn);
    }
    if (name == op) found = std::string(pin.substr(equals + 1));
    at = end + 1;
  }
  return found;
}

// A pin is the whole name, or what follows a dot in it.
bool is_pinned(std::string_view name, std::string_view pin) {
  if (pin.empty() || !name.ends_with(pin)) return false;
  return name.size() == pin.size() || name[name.size() - pin.size() - 1] == '.';
}

// Why an entry cannot take the problem on this machine; empty when it can.
template <class Op>
std::string refusal(const Kernel<Op>& kernel, const typename Op::Problem& problem) {
  const CpuFeatures& cpu = cpu_features();
  const uint64_t missing = kernel.needs.cpu_features & ~cpu.usable;
  if (missing != 0) {
    const bool capped = (missing & ~cpu.detected) == 0;
    return fmt::format("needs {}, {}", cpu_feature_names(missing),
                       capped ? "off by SWITCHYARD_MAX_ISA" : "absent here");
  }
  const Verdict verdict = kernel.accept(problem);
  return verdict.refused != nullptr ? fmt::format("refused: {}", verdict.refused) : std::string();
}

// The entries that a pin names, best first: a short name such as "avx2" may fit one, a wrong one
// none.
template <class Op>
Result<const Kernel<Op>*> choose_pinned(const typename Op::Problem& problem, std::string_view pin) {
  std::string reasons;
  for (const Kernel<Op>& kernel : table<Op>()) {
    if (!is_pinned(kernel.name, pin)) continue;
    const std::string reason = refusal(kernel, problem);
    if (reason.empty()) return &kernel;
    reasons += fmt::format("{}{} {}", reasons.empty() ? "" : "; ", kernel.name, reason);
  }
  if (!reasons.empty()) return fail(Code::unsupported, "SWITCHYARD_KERNEL: {}", reasons);
  std::vector<std::string_view> names;
  for (const Kernel<Op>& kernel : table<Op>()) names.push_back(kernel.name);
  return fail(Code::unsupported, "SWITCHYARD_KERNEL: {} has no variant '{}'; it has {}",
              kOpName<Op>, pin, fmt::join(names, ", "));
}

template <class Op>
Result<const Kernel<Op>*> choose(const typename Op::Problem& problem) {
  SWITCHYARD_ASSIGN(const std::optional<std::string> pin, find_pin(kOpName<Op>));
  if (pin) return choose_pinned<Op>(problem, *pin);
  for (const Kernel<Op>& kernel : table<Op>()) {
    if (kernel.role == Role::candidate && refusal(kernel, problem).empty()) return &kernel;
  }
  SWITCHYARD_UNREACHABLE("{}: the reference refused a problem", kOpName<Op>);
}

// Why a pinned entry of the device cannot serve; empty when it can.
std::string refusal(const MoeFfn::Kernel& kernel, const MoeFfn::Problem& problem, int sm) {
  if (sm < kernel.sm_min || sm > kernel.sm_max) return fmt::format("is not for sm_{}", sm);
  if (const char* why = kernel.refusal(problem); why != nullptr) {
    return fmt::format("refused: {}", why);
  }
  constexpr int64_t kEach = 64;  // from there on what fits does not depend on single tokens
  bool suits = kernel.suits(problem, problem.max_tokens);
  for (int64_t tokens = 1; suits && tokens <= std::min(problem.max_tokens, kEach); ++tokens) {
    suits = kernel.suits(problem, tokens);
  }
  if (!suits) return fmt::format("does not take steps of 1 to {} tokens", problem.max_tokens);
  return {};
}

// One line for each kernel that comes into use; a model asks for the same ones in every layer.
template <class Op>
void log_choice(const Kernel<Op>& kernel) {
  static std::atomic<uint64_t> told{0};
  const uint64_t bit = uint64_t{1} << (&kernel - table<Op>().data());
  const bool first = (told.fetch_or(bit, std::memory_order_relaxed) & bit) == 0;
  log(first ? LogLevel::info : LogLevel::debug, "{}: using {}", kOpName<Op>, kernel.name);
}

}  // namespace

template <class Op>
std::span<const Kernel<Op>> table() {
  static const std::vector<Kernel<Op>> all = [] {
    const auto fast = cpu::table<Op>();
    std::vector<Kernel<Op>> entries(fast.begin(), fast.end());
    entries.push_back(ref::table<Op>());
    return entries;
  }();
  return all;
}

template <class Op>
Result<Bound<Op>> select(const typename Op::Problem& problem) {
  SWITCHYARD_ASSIGN(const Kernel<Op>* kernel, choose<Op>(problem));
  log_choice(*kernel);
  return Bound<Op>(*kernel, problem);
}

Result<const MoeFfn::Kernel*> pinned_moe_ffn(const MoeFfn::Problem& problem, int sm) {
  SWITCHYARD_ASSIGN(const std::optional<std::string> pin, find_pin(kMoeFfn));
  if (!pin) return nullptr;
  std::vector<std::string_view> names;
  for (const MoeFfn::Kernel& kernel : moe_ffn_kernels()) {
    names.push_back(kernel.name);
    if (!is_pinned(kernel.name, *pin)) continue;
    const std::string reason = refusal(kernel, problem, sm);
    if (reason.empty()) return &kernel;
    return fail(Code::unsupported, "SWITCHYARD_KERNEL: {} {}", kernel.name, reason);
  }
  return fail(Code::unsupported, "SWITCHYARD_KERNEL: {} has no variant '{}'; it has {}", kMoeFfn,
              *pin, fmt::join(names, ", "));
}

template <class Op>
std::vector<Candidate> explain(const typename Op::Problem& problem) {
  const Result<const Kernel<Op>*> chosen = choose<Op>(problem);
  std::vector<Candidate> candidates;
  for (const Kernel<Op>& kernel : table<Op>()) {
    std::string verdict = refusal(kernel, problem);
    if (chosen.ok() && *chosen == &kernel) {
      verdict = "chosen";
    } else if (verdict.empty()) {
      verdict = kernel.role == Role::baseline ? "baseline" : "accepts";
    }
    candidates.push_back({kernel.name, std::move(verdict)});
  }
  return candidates;
}

std::span<const std::string_view> op_names() { return kOpNames; }

#define SWITCHYARD_INSTANTIATE(Op)                                    \
  template std::span<const Kernel<Op>> table<Op>();                   \
  template Result<Bound<Op>> select<Op>(const typename Op::Problem&); \
  template std::vector<Candidate> explain<Op>(const typename Op::Problem&);
SWITCHYARD_INSTANTIATE(GroupedGemm)
SWITCHYARD_INSTANTIATE(Attention)
SWITCHYARD_INSTANTIATE(RmsNorm)
SWITCHYARD_INSTANTIATE(PrepareQkv)
SWITCHYARD_INSTANTIATE(Gather)
SWITCHYARD_INSTANTIATE(Combine)
SWITCHYARD_INSTANTIATE(Route)
#undef SWITCHYARD_INSTANTIATE

}  // namespace switchyard::kernels
