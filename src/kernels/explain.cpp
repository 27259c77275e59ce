// SPDX-License-Identifier: Apache-2.0
// explain_text: a problem in words, "m=64 n=1408 k=2048 groups=64 weight=bf16 fusion=swiglu", for
// people who ask why a kernel was chosen. Keys are the members of the problem structs.
#include <algorithm>
#include <charconv>
#include <functional>

#include <fmt/format.h>

#include "kernels/linear.h"
#include "kernels/select.h"

namespace switchyard::kernels {
namespace {

// The keys of one op, each with the member that its value sets.
class Fields {
 public:
  explicit Fields(std::string_view op) : op_(op) {}

  template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) Fields& number(std::string_view key,
                                                                             T& into) {
    return add(key, "a whole number", [&into](std::string_view text) { return parse(text, into); });
  }
  Fields& number(std::string_view key, float& into) {
    return add(key, "a number", [&into](std::string_view text) { return parse(text, into); });
  }
  Fields& flag(std::string_view key, bool& into) {
    return choice(key, into, {{"0", false}, {"1", true}, {"false", false}, {"true", true}});
  }
  template <class T>
  Fields& choice(std::string_view key, T& into,
                 std::vector<std::pair<std::string_view, std::type_identity_t<T>>> values) {
    std::string known;
    for (const auto& value : values) {
      known += fmt::format("{}{}", known.empty() ? "" : ", ", value.first);
    }
    return add(key, fmt::format("one of {}", known), [&into, values](std::string_view text) {
      for (const auto& [name, value] : values) {
        if (name != text) continue;
        into = value;
        return true;
      }
      return false;
    });
  }

  Status read(std::string_view text) {
    while (!text.empty()) {
      const size_t end = std::min(text.find(' '), text.size());
      if (end > 0) SWITCHYARD_TRY(read_one(text.substr(0, end)));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    return {};
  }
  bool given(std::string_view key) const {
    return std::ranges::any_of(fields_, [&](const Field& f) { return f.key == key && f.given; });
  }

 private:
  struct Field {
    std::string_view key;
    std::string expected;
    std::function<bool(std::string_view)> set;
    bool given = false;
  };

  template <class T>
  static bool parse(std::string_view text, T& into) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
    return error == std::errc() && end == text.data() + text.size() && into >= 0;
  }
  Fields& add(std::string_view key, std::string expected,
              std::function<bool(std::string_view)> set) {
    fields_.push_back({key, std::move(expected), std::move(set)});
    return *this;
  }
  Status read_one(std::string_view item) {
    const size_t equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    const auto field = std::ranges::find_if(fields_, [&](const Field& f) { return f.key == key; });
    if (field == fields_.end() || equals == std::string_view::npos) {
      std::string known;
      for (const Field& f : fields_) known += fmt::format(" {}=", f.key);
      return fail(Code::bad_request, "{}: '{}' is not KEY=VALUE with a key of{}", op_, item, known);
    }
    const std::string_view value = item.substr(equals + 1);
    if (!field->set(value)) {
      return fail(Code::bad_request, "{}: {} is '{}', expected {}", op_, key, value,
                  field->expected);
    }
    field->given = true;
    return {};
  }

  std::string_view op_;
  std::vector<Field> fields_;
};

// Extents without which no problem makes sense.
Status need_positive(std::string_view op, std::string_view key, int64_t value) {
  if (value > 0) return {};
  return fail(Code::bad_request, "{}: {} is {}, expected at least 1", op, key, value);
}

Result<std::vector<Candidate>> explain_grouped_gemm(std::string_view text) {
  GroupedGemm::Problem p;
  p.max_rows = 1;
  Fields fields("grouped_gemm");
  fields.number("m", p.max_rows).number("n", p.n).number("k", p.k).number("groups", p.groups);
  fields.choice("weight", p.weight, {{"f32", DType::f32}, {"bf16", DType::bf16}});
  fields.choice("fusion", p.fusion, {{"none", Fusion::none}, {"swiglu", Fusion::swiglu}});
  for (const auto& [key, layout] : {std::pair{"in", &p.in}, std::pair{"out", &p.out}}) {
    fields.choice(key, *layout,
                  {{"rows_f32", RowLayout::rows_f32}, {"tiles_bf16", RowLayout::tiles_bf16}});
  }
  fields.flag("bias", p.bias).flag("deterministic", p.deterministic);
  SWITCHYARD_TRY(fields.read(text));
  SWITCHYARD_TRY(need_positive("grouped_gemm", "n", p.n));
  SWITCHYARD_TRY(need_positive("grouped_gemm", "k", p.k));
  SWITCHYARD_TRY(need_positive("grouped_gemm", "groups", p.groups));
  if (!fields.given("in") && !fields.given("out")) {
    // As the layers ask: the first of two chained products writes what the second reads.
    const OutLayout out = p.fusion == Fusion::swiglu ? OutLayout::follows_in : OutLayout::rows;
    SWITCHYARD_ASSIGN(const Bound<GroupedGemm> bound, select_grouped_gemm(p, out));
    p = bound.problem();
  }
  return explain<GroupedGemm>(p);
}

Result<std::vector<Candidate>> explain_attention(std::string_view text) {
  Attention::Problem p;
  Fields fields("attention");
  fields.number("heads", p.heads).number("kv_heads", p.kv_heads).number("head_dim", p.head_dim);
  fields.number("block_tokens", p.block_tokens).number("window", p.window).number("scale", p.scale);
  fields.number("max_tokens", p.max_tokens);
  fields.choice("cache", p.cache, {{"f32", DType::f32}, {"bf16", DType::bf16}});
  fields.flag("deterministic", p.deterministic);
  SWITCHYARD_TRY(fields.read(text));
  return explain<Attention>(p);
}

Result<std::vector<Candidate>> explain_rms_norm(std::string_view text) {
  RmsNorm::Problem p;
  Fields fields("rms_norm");
  fields.number("width", p.width).number("eps", p.eps);
  SWITCHYARD_TRY(fields.read(text));
  return explain<RmsNorm>(p);
}

Result<std::vector<Candidate>> explain_prepare_qkv(std::string_view text) {
  PrepareQkv::Problem p;
  Fields fields("prepare_qkv");
  fields.number("heads", p.heads).number("kv_heads", p.kv_heads).number("head_dim", p.head_dim);
  fields.number("rotary_dim", p.rotary_dim).number("eps", p.eps).number("clip", p.clip);
  fields.number("block_tokens", p.block_tokens);
  fields.choice(
      "norm", p.norm,
      {{"none", QkNorm::none}, {"per_head", QkNorm::per_head}, {"full_width", QkNorm::full_width}});
  fields.choice("cache", p.cache, {{"f32", DType::f32}, {"bf16", DType::bf16}});
  SWITCHYARD_TRY(fields.read(text));
  return explain<PrepareQkv>(p);
}

Result<std::vector<Candidate>> explain_gather(std::string_view text) {
  Gather::Problem p;
  Fields fields("gather");
  fields.number("groups", p.groups).number("width", p.width).number("max_rows", p.max_rows);
  fields.choice("out", p.out,
                {{"rows_f32", RowLayout::rows_f32}, {"tiles_bf16", RowLayout::tiles_bf16}});
  SWITCHYARD_TRY(fields.read(text));
  return explain<Gather>(p);
}

Result<std::vector<Candidate>> explain_combine(std::string_view text) {
  Combine::Problem p;
  Fields fields("combine");
  fields.number("width", p.width).number("top_k", p.top_k);
  SWITCHYARD_TRY(fields.read(text));
  return explain<Combine>(p);
}

Result<std::vector<Candidate>> explain_route(std::string_view text) {
  Route::Problem p;
  Fields fields("route");
  RouterSpec& spec = p.spec;
  fields.number("experts", spec.num_experts).number("top_k", spec.top_k);
  fields.number("groups", spec.num_groups).number("top_groups", spec.top_groups);
  fields.number("devices", spec.num_devices).number("max_devices", spec.max_devices);
  fields.flag("bias", spec.selection_bias);
  fields.choice("score", spec.score,
                {{"softmax", Score::softmax},
                 {"sigmoid", Score::sigmoid},
                 {"sqrt_softplus", Score::sqrt_softplus}});
  fields.choice("weigh", spec.weigh,
                {{"raw", Weigh::raw},
                 {"renormalize", Weigh::renormalize},
                 {"softmax_after_top_k", Weigh::softmax_after_top_k}});
  SWITCHYARD_TRY(fields.read(text));
  SWITCHYARD_TRY(spec.check());
  return explain<Route>(p);
}

struct NamedOp {
  std::string_view name;
  Result<std::vector<Candidate>> (*explain)(std::string_view problem);
};
constexpr NamedOp kOps[] = {
    {"grouped_gemm", explain_grouped_gemm},
    {"attention", explain_attention},
    {"rms_norm", explain_rms_norm},
    {"prepare_qkv", explain_prepare_qkv},
    {"gather", explain_gather},
    {"combine", explain_combine},
    {"route", explain_route},
};

}  // namespace

Result<std::vector<Candidate>> explain_text(std::string_view op, std::string_view problem) {
  for (const NamedOp& known : kOps) {
    if (known.name == op) return known.explain(problem);
  }
  return fail(Code::bad_request, "unknown op '{}', expected one of {}", op,
              fmt::join(op_names(), ", "));
}

}  // namespace switchyard::kernels
