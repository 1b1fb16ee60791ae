"""Koskela, Redberg & Wang's bound on the privacy profile of private selection.

"Privacy Profiles for Private Selection", ICML 2024 (arXiv 2402.06701v1). It serves as an
independent check of :mod:`optuna_dp.private_selection.bounds.profile_bound`, never looser.
Runs must be drawn from the prior (C = c = 1).

The recipe: with s = P(<= y) on D and s' on D', the winner's densities are P(dy) phi'(s) and
P'(dy) phi'(s'). If phi'(s) <= R phi'(s') whenever (s, s') is possible, then
``delta_A(eps) <= m * delta_run(eps - log R)``. Any a >= 0 gives an R:

* truncated negative binomial (the published form): ``(e^a + (1 - gamma)/gamma delta'(a))^(1+eta)``
  with delta' the profile of the reverse direction, since 1 - s' <= e^a (1 - s) + delta'(a);
* Poisson: ``exp(m (e^a - 1 + delta(a)))``, which is least at a = 0: exp(m TV);
* binomial(n, q): ``(1 + q (e^a - 1) + q/(1-q) delta(a))^(n-1)``,

the last two from s <= e^a s' + delta(a) with the forward profile. All three are derived, for one
direction at a time, in ``docs/explanation/profile-bound.md``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.private_selection.trial_counts.base import TrialCount
from optuna_dp.private_selection.trial_counts.binomial import Binomial
from optuna_dp.private_selection.trial_counts.negative_binomial import NegativeBinomial
from optuna_dp.private_selection.trial_counts.poisson import Poisson


def koskela_applies(trials: TrialCount, density_bounds: tuple[float, float] = (1.0, 1.0)) -> bool:
    """Returns whether the bound covers this law of T and these density bounds."""
    known = isinstance(trials, NegativeBinomial | Poisson | Binomial)
    return known and tuple(density_bounds) == (1.0, 1.0)


def koskela_delta(pair: DominatingPair, trials: TrialCount, epsilons: npt.ArrayLike) -> FloatArray:
    """Returns an upper bound on delta at each epsilon, in one direction of adjacency.

    arXiv 2402.06701v1 (truncated negative binomial), and the same recipe for Poisson and
    binomial laws (``docs/explanation/profile-bound.md``).

    Guarantees:
        * At least the selection's hockey-stick divergence for every real epsilon; every ``a``
          of the search is valid, so the search can only lose tightness.
        * Never below the bound of :mod:`optuna_dp.private_selection.bounds.profile_bound` in exact
          arithmetic.

    Args:
        pair: Dominates one run in this direction.
        trials: A negative binomial, Poisson or binomial law.
        epsilons: Any real numbers.

    Raises:
        InvalidArgumentError: If the law of T is of another kind (a capped one, for instance).
    """
    eps = np.asarray(epsilons, dtype=np.float64)
    log_ratio = _log_ratio(pair, trials)
    inner = np.asarray(pair.delta(eps - log_ratio)) if np.isfinite(log_ratio) else 1.0
    none = float(trials.pmf(0)) * -np.expm1(np.minimum(eps, 0.0))
    return np.asarray(np.minimum(1.0, trials.mean * inner + none), dtype=np.float64)


def _log_ratio(pair: DominatingPair, trials: TrialCount) -> float:
    """Returns the least log R over a grid of a, refined once around its minimum."""
    coarse = np.concatenate([[0.0], np.logspace(-6, 2, 1601)])
    values = _log_ratios(pair, trials, coarse)
    k = int(np.argmin(values))
    low, high = coarse[max(k - 1, 0)], coarse[min(k + 1, coarse.size - 1)]
    fine = _log_ratios(pair, trials, np.linspace(low, high, 401))
    return float(min(values[k], fine.min()))


def _log_ratios(pair: DominatingPair, trials: TrialCount, a: FloatArray) -> FloatArray:
    if isinstance(trials, NegativeBinomial):
        gamma, shape = float(trials.gamma), float(trials.shape)
        reverse = np.asarray(pair.reversed().delta(a), dtype=np.float64)
        # log(e^a + x) = a + log(1 + x e^-a), which cannot overflow.
        return (1.0 + shape) * (a + np.log1p((1.0 - gamma) / gamma * reverse * np.exp(-a)))
    forward = np.asarray(pair.delta(a), dtype=np.float64)
    if isinstance(trials, Poisson):
        return np.asarray(trials.mean * (np.expm1(a) + forward), dtype=np.float64)
    if isinstance(trials, Binomial):
        q = trials.mean / trials.n
        if q >= 1.0:
            # T = n: the two laws can differ without limit where s' = 0.
            return np.full(a.shape, np.inf if trials.n > 1 else 0.0)
        return np.asarray(
            (trials.n - 1) * np.log1p(q * np.expm1(a) + q / (1.0 - q) * forward),
            dtype=np.float64,
        )
    raise InvalidArgumentError(
        "trials",
        trials,
        "the bound of Koskela, Redberg & Wang covers NegativeBinomial, Poisson and Binomial laws",
        "Use the profile bound, which covers every law.",
    )
