# SPDX-License-Identifier: Apache-2.0
"""What probability and arithmetic say of a MoE layer: the predictions that measurements are put beside.

E experts, k picks a token, B or T tokens of a step, pi[i] the probability that expert i is among a token's picks (they
sum to k), d and f the widths of the model and of an expert. The standard library is enough.
"""

import math


def zipf_weights(experts: int, exponent: float) -> list[float]:
    """Weights r^-s of a draw without replacement; exponent 0 is uniform."""
    return [(1 + rank) ** -exponent for rank in range(experts)]


def _rung(counts: list[float], silent: float) -> list[float]:
    """Distribution of the number of rung clocks, cut at len(counts), after one more clock that is silent with this
    probability."""
    return [counts[n] * silent + (counts[n - 1] * (1 - silent) if n else 0.0) for n in range(len(counts))]


def inclusion(weights: list[float], k: int) -> list[float]:
    """pi of successive sampling without replacement, exactly: exponential clocks of rates w, pi[i] = integral over t of
    w[i] exp(-w[i] t) P(fewer than k others rang before t). Trapezoids on a logarithmic grid."""
    experts, total = len(weights), sum(weights)
    weights = [w / total for w in weights]
    if max(weights) - min(weights) < 1e-12:
        return [k / experts] * experts
    scale = 1.0
    while sum(1 - math.exp(-w * scale) for w in weights) < k and scale < 1e6:
        scale *= 1.3
    steps, first, last = 160, -8.0, 3.4
    pi = [0.0] * experts
    for step in range(steps):
        t = scale * math.exp(first + (last - first) * step / (steps - 1))
        silent = [math.exp(-w * t) for w in weights]
        none = [1.0] + [0.0] * (k - 1)
        before = [none]
        for s in silent:
            before.append(_rung(before[-1], s))
        after = none
        for i in reversed(range(experts)):
            cumulative, fewer = 0.0, 0.0
            for n in range(k):  # n others behind i, so at most k - 1 - n before it
                cumulative += after[n]
                fewer += before[i][k - 1 - n] * cumulative
            pi[i] += weights[i] * silent[i] * fewer * t
            after = _rung(after, silent[i])
    missing = k / sum(pi)  # the ends of the grid and its step
    return [p * missing for p in pi]


def touched(pi: list[float], tokens: int) -> float:
    """F1: experts with at least one token."""
    return sum(1 - (1 - p) ** tokens for p in pi)


def imbalance_uniform(experts: int, k: int, tokens: int) -> float:
    """F3: hottest over mean under uniform routing, 1 + m_E sqrt((1 - k/E) E/(kT) E/(E-1))."""
    grid = [-9 + 18 * i / 4000 for i in range(4001)]
    density = [((0.5 * (1 + math.erf(z / math.sqrt(2)))) ** experts, z) for z in grid]
    largest = sum((1 - p if z > 0 else -p) for p, z in density) * 18 / 4000
    mean = k * tokens / experts
    return 1 + largest * math.sqrt(mean * (1 - k / experts) * experts / (experts - 1)) / mean


def imbalance(pi: list[float], tokens: int) -> float:
    """F4: mean of the largest of independent Binomial(T, pi[i]) over the mean load; exactly E / k for one token."""
    if tokens == 1:
        return len(pi) / sum(pi)
    logs = [math.lgamma(n + 1) for n in range(tokens + 1)]
    choose = [logs[tokens] - logs[n] - logs[tokens - n] for n in range(tokens + 1)]
    log_all = [0.0] * (tokens + 1)
    for p in pi:
        p = min(max(p, 1e-12), 1 - 1e-12)
        log_p, log_q, at_most = math.log(p), math.log1p(-p), 0.0
        for n in range(tokens + 1):
            at_most += math.exp(choose[n] + n * log_p + (tokens - n) * log_q)
            log_all[n] += math.log(min(max(at_most, 1e-300), 1.0))
    return sum(1 - math.exp(v) for v in log_all[:-1]) * len(pi) / (sum(pi) * tokens)


def imbalance_floor(pi: list[float]) -> float:
    """F5: what is left with ever more tokens."""
    return len(pi) * max(pi) / sum(pi)


def capacity(factor: float, k: int, tokens: int, experts: int) -> int:
    """C = ceil(c k T / E), at least 1."""
    return max(1, math.ceil(factor * k * tokens / experts - 1e-9))


def drop_rate(pi: list[float], tokens: int, factor: float) -> float:
    """F6: share of picks beyond C, each load taken as normal."""
    k = sum(pi)
    limit, dropped = capacity(factor, round(k), tokens, len(pi)), 0.0
    for p in pi:
        deviation = math.sqrt(max(tokens * p * (1 - p), 1e-12))
        z = (limit - tokens * p) / deviation
        tail = 0.5 * math.erfc(z / math.sqrt(2))
        dropped += max(0.0, deviation * (math.exp(-z * z / 2) / math.sqrt(2 * math.pi) - z * tail))
    return dropped / (k * tokens)


def layer_seconds(bytes_read: float, operations: float, bytes_per_s: float, operations_per_s: float) -> float:
    """F17: reading weights and multiplying overlap, but not entirely where both take long."""
    return ((bytes_read / bytes_per_s) ** 4 + (operations / operations_per_s) ** 4) ** 0.25


def communication_ratio(ranks: int, bytes_out: float, bytes_back: float, ffn_width: int, flops: float,
                        bandwidth: float) -> float:
    """F14: time of both exchanges over time of the products, whatever the batch, the width and k."""
    return (ranks - 1) / ranks * (bytes_out + bytes_back) * flops / (6 * ffn_width * bandwidth)


def longest_first(loads: list[float], ranks: int, slots: int) -> list[list[int]]:
    """Experts dealt to ranks, the largest load to the rank with the least, at most `slots` each; then exchanged in pairs."""
    placed: list[list[int]] = [[] for _ in range(ranks)]
    sums = [0.0] * ranks
    for item in sorted(range(len(loads)), key=lambda i: -loads[i]):
        rank = min((r for r in range(ranks) if len(placed[r]) < slots), key=lambda r: sums[r])
        placed[rank].append(item)
        sums[rank] += loads[item]
    return improved(loads, placed)


def improved(loads: list[float], placed: list[list[int]]) -> list[list[int]]:
    """Exchanges an expert of the busiest rank for a smaller one elsewhere, as long as that lowers the busier of the two."""
    while True:
        sums = [sum(loads[i] for i in rank) for rank in placed]
        busiest = max(range(len(placed)), key=lambda r: sums[r])
        best, choice = sums[busiest] * (1 - 1e-9), None
        for other in range(len(placed)):
            for a in placed[busiest] if other != busiest else ():
                for b in placed[other]:
                    moved = loads[a] - loads[b]
                    if moved > 0 and max(sums[busiest] - moved, sums[other] + moved) < best:
                        best, choice = max(sums[busiest] - moved, sums[other] + moved), (other, a, b)
        if choice is None:
            return placed
        other, a, b = choice
        placed[busiest].remove(a)
        placed[other].remove(b)
        placed[busiest].append(b)
        placed[other].append(a)
