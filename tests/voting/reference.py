"""An independent exact Poisson sampler, to compare ours with."""

from __future__ import annotations

import random


def poisson_one(rng: random.Random) -> int:
    """Poisson(1) by Duchon & Duvignau (Electronic Journal of Combinatorics 23(4), 2016, P4.2).

    Whole numbers only.
    """
    n, g, k = 1, 0, 1
    while True:
        i = rng.randrange(n + 1)
        if i == n:
            k += 1
        elif i >= g:
            k -= 1
            g = n + 1
        else:
            return k
        n += 1


def poisson(num: int, den: int, rng: random.Random) -> int:
    """Poisson(num / den): whole parts add, and a fraction is a thinned Poisson(1)."""
    whole, rest = divmod(num, den)
    total = sum(poisson_one(rng) for _ in range(whole))
    return total + sum(rng.randrange(den) < rest for _ in range(poisson_one(rng)))
