# SPDX-License-Identifier: Apache-2.0
"""The table of tiny models: one Family for each architecture, with the variants that flip one option.

Every model is D = 64 wide with E = 8 experts and V = 101 words. Head sizes, expert widths and the
options differ on purpose, and the values are chosen so that a reader which ignores an option gets
visibly other logits: eps is large enough to matter, theta is not the default, qkv is really clipped,
and a sliding_window that is switched off is smaller than the longest sequence.
Configs are spelled as published model folders spell them (rope_theta at the root, torch_dtype).
"""

import dataclasses

REMOVE = object()  # As a value in Variant.changes: drop the key from the config.


@dataclasses.dataclass(frozen=True)
class Variant:
    """The same family with some config keys changed.

    weights: "base" links to the family's model.safetensors, "own" makes new ones (stored in bf16),
    anything else is the name of another family whose file fits.
    """

    name: str
    changes: dict
    why: str
    weights: str = "base"
    modes_agree: bool = True  # False where the reference's prefill and decode differ by design.


@dataclasses.dataclass(frozen=True)
class Family:
    """One architecture: its config, where its routers sit, and the layouts that files come in."""

    name: str
    config: dict
    seed: int
    router: str  # Module path of the router inside a sparse layer.
    layouts: tuple
    variants: tuple = ()
    embed_std: float = 1.0
    head_std: float = 0.35
    out_gain: float = 1.0  # Factor on the projections that write into the residual stream.


def _config(architecture: str, model_type: str, **keys) -> dict:
    shared = {
        "architectures": [architecture],
        "model_type": model_type,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        "hidden_act": "silu",
        "hidden_size": 64,
        "initializer_range": 0.02,
        "max_position_embeddings": 256,
        "num_experts_per_tok": 2,
        "num_key_value_heads": 2,
        "rms_norm_eps": 0.002,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "use_cache": True,
        "vocab_size": 101,
    }
    return shared | keys


QWEN3_ROPE = (
    Variant("rope_linear", {"rope_scaling": {"type": "linear", "factor": 2.5}},
            "linear scaling in the oldest spelling: rope_scaling with type"),
    Variant("rope_dynamic",
            {"rope_scaling": {"rope_type": "dynamic", "factor": 3.0}, "max_position_embeddings": 16},
            "dynamic NTK scaling past max_position_embeddings; keys already cached are not rotated "
            "again, so decode differs from prefill: see stepwise_logits_N", modes_agree=False),
    Variant("rope_llama3",
            {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                              "high_freq_factor": 4.0, "original_max_position_embeddings": 64}},
            "llama3 scaling with frequencies in all three of its bands"),
    Variant("rope_yarn",
            {"rope_theta": REMOVE, "rope_scaling": REMOVE,
             "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                                 "beta_fast": 4.0, "beta_slow": 1.0,
                                 "original_max_position_embeddings": 64}},
            "yarn in the new spelling rope_parameters, theta inside; bounds are truncated"),
    Variant("rope_yarn_mscale",
            {"rope_scaling": {"type": "yarn", "factor": 4.0, "beta_fast": 4.0, "beta_slow": 1.0,
                              "mscale": 1.0, "mscale_all_dim": 0.4, "truncate": False,
                              "original_max_position_embeddings": 64}},
            "yarn with untruncated bounds and the factor of mscale over mscale_all_dim"),
)

FAMILIES = (
    Family(
        "qwen3_moe",
        _config("Qwen3MoeForCausalLM", "qwen3_moe", attention_bias=False, decoder_sparse_step=1,
                head_dim=20, intermediate_size=40, max_window_layers=2, mlp_only_layers=[],
                moe_intermediate_size=24, norm_topk_prob=True, num_attention_heads=6, num_experts=8,
                num_experts_per_tok=3, num_hidden_layers=2, rope_scaling=None, rope_theta=50000.0,
                sliding_window=5, use_sliding_window=False),
        seed=3001, router="mlp.gate", layouts=("fused", "sharded"),
        variants=(
            Variant("norm_topk_false", {"norm_topk_prob": False}, "weights of the picks are not renormalised"),
            Variant("sliding", {"use_sliding_window": True}, "every layer sees the last 5 keys only"),
            *QWEN3_ROPE,
        ),
    ),
    Family(
        "qwen2_moe",
        _config("Qwen2MoeForCausalLM", "qwen2_moe", decoder_sparse_step=2, intermediate_size=40,
                max_window_layers=3, mlp_only_layers=[1], moe_intermediate_size=24,
                norm_topk_prob=False, num_attention_heads=8, num_experts=8, num_experts_per_tok=3,
                num_hidden_layers=4, qkv_bias=True, rope_theta=20000.0, sliding_window=5,
                shared_expert_intermediate_size=20, use_sliding_window=False),
        seed=3002, router="mlp.gate", layouts=("fused", "sharded"),
        variants=(
            Variant("norm_topk_true", {"norm_topk_prob": True}, "weights of the picks are renormalised"),
            Variant("sliding", {"use_sliding_window": True},
                    "layers 0 and 2 see the last 5 keys only: even layers below max_window_layers, "
                    "the rule of transformers 5; version 4 slid every layer"),
        ),
    ),
    Family(
        "mixtral",
        _config("MixtralForCausalLM", "mixtral", head_dim=12, intermediate_size=24,
                num_attention_heads=6, num_hidden_layers=2, num_local_experts=8,
                rope_theta=1000000.0, router_jitter_noise=0.0, sliding_window=None),
        seed=3003, router="mlp.gate", layouts=("fused", "sharded"),
        variants=(
            Variant("sliding", {"sliding_window": 8}, "every layer sees the last 8 keys only"),
            Variant("default_theta", {"rope_theta": REMOVE},
                    "no rope_theta in the file: this family's own default of 1e6 applies"),
        ),
    ),
    Family(
        "olmoe",
        _config("OlmoeForCausalLM", "olmoe", attention_bias=False, clip_qkv=0.7, intermediate_size=20,
                norm_topk_prob=False, num_attention_heads=8, num_experts=8, num_experts_per_tok=3,
                num_hidden_layers=2, rope_scaling=None, rope_theta=7000.0),
        seed=3004, router="mlp.gate", layouts=("fused", "sharded"),
        variants=(
            Variant("no_clip", {"clip_qkv": None}, "queries, keys and values are not clipped"),
            Variant("norm_topk_true", {"norm_topk_prob": True}, "weights of the picks are renormalised"),
        ),
    ),
    Family(
        "deepseek",
        _config("DeepseekForCausalLM", "deepseek", attention_bias=False, first_k_dense_replace=1,
                intermediate_size=40, moe_intermediate_size=24, moe_layer_freq=1, n_routed_experts=8,
                n_shared_experts=2, norm_topk_prob=False, num_attention_heads=8,
                num_experts_per_tok=3, num_hidden_layers=3, rope_scaling=None, rope_theta=30000.0,
                scoring_func="softmax"),
        seed=3005, router="mlp.gate", layouts=("sharded",),
        variants=(
            Variant("norm_topk_true", {"norm_topk_prob": True}, "weights of the picks are renormalised"),
        ),
    ),
    Family(
        "granitemoe",
        _config("GraniteMoeForCausalLM", "granitemoe", attention_bias=False, attention_multiplier=0.21,
                embedding_multiplier=0.7, intermediate_size=24, logits_scaling=1.3,
                num_attention_heads=8, num_hidden_layers=2, num_local_experts=8,
                num_experts_per_tok=3, residual_multiplier=0.43, rope_scaling=None,
                rope_theta=15000.0, tie_word_embeddings=True),
        seed=3006, router="block_sparse_moe.router", layouts=("fused", "sharded"), embed_std=0.4,
        out_gain=2.0,
        variants=(
            Variant("attention_bias", {"attention_bias": True}, "biases on q, k, v and o", weights="own"),
        ),
    ),
    Family(
        "granitemoeshared",
        _config("GraniteMoeSharedForCausalLM", "granitemoeshared", attention_bias=False,
                attention_multiplier=0.27, embedding_multiplier=0.6, intermediate_size=24,
                logits_scaling=1.6, num_attention_heads=8, num_hidden_layers=2, num_local_experts=8,
                num_experts_per_tok=2, residual_multiplier=0.57, rope_scaling=None,
                rope_theta=15000.0, shared_intermediate_size=20, tie_word_embeddings=True),
        seed=3007, router="block_sparse_moe.router", layouts=("fused", "sharded"), embed_std=0.4,
        out_gain=2.0,
        variants=(
            Variant("no_shared", {"shared_intermediate_size": 0},
                    "width 0 means no shared expert; the weights are granitemoe's", weights="granitemoe"),
        ),
    ),
)
