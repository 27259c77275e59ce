# SPDX-License-Identifier: Apache-2.0
"""What is trained: the architecture and the shares of the domains."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Architecture:
    """Sizes of the model; the names are those of a Hugging Face config.json."""

    vocab_size: int = 8192  # V
    hidden_size: int = 256  # D
    num_hidden_layers: int = 6  # L
    num_attention_heads: int = 4  # H
    num_key_value_heads: int = 2  # G
    head_dim: int = 64  # Z
    num_experts: int = 32  # E
    num_experts_per_tok: int = 4  # K
    moe_intermediate_size: int = 64  # F
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    max_position_embeddings: int = 2048


ARCHITECTURE = Architecture()

# The share of the training sequences that each domain gives; they add up to 1.
SHARES = {
    "english_man": 0.12, "german": 0.08, "french": 0.08, "spanish": 0.035, "kernel_doc": 0.12,
    "manuals": 0.12, "cpp": 0.12, "python": 0.12, "dictionary": 0.11, "scripture": 0.015,
    "chat": 0.08,
}
DOMAINS = list(SHARES)
CHAT = DOMAINS.index("chat")

SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]  # token ids 0, 1, 2
END_OF_TEXT = 0
END_OF_TURN = 2
