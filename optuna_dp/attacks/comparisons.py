"""The bounds of others, shown beside a guarantee: no part of it, and independent checks of ours.

===============  ============================================================================
``koskela``      Koskela, Redberg & Wang (arXiv 2402.06701v1), non-adaptive
``theorem_1``    DP-HyPO's Theorem 1 as printed (arXiv 2306.05734v2)
===============  ============================================================================

Koskela, Redberg & Wang, "Privacy Profiles for Private Selection", ICML 2024: runs must be drawn
from the prior (C = c = 1). It is never tighter than
:mod:`optuna_dp.selection.bounds.profile_bound`.

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

import functools
import json
import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from dp_accounting import dp_event

from optuna_dp.accounting import run_rdp
from optuna_dp.accounting.bounds import Method, ProfileMethod
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.event_json import canonical_key, event_from_json
from optuna_dp.accounting.rdp_curves import (
    at_orders_above_one,
    checked_curve,
    over_order,
    running_minimum,
)
from optuna_dp.accounting.run_profile import pair_of
from optuna_dp.core.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.selection.event import PrivateSelectionDpEvent
from optuna_dp.selection.laws.base import TrialCount


class _Koskela:
    def __init__(self, pair: DominatingPair, event: PrivateSelectionDpEvent) -> None:
        self._pair, self._trials = pair, event.trials

    def delta(self, epsilons: npt.ArrayLike) -> FloatArray:
        return koskela_delta(self._pair, self._trials, epsilons)


def comparisons_of(
    event: dp_event.DpEvent, relation: str, delta: float
) -> dict[str, tuple[float, str]]:
    """Returns epsilon at ``delta`` by each bound that covers the event, and why it is inf."""
    if not isinstance(event, PrivateSelectionDpEvent):
        return {}
    key = canonical_key(event)
    methods = _methods(key, relation)
    return {
        name: (epsilon, methods[name].why_infinite(delta))
        for name, epsilon in _epsilons(key, relation, delta).items()
    }


@functools.lru_cache(maxsize=1024)
def _epsilons(key: str, relation: str, delta: float) -> Mapping[str, float]:
    return {name: method.epsilon(delta) for name, method in _methods(key, relation).items()}


@functools.lru_cache(maxsize=64)
def _methods(key: str, relation: str) -> Mapping[str, Method]:
    event = event_from_json(json.loads(key))
    bounds = event.density_bounds
    methods: dict[str, Method] = {}
    if koskela_applies(event.trials, bounds):
        pair = pair_of(event.run, relation)
        backward = pair.reversed()
        methods["koskela"] = ProfileMethod(_Koskela(pair, event), _Koskela(backward, event))
    if bounds != (1.0, 1.0):
        orders = run_rdp.orders_for(event)
        run = run_rdp.rdp_of(event.run, relation, orders)
        methods["theorem_1"] = run_rdp.RdpMethod(
            orders,
            theorem1_as_printed(orders, run, event.trials, bounds),
            event.trials.why_no_rdp() or "it covers negative binomial laws only",
        )
    return methods


def koskela_applies(trials: TrialCount, density_bounds: tuple[float, float] = (1.0, 1.0)) -> bool:
    """Returns whether the bound covers this law of T and these density bounds."""
    is_covered = trials.log_slope_ratios(*np.zeros((3, 1))) is not None
    return is_covered and tuple(density_bounds) == (1.0, 1.0)


def koskela_delta(pair: DominatingPair, trials: TrialCount, epsilons: npt.ArrayLike) -> FloatArray:
    """Returns an upper bound on delta at each epsilon, in one direction of adjacency.

    arXiv 2402.06701v1 (truncated negative binomial), and the same recipe for Poisson and
    binomial laws (``docs/explanation/profile-bound.md``).

    Guarantees:
        * At least the selection's hockey-stick divergence for every real epsilon; every ``a``
          of the search is valid, so the search can only lose tightness.
        * Never below the bound of :mod:`optuna_dp.selection.bounds.profile_bound` in exact
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
    no_run = float(trials.pmf(0)) * -np.expm1(np.minimum(eps, 0.0))
    return np.asarray(np.minimum(1.0, trials.mean * inner + no_run), dtype=np.float64)


def _log_ratio(pair: DominatingPair, trials: TrialCount) -> float:
    """Returns the least log R over a grid of a, refined once around its minimum."""
    coarse = np.concatenate([[0.0], np.logspace(-6, 2, 1601)])
    values = _log_ratios(pair, trials, coarse)
    k = int(np.argmin(values))
    low, high = coarse[max(k - 1, 0)], coarse[min(k + 1, coarse.size - 1)]
    fine = _log_ratios(pair, trials, np.linspace(low, high, 401))
    return float(min(values[k], fine.min()))


def _log_ratios(pair: DominatingPair, trials: TrialCount, a: FloatArray) -> FloatArray:
    forward, reverse = np.asarray(pair.delta(a)), np.asarray(pair.reversed().delta(a))
    log_ratios = trials.log_slope_ratios(a, forward, reverse)
    if log_ratios is None:
        raise InvalidArgumentError(
            "trials",
            trials,
            problem="the bound of Koskela, Redberg & Wang covers NegativeBinomial, Poisson and "
            "Binomial laws",
            fix="Use the profile bound, which covers every law.",
        )
    return log_ratios


def theorem1_as_printed(
    orders: npt.ArrayLike,
    run_rdp: npt.ArrayLike,
    trials: TrialCount,
    density_bounds: tuple[float, float],
) -> FloatArray:
    """Returns DP-HyPO's Theorem 1 (arXiv:2306.05734v2) as printed, for comparison.

    eps(a) + (a/(a-1) + 1 + eta) log(C/c) + log(m)/(a-1)
    + (1+eta) min over b of [(1-1/b) eps(b) + log(1/gamma)/b].

    The statement is true (it follows from the law's ``rdp``), its printed proof is not
    (``docs/explanation/rdp-of-selection.md``). No guarantee uses it.

    Args:
        orders: The orders a, at least 1, ascending, shape (n,). b is one of them too: with few
            orders the bound is looser.
        run_rdp: The Renyi divergences of one run at these orders, shape (n,).
        trials: The law of the number of runs.
        density_bounds: (c, C).

    Returns:
        Renyi divergences of the selection, shape (n,); ``inf`` for laws outside the truncated
        negative binomial family.

    Raises:
        InvalidArgumentError: If the orders or the divergences are not allowed.

    Example:
        >>> import numpy as np
        >>> import optuna_dp as odp
        >>> from optuna_dp.attacks.comparisons import theorem1_as_printed
        >>> orders = np.union1d(np.geomspace(1.02, 1000.0, 300), [8.0])
        >>> run = odp.Guarantee(odp.gaussian(noise_multiplier=4.0)).rdp(orders)
        >>> bound = theorem1_as_printed(orders, run, odp.Geometric(mean=20), (0.75, 2.0))
        >>> round(float(bound[orders == 8.0][0]), 3)
        4.84
    """
    a, run = checked_curve(orders, run_rdp)
    c, big_c = density_bounds
    log_ratio = math.log(big_c) - math.log(c)
    term = trials.rdp_term(a, run, 0.0, 0.0)
    if log_ratio > 0.0:
        term += trials.pure_factor * log_ratio
    per_order = over_order(a, math.log(trials.mean) + log_ratio)
    return running_minimum(a, at_orders_above_one(a, run + per_order + term))
