"""The draw of the next run's hyperparameters, with density in [c, C] of the prior.

Proofs: docs/explanation/bounded-densities.md ("Fresh candidates", "Fixed candidate sets").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from optuna_dp.arrays import FloatArray, IntArray
from optuna_dp.densities.informed import FixedCandidates
from optuna_dp.densities.prior import Candidates, Prior, Space
from optuna_dp.densities.projection import Projection, project_log

# Logarithms of the weights the search would like the candidates to have, shape (N,).
Weigh = Callable[[Candidates], FloatArray]


@dataclass(frozen=True)
class Proposal:
    """Hyperparameters for the next run.

    Attributes:
        params: Plain Python values, one per parameter of the space.
        ratio: ``f_i`` of the chosen candidate, within [c, C]; for the curator's diagnosis. Among
            fresh candidates it is the ratio *given* the other candidates; the density of the
            draw is its average over them.
    """

    params: dict[str, Any]
    ratio: float


def propose_fresh(
    prior: Prior,
    space: Space,
    n: int,
    weigh: Weigh,
    bounds: tuple[float, float],
    projection: Projection,
    rng: np.random.Generator,
) -> Proposal:
    """Draws ``n`` candidates from the prior and chooses one of them.

    Args:
        prior: The law of each candidate.
        space: The joint search space of a run.
        n: Number of candidates, N.
        weigh: Log-weights of the candidates; any function of them, of the history and even of
            the data. It must not share ``rng``.
        bounds: ``(c, C)``.
        projection: How the weights are brought within the bounds.
        rng: Independent of data and history, and not known outside.

    Guarantees:
        The chosen point's density relative to the prior lies in [c, C], exactly, on any space
        and for any ``weigh``: it is ``(1/N) sum_i E[f_i | lambda_i = lambda]``.
    """
    candidates = prior.sample(space, n, rng)
    if n == 1:
        return Proposal(candidates.params(0), 1.0)  # The only weights that average to one.
    return _choose(candidates, weigh, bounds, projection, None, rng)


def propose_fixed(
    fixed: FixedCandidates,
    space: Space,
    weigh: Weigh,
    bounds: tuple[float, float],
    projection: Projection,
    rng: np.random.Generator,
) -> Proposal:
    """Chooses a point of a fixed set; arguments as in :func:`propose_fresh`.

    Guarantees:
        Point i is chosen with probability ``pi0_i f_i``, ``c <= f_i <= C``, exactly.
    """
    candidates = fixed.candidates(space)
    return _choose(candidates, weigh, bounds, projection, fixed.masses, rng)


def _choose(
    candidates: Candidates,
    weigh: Weigh,
    bounds: tuple[float, float],
    projection: Projection,
    masses: IntArray | None,
    rng: np.random.Generator,
) -> Proposal:
    density = project_log(weigh(candidates), bounds, projection, masses)
    if len(density) != len(candidates):
        raise ValueError(f"{len(density)} weights for {len(candidates)} candidates")
    i = density.draw(rng)
    return Proposal(candidates.params(i), float(density.ratios[i]))
