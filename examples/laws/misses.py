"""How often no run hits the best 5 % of settings, by the law of T, beside how rare it can be.

::

    python examples/laws/misses.py

A law's cost is its factor: runs that are e-DP cost at most (2 + shape) e together, for small e and
large means no less. In brackets stands what no procedure of the same cost and the same mean number
of runs can be below, for the worst runs (docs/how-to/choose-the-law.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import optuna_dp as odp

MEANS, SHARE = (10.0, 100.0, 1000.0), 0.05
LAWS: dict[str, Callable[[float], odp.TrialCount]] = {
    "negative binomial, shape -0.5": lambda mean: odp.NegativeBinomial(shape=-0.5, mean=mean),
    "logarithmic": lambda mean: odp.Logarithmic(mean),
    "geometric": lambda mean: odp.Geometric(mean),
    "negative binomial, shape 3": lambda mean: odp.NegativeBinomial(shape=3.0, mean=mean),
    "Poisson": lambda mean: odp.Poisson(mean),
}


def fewest_misses(factor: float, mean: float, share: float) -> float:
    """Returns the largest x^factor (1 - mean share x) for x in (0, 1].

    Args:
        factor: The cost of the whole, in units of one run's epsilon.
        mean: The mean number of runs.
        share: The chance of one run to hit.
    """
    if math.isinf(factor):
        return 0.0
    x = min(1.0, factor / ((factor + 1.0) * mean * share))
    return max(0.0, x**factor * (1.0 - mean * share * x))


def main() -> None:
    print("| law of T | factor |" + "".join(f" mean {mean:g} |" for mean in MEANS))
    print("|---|---|" + "---|" * len(MEANS))
    for name, law in LAWS.items():
        factor = law(MEANS[0]).pure_factor
        cells = [
            f" {float(law(mean).pgf(1.0 - SHARE)):.2g} "
            f"({fewest_misses(factor, mean, SHARE):.1g}) |"
            for mean in MEANS
        ]
        print(
            f"| {name} | {f'{factor:g}' if math.isfinite(factor) else 'none'} |" + "".join(cells)
        )


if __name__ == "__main__":
    main()
