"""A prototype: an epsilon that depends on what is released (ex-post; arXiv 2508.15183).

Each round ends the search with probability ``stop`` and releases nothing. Else it draws a run i
with probability ``shares[i]``, a pure ``epsilons[i]``-DP training with its score, and releases
(i, output) if the score reaches a threshold that was fixed beforehand. Then for all outputs

    A(i, y) <= e^(epsilons[i] + price) A'(i, y),      A(nothing) <= e^price A'(nothing).

*Proof.* Let r_i be the chance that run i reaches the threshold, r the sum of shares[i] r_i, and
s = stop. Summing over rounds, A(i, y) = (1 - s) shares[i] M_i(y) / (s + (1 - s) r) and
A(nothing) = s / (s + (1 - s) r); the like on D'. So the loss is that of M_i(y), or 0, plus
log(s + (1 - s) r') - log(s + (1 - s) r), and ``price`` bounds this difference. Since run i is
epsilons[i]-DP, r_i' <= u_i(r_i) = min(e^epsilon r_i, 1 - e^-epsilon (1 - r_i)). Let x be the
largest ratio of s + (1 - s) sum shares[i] u_i(r_i) to s + (1 - s) sum shares[i] r_i. Where it is
attained, the r maximise sum shares[i] (u_i(r_i) - x r_i), and u_i has slope e^epsilon up to
1 / (1 + e^epsilon) and e^-epsilon <= x beyond. So r_i is 1 / (1 + e^epsilon) if e^epsilon > x, and
0 if not: the largest ratio over the sets of the costliest runs is x. Randomised responses attain
it, when nothing is released.

Runs that cost more are drawn more rarely by default, which keeps the price small. Nothing here has
a public name, and ``Guarantee`` knows no such losses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from secrets import SystemRandom
from typing import Any

_random = SystemRandom()


def default_shares(epsilons: Sequence[float]) -> list[float]:
    """In inverse proportion to what a run adds to the price."""
    weights = [1.0 / math.expm1(epsilon) for epsilon in epsilons]
    return [weight / sum(weights) for weight in weights]


def price(epsilons: Sequence[float], shares: Sequence[float], stop: float) -> float:
    """What every release costs besides the epsilon of its own run."""
    here = there = stop
    largest = 1.0
    for epsilon, share in sorted(zip(epsilons, shares, strict=True), reverse=True):
        here += (1.0 - stop) * share / (1.0 + math.exp(epsilon))
        there += (1.0 - stop) * share / (1.0 + math.exp(-epsilon))
        largest = max(largest, there / here)
    return math.log(largest) * (1.0 + 1e-12)


def search(
    runs: Sequence[Callable[[], tuple[Any, float]]],
    shares: Sequence[float],
    stop: float,
    threshold: float,
) -> tuple[int, Any] | None:
    """Returns (i, output) of the first run that is good enough, or None."""
    while _random.random() >= stop:
        i = _random.choices(range(len(runs)), shares)[0]
        output, score = runs[i]()
        if score >= threshold:
            return i, output
    return None


if __name__ == "__main__":
    epsilons = [0.25, 0.5, 1.0, 2.0, 4.0]
    shares = default_shares(epsilons)
    print("epsilon of a run   ", *(f"{e:6.2f}" for e in epsilons))
    print("share of the draws ", *(f"{s:6.3f}" for s in shares))
    for stop in (0.5, 0.1, 0.01):
        paid = [e + price(epsilons, shares, stop) for e in epsilons]
        print(f"released, stop {stop:<4}", *(f"{p:6.2f}" for p in paid))
