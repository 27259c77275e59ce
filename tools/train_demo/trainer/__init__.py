# SPDX-License-Identifier: Apache-2.0
"""The demonstration model in plain PyTorch: tokens, model, training loop, export.

Letters in shapes: T tokens of a sequence, B sequences, D width, E experts, K picks per token,
F expert width, H query heads, G key/value heads, Z head width, L layers, V vocabulary.
"""
