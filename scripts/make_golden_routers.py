#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/routers/ from the reference routers of transformers, and from the papers' formulas where it has none.

    VENV/bin/python scripts/make_golden_routers.py          (VENV as for make_golden.py)

The logits are given, not computed: each reference gets them through a gate that is the identity matrix. torch leaves
open which of two equal values topk() takes; here it is replaced by a stable sort, so the lower expert comes first.
"""

import os
import sys
import types

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy as np
import torch

from golden import routers_plain as plain
from golden.common import GOLDEN, versions, write_json

MODELS = "transformers.models."


def stable_topk(values, k, dim=-1, largest=True, sorted=True):
    """torch.topk with equal values in order of their index."""
    best, index = torch.sort(values, dim=dim, descending=largest, stable=True)
    return torch.return_types.topk((best.narrow(dim, 0, k), index.narrow(dim, 0, k)))


torch.topk = stable_topk
torch.Tensor.topk = stable_topk


def make_logits(experts: int, seed: int, extreme=(-60.0, 30.0)) -> np.ndarray:
    """Random, tied and extreme rows, in steps of 1/256 so that the files stay short."""
    random = np.random.default_rng(seed)
    rows = [np.round(random.normal(0, 2, experts) * 256) / 256 for _ in range(8)]
    rows.append(np.zeros(experts))  # all equal
    rows.append(random.integers(-1, 2, experts).astype(float))  # many equal
    rows.append(random.integers(0, 2, experts) * 0.5)
    rows.append(np.arange(experts, 0, -1) / 8)
    rows.append(np.round(random.normal(0, 1, experts) * 256) / 256 + extreme[0])  # small scores
    last = np.round(random.normal(0, 1, experts) * 256) / 256
    last[experts // 2] = extreme[1]  # one that outshines the others
    rows.append(last)
    return np.array(rows, dtype=np.float32)


def make_bias(experts: int, seed: int) -> np.ndarray:
    return (np.round(np.random.default_rng(seed).normal(0, 0.3, experts) * 256) / 256).astype(np.float32)


def load(module: str, name: str):
    return getattr(__import__(MODELS + module, fromlist=[name]), name)


def gate(module: str, name: str, experts: int, top_k: int, **options):
    """The reference's router with the identity for a gate."""
    config = types.SimpleNamespace(
        num_experts_per_tok=top_k, num_local_experts=experts, num_experts=experts, n_routed_experts=experts,
        hidden_size=experts, router_bias=False, **options)
    router = load(f"{module}.modeling_{module}", name)(config).eval()
    weight = router.classifier.weight if hasattr(router, "classifier") else router.weight
    with torch.no_grad():
        weight.copy_(torch.eye(experts))
    return router


def case(name: str, reference: str, spec: dict, logits, expert, weight, **more) -> None:
    """One file. Floats are f32 and written as the shortest text that reads back."""

    def short(rows):
        return [[float(str(np.float32(v))) for v in row] for row in np.asarray(rows, dtype=np.float32)]

    value = {"made_with": {**versions("torch", "transformers", "numpy"), "script": "scripts/make_golden_routers.py"},
             "reference": reference, "spec": {"num_experts": int(np.shape(logits)[1]), **spec},
             "logits": short(logits), "expert": np.asarray(expert).tolist(), "weight": short(weight)}
    for key, extra in more.items():
        value[key] = short([extra])[0] if np.asarray(extra).ndim == 1 and np.asarray(extra).dtype.kind == "f" else extra
    write_json(GOLDEN / "routers" / f"{name}.json", value)


def run(name: str, module: str, cls: str, spec: dict, experts: int, order, bias_into=None, bias_argument=False, **options):
    """A case whose reference returns logits, weights and ids in the given order of its tuple."""
    router = gate(module, cls, experts, spec["top_k"], **options)
    logits, more, arguments = make_logits(experts, seed=len(name) + experts), {}, []
    if spec.get("selection_bias"):
        bias = torch.tensor(make_bias(experts, seed=experts + 1))
        more["bias"] = bias.numpy()
        if bias_argument:
            arguments.append(bias)
        else:
            target = router.get_buffer(bias_into) if bias_into in dict(router.named_buffers()) else router.get_parameter(bias_into)
            with torch.no_grad():
                target.copy_(bias.reshape(target.shape))
    with torch.no_grad():
        out = router(torch.tensor(logits), *arguments)
    weight, expert = out[order[0]], out[order[1]]
    case(name, f"transformers {cls}", spec, logits, expert.numpy(), weight.float().numpy(), **more)


def softmax_cases() -> None:
    renormalize = {"weigh": "renormalize"}
    run("mixtral", "mixtral", "MixtralTopKRouter", {"top_k": 2, **renormalize}, 8, (1, 2))
    run("qwen3_moe", "qwen3_moe", "Qwen3MoeTopKRouter", {"top_k": 4, **renormalize}, 16, (1, 2), norm_topk_prob=True)
    run("qwen3_moe_raw", "qwen3_moe", "Qwen3MoeTopKRouter", {"top_k": 4}, 16, (1, 2), norm_topk_prob=False)
    run("olmoe", "olmoe", "OlmoeTopKRouter", {"top_k": 8}, 32, (1, 2), norm_topk_prob=False)
    run("minimax", "minimax", "MiniMaxTopKRouter", {"top_k": 2, **renormalize}, 16, (1, 2))
    after = {"weigh": "softmax_after_top_k"}
    run("granitemoe", "granitemoe", "GraniteMoeTopKRouter", {"top_k": 4, **after}, 16, (1, 0))
    run("gpt_oss", "gpt_oss", "GptOssTopKRouter", {"top_k": 4, **after}, 32, (1, 2))
    run("deepseek_v2_greedy", "deepseek_v2", "DeepseekV2TopkRouter", {"top_k": 3, "scale": 16.0}, 16, (1, 2),
        routed_scaling_factor=16.0, topk_method="greedy", n_group=1, topk_group=1)
    run("deepseek_v2_groups", "deepseek_v2", "DeepseekV2TopkRouter",
        {"top_k": 4, "scale": 16.0, "num_groups": 8, "top_groups": 3}, 32, (1, 2),
        routed_scaling_factor=16.0, topk_method="group_limited_greedy", n_group=8, topk_group=3)
    run("ernie4_5", "ernie4_5_moe", "Ernie4_5_MoeTopKRouter",
        {"top_k": 4, "weigh": "renormalize", "renormalize_minimum": 1e-12, "selection_bias": True}, 16, (1, 2),
        bias_into="moe_statics.e_score_correction_bias", moe_norm_min=1e-12)
    for p in (1, 2, None):
        logits = make_logits(16, seed=70)
        shell = types.SimpleNamespace(top_k=4, moe_normalize_expert_weights=p)
        weight, expert = load("dbrx.modeling_dbrx", "DbrxFFN").route_tokens_to_experts(shell, torch.tensor(logits))
        spec = {"top_k": 4} if p is None else {"top_k": 4, "weigh": "renormalize", "norm_order": float(p)}
        case(f"dbrx_p{p}" if p else "dbrx_raw", "transformers DbrxFFN", spec, logits, expert.numpy(), weight.numpy())


def score_cases() -> None:
    v3 = {"top_k": 4, "score": "sigmoid", "weigh": "renormalize", "renormalize_epsilon": 1e-20, "scale": 2.5,
          "selection_bias": True, "group_score": "sum_top_2"}
    correction = "e_score_correction_bias"
    run("deepseek_v3", "deepseek_v3", "DeepseekV3TopkRouter", {**v3, "num_groups": 8, "top_groups": 4}, 32, (1, 2),
        bias_into=correction, routed_scaling_factor=2.5, n_group=8, topk_group=4, norm_topk_prob=True)
    raw = {**v3, "weigh": "raw", "renormalize_epsilon": 0.0, "num_groups": 4, "top_groups": 2}
    run("deepseek_v3_raw", "deepseek_v3", "DeepseekV3TopkRouter", raw, 16, (1, 2),
        bias_into=correction, routed_scaling_factor=2.5, n_group=4, topk_group=2, norm_topk_prob=False)
    run("glm4_moe", "glm4_moe", "Glm4MoeTopkRouter", {**v3, "scale": 1.0}, 16, (1, 2),
        bias_into=correction, routed_scaling_factor=1.0, n_group=1, topk_group=1, norm_topk_prob=True)
    run("deepseek_v4", "deepseek_v4", "DeepseekV4TopKRouter",
        {"top_k": 4, "score": "sqrt_softplus", "weigh": "renormalize", "renormalize_epsilon": 1e-20, "scale": 1.5,
         "selection_bias": True}, 16, (1, 2), bias_into=correction, scoring_func="sqrtsoftplus", routed_scaling_factor=1.5)
    run("minimax_m2", "minimax_m2", "MiniMaxM2TopKRouter",
        {"top_k": 4, "score": "sigmoid", "weigh": "renormalize", "selection_bias": True}, 16, (1, 2), bias_argument=True)
    lfm2 = {"top_k": 4, "score": "sigmoid", "weigh": "renormalize", "renormalize_epsilon": 1e-6}
    run("lfm2_moe", "lfm2_moe", "Lfm2MoeTopKRouter", {**lfm2, "selection_bias": True}, 16, (1, 2), bias_argument=True,
        norm_topk_prob=True, routed_scaling_factor=1.0, use_expert_bias=True)
    run("lfm2_moe_no_bias", "lfm2_moe", "Lfm2MoeTopKRouter", lfm2, 16, (1, 2),
        norm_topk_prob=True, routed_scaling_factor=1.0, use_expert_bias=False)


def odd_cases() -> None:
    """References whose outputs have another form."""
    router = gate("llama4", "Llama4Router", 16, 2)
    logits = make_logits(16, seed=80)
    expert = stable_topk(torch.tensor(logits), 2)[1]
    weight = router(torch.tensor(logits))[0].gather(1, expert)
    case("llama4", "transformers Llama4Router", {"top_k": 2, "score": "sigmoid", "weight_on_input": True}, logits,
         expert.numpy(), weight.detach().numpy())

    router = gate("switch_transformers", "SwitchTransformersTop1Router", 8, 1, expert_capacity=1000,
                  router_jitter_noise=0.0, router_ignore_padding_tokens=False, router_dtype="float32")
    logits = make_logits(8, seed=81)
    probability, index, _ = router(torch.tensor(logits))
    case("switch", "transformers SwitchTransformersTop1Router", {"top_k": 1}, logits,
         index.reshape(logits.shape).argmax(-1, keepdim=True).numpy(), probability.detach().reshape(-1, 1).numpy())

    router = gate("nllb_moe", "NllbMoeTop2Router", 8, 2, expert_capacity=1000, router_ignore_padding_tokens=False,
                  router_dtype="float32", second_expert_policy="all", normalize_router_prob_before_dropping=True,
                  batch_prioritized_routing=False, moe_eval_capacity_token_fraction=-1.0)
    logits = make_logits(8, seed=82)
    combine = router.route_tokens(torch.tensor(logits))[1]
    expert = stable_topk(torch.tensor(logits), 2)[1]
    epsilon = float(np.finfo(np.float32).eps)
    case("nllb_moe", "transformers NllbMoeTop2Router", {"top_k": 2, "weigh": "renormalize", "renormalize_minimum": epsilon},
         logits, expert.numpy(), combine.gather(1, expert).detach().numpy())

    logits = np.concatenate([make_logits(8, seed=83), np.array(
        [[2, 1.99, 1, .5, -1, -1, -1, -1], [2, 1.5, 1.49, -1, -1, -1, -1, -1], [-2, -2.01, -2.02, -9, -9, -9, -9, -9],
         [0, -0.01, 0, 0.001, -1, -1, -1, -1], [100, 99, 98.5, 97, 96, 90, 1, 0],
         [100, 98.02, 97.5, 96.05, 10, 0, -98.02, -100], [-100, -101.9, -102.1, -103.9, -104.2, -110, -120, -130]], dtype=np.float32)])
    weight, expert = load("phimoe.modeling_phimoe", "sparsemixer")(torch.tensor(logits), jitter_eps=0.01, training=False)
    case("phimoe", "transformers sparsemixer (Phi-3.5-MoE)", {"selector": "sparsemixer", "top_k": 2, "jitter": 0.01},
         logits, expert.numpy(), weight.numpy())


def plain_cases() -> None:
    """Formulas of papers, in numpy and f64 where the reference has no code in transformers."""
    logits = make_logits(16, seed=90)
    expert, weight = plain.softmax_top_k(logits, 4)
    case("grok_1", "formula: softmax over all experts in f32, top-k, raw", {"top_k": 4}, logits, expert, weight)
    total = weight.sum(1, keepdims=True) + 1e-20
    case("deepseek_v1", "formula: softmax, top-k, w / (sum + 1e-20)",
         {"top_k": 4, "weigh": "renormalize", "renormalize_epsilon": 1e-20}, logits, expert, weight / total)

    device_of = [(e * 5 + e // 4) % 4 for e in range(16)]
    expert, weight = plain.device_limited(logits, 4, 2, device_of)
    case("device_limited", "formula: arXiv 2405.04434, section 2.1.2",
         {"top_k": 4, "num_devices": 4, "max_devices": 2}, logits, expert, weight, device_of=device_of)

    place = {"seed": 0x1234567890ABCDEF, "layer": 3, "first_token": 2**32 - 5}
    for chance in (False, True):
        expert, weight = plain.gshard_top_2(logits, place if chance else None)
        case("gshard_random" if chance else "gshard", "formula: arXiv 2006.16668, algorithm 1, without capacity",
             {"selector": "gshard_top_2", "top_k": 2, "weigh": "softmax_after_top_k", "random_second": chance},
             logits, expert, weight, random=place)

    logits = make_logits(12, seed=91)
    noise_logits = np.round(np.random.default_rng(92).normal(0, 1, logits.shape) * 256) / 256
    for name, top_k, gate_of_noise in (("noisy_top_k", 3, noise_logits), ("noisy_top_k_constant", 1, None)):
        found = plain.noisy_top_k(logits, gate_of_noise, 0.5, top_k, place)
        more = {} if gate_of_noise is None else {"noise_logits": gate_of_noise.tolist()}
        case(name, "formula: arXiv 1701.06538, equations 3 to 5 and appendix A",
             {"selector": "noisy_top_k", "top_k": top_k, "weigh": "softmax_after_top_k", "noise": 0.5}, logits,
             found["expert"], found["weight"], random=place, importance=found["importance"], load=found["load"],
             importance_variation=found["importance_variation"], load_variation=found["load_variation"], **more)

    for top_k in (1, 2, 5):
        expert, weight = plain.expert_choice(logits, top_k)
        case(f"expert_choice_{top_k}", "formula: arXiv 2202.09368, section 3.2",
             {"selector": "expert_choice", "top_k": top_k, "trained_across_tokens": True}, logits, expert, weight)


if __name__ == "__main__":
    softmax_cases()
    score_cases()
    odd_cases()
    plain_cases()
