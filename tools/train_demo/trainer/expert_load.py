# SPDX-License-Identifier: Apache-2.0
"""How evenly held-out tokens spread over the experts."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from trainer.config import ARCHITECTURE as A
from trainer.config import DOMAINS

_WHAT = ("assignments of validation tokens to experts, counts[layer][expert][domain]; "
         "each token makes four a layer")


def _rounded(values: Tensor) -> list[float]:
    return [round(value, 3) for value in values.tolist()]


def imbalance(counts: Tensor) -> dict[str, Any]:
    """Busiest and least busy expert over the mean, by layer; counts [L, E, domains] i64."""
    wide = counts.double()
    alike = (wide / wide.sum(1, keepdim=True)).mean(2)  # [L, E], every domain weighted alike
    by_domain = wide.max(1).values / wide.mean(1)  # [L, domains]
    return {
        "max_over_mean_all_domains_alike": _rounded(alike.max(1).values * A.num_experts),
        "min_over_mean_all_domains_alike": _rounded(alike.min(1).values * A.num_experts),
        "max_over_mean_by_domain": {domain: _rounded(by_domain[:, index])
                                    for index, domain in enumerate(DOMAINS)},
    }


def routing_stats(counts: Tensor, results: dict[str, dict[str, float]]) -> dict[str, Any]:
    """The content of routing_stats.json."""
    spread = imbalance(counts)
    return {
        "what": _WHAT, "domains": DOMAINS, "layers": A.num_hidden_layers,
        "experts": A.num_experts, "experts_per_token": A.num_experts_per_tok,
        "tokens": {domain: results[domain]["tokens"] for domain in DOMAINS},
        "counts": counts.tolist(),
        "max_over_mean_all_domains_alike": spread["max_over_mean_all_domains_alike"],
        "max_over_mean_by_domain": spread["max_over_mean_by_domain"],
    }
