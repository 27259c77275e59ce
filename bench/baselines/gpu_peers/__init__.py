# SPDX-License-Identifier: Apache-2.0
"""The peers of the MoE layer on a GPU; bench/baselines/gpu_layer_peers.py runs them."""
