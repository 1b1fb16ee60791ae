"""How far a projection onto densities within [c, C] is from the exact one::

    python examples/benchmarks/projection_accuracy.py

Both ways that ``DPHyPOSampler`` has: bisection (``projection="l2"`` and ``"kl"``), and cvxpy
(``ConvexProjection(nu=0)`` and ``ConvexProjection(nu=math.inf)``, which minimise the same). The
exact projection is computed with fractions: between two neighbouring places where a candidate
meets a bound, the multiplier solves one linear equation. Seeded, so it prints the same each
time, up to the solver's version. Some seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

import optuna_dp as odp
from optuna_dp.core.arrays import FloatArray, IntArray
from optuna_dp.priors.densities.projection import Projection, project_log
from optuna_dp.priors.densities.shares import integer_masses, uniform_masses

BOUNDS = (0.75, 2.0)
CASES = {10: 20, 64: 20, 512: 6}  # by the number of candidates


def exact_ratios(
    weights: Sequence[float], masses: Sequence[int], bounds: tuple[float, float], method: str
) -> FloatArray:
    """Returns DP-HyPO's projection (arXiv 2306.05734v2, equation 3.1) without any rounding.

    ``f_i = clip(w_i - nu, c, C)`` for L2 and ``clip(w_i / nu, c, C)`` for KL, with the ``nu`` at
    which ``sum_i prior_i f_i`` is 1.

    Args:
        weights: The ratios that the search would like, positive, with a mean of 1 under the prior.
        masses: The prior, as whole numbers.
        bounds: (c, C).
        method: ``"l2"`` or ``"kl"``.
    """
    w = [Fraction(weight) for weight in weights]
    prior = [Fraction(int(mass), int(sum(masses))) for mass in masses]
    c, big_c = (Fraction(bound) for bound in bounds)

    def ratios(nu: Fraction) -> list[Fraction]:
        wanted = [weight - nu if method == "l2" else weight / nu for weight in w]
        return [min(max(ratio, c), big_c) for ratio in wanted]

    def total(nu: Fraction) -> Fraction:
        return sum((p * f for p, f in zip(prior, ratios(nu), strict=True)), Fraction(0))

    meets = [weight - b if method == "l2" else weight / b for weight in w for b in (c, big_c)]
    places = sorted(set(meets))
    low, high = 0, len(places) - 1  # The total falls with nu, from C to c.
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if total(places[middle]) >= 1 else (low, middle)
    between = ratios((places[low] + places[high]) / 2)
    free = [i for i, ratio in enumerate(between) if c < ratio < big_c]
    rest = 1 - sum(prior[i] * f for i, f in enumerate(between) if i not in set(free))
    wanted = sum((prior[i] * w[i] for i in free), Fraction(0))
    if method == "l2":
        return np.array(ratios((wanted - rest) / sum(prior[i] for i in free)), dtype=np.float64)
    return np.array(ratios(wanted / rest), dtype=np.float64)


def cases(n: int, count: int) -> Iterator[tuple[FloatArray, IntArray]]:
    """Yields logarithms of weights, from nearly equal to very unequal, and priors."""
    rng = np.random.default_rng(0)
    for case in range(count):
        logs = (0.3, 1.0, 2.0, 5.0)[case % 4] * rng.normal(size=n)
        yield logs, uniform_masses(n) if case % 2 else integer_masses(list(rng.random(n) + 0.05))


def main() -> None:
    ways: tuple[tuple[Projection, Projection], ...] = (
        ("l2", odp.ConvexProjection(nu=0.0)),
        ("kl", odp.ConvexProjection(nu=math.inf)),
    )
    print("candidates  distance  bisection    cvxpy")
    for n, count in CASES.items():
        for method, by_cvxpy in ways:
            worst = {"bisection": 0.0, "cvxpy": 0.0}
            for logs, masses in cases(n, count):
                prior = masses / masses.sum()
                weights = np.exp(logs - logs.max())
                weights /= prior @ weights
                exact = exact_ratios(weights.tolist(), masses.tolist(), BOUNDS, str(method))
                for name, how in (("bisection", method), ("cvxpy", by_cvxpy)):
                    off = np.abs(project_log(logs, BOUNDS, how, masses).ratios - exact).max()
                    worst[name] = max(worst[name], float(off))
            numbers = "  ".join(f"{worst[name]:9.0e}" for name in worst)
            print(f"{n:10}  {method!s:8}  {numbers}")


if __name__ == "__main__":
    main()
