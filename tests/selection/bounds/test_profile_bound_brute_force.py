"""The profile bound against exact selection laws: every order, every event, the best policies.

Two adversaries are computed exactly (``selection_reference.py``). Both compare with the bound

* as a whole, delta_A(eps) <= bound(eps), and
* output by output, A(y) - e^eps A'(y) <= P0(y) Phi(e^(eps - L(y))),

and the same comparison must catch every sabotaged variant of the bound.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from selection.bounds.discrete_runs import envelope, pair_of_laws, random_laws
from selection.bounds.selection_reference import (
    LAWS,
    Selection,
    adaptive_selection,
    any_settings,
    fixed_selections,
    sharp_settings,
)

from optuna_dp import TrialCount
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.core.arrays import FloatArray
from optuna_dp.selection.bounds import profile_bound
from optuna_dp.selection.bounds.profile_bound import DataProfile

EPSILONS = np.array([-1.5, -0.3, 0.0, 0.1, 0.4, 0.8, 1.3, 2.0, 3.0, 5.0])
TOLERANCE = 1e-11
Bound = Callable[[DominatingPair, TrialCount, tuple[float, float]], DataProfile]


# --- instances -----------------------------------------------------------------------------


def violations(profile: DataProfile, selections: Iterator[Selection]) -> tuple[int, int]:
    """How often the bound on delta, and the bound on single outputs, are too low."""
    factor = np.exp(EPSILONS)
    bound = profile.delta(EPSILONS)
    whole = single = 0
    for s in selections:
        gain = s.events[0][:, None] - factor * s.events[1][:, None]
        reached = np.maximum(gain.max(axis=0), 0.0) + s.none * np.maximum(0.0, 1.0 - factor)
        whole += int(np.sum(reached > bound + TOLERANCE))
        for y in range(s.on.size):
            mine = gain[s.single == y]
            if mine.size and s.on[y] > 0.0:
                limit = s.on[y] * profile.phi(factor * s.off[y] / s.on[y])
                single += int(np.sum(mine.max(axis=0) > limit + TOLERANCE))
    return whole, single


# --- without adaptivity: all orders, ties included -----------------------------------------


def check_fixed(make: Bound, count: int, seed: int) -> tuple[int, int]:
    rng = np.random.default_rng(seed)
    whole = single = 0
    for i in range(count):
        on, off = random_laws(rng, int(rng.integers(2, 5)))
        trials = LAWS[i % len(LAWS)]
        profile = make(pair_of_laws(on, off), trials, (1.0, 1.0))
        a, b = violations(profile, fixed_selections(on, off, trials, rng))
        whole, single = whole + a, single + b
    return whole, single


@pytest.mark.slow
def test_no_order_of_outputs_beats_the_bound() -> None:
    assert check_fixed(DataProfile, 120, seed=1) == (0, 0)


@pytest.mark.slow
def test_no_order_of_outputs_beats_the_bound_on_many_mechanisms() -> None:
    assert check_fixed(DataProfile, 360, seed=5) == (0, 0)


# --- policies that see the data ------------------------------------------------------------


def check_adaptive(make: Bound, count: int, seed: int) -> tuple[int, int]:
    rng = np.random.default_rng(seed)
    whole = single = 0
    for i in range(count):
        prior, rank = any_settings(rng) if i % 2 else sharp_settings(rng)
        settings, size = rank.shape
        runs = np.zeros((settings, rank.size))
        runs_prime = runs.copy()
        pairs = []
        for h in range(settings):
            on, off = random_laws(rng, size)
            if i % 2 == 0 and (h > 0 or i % 4 == 0):
                # Runs that tell next to nothing: all that is left is what the policy does.
                off = on if h else 0.98 * on + 0.02 * off
            runs[h, rank[h]], runs_prime[h, rank[h]] = on, off
            pairs.append(pair_of_laws(on, off))
        bounds = [(1.0, 1.0), (0.9, 1.1), (0.75, 2.0), (0.3, 1.5), (0.05, 6.0)][i % 5]
        trials = LAWS[i % len(LAWS)]
        profile = make(envelope(pairs), trials, bounds)
        selection = adaptive_selection(runs, runs_prime, prior, trials, bounds, rng)
        a, b = violations(profile, iter([selection]))
        whole, single = whole + a, single + b
    return whole, single


@pytest.mark.slow
def test_no_policy_beats_the_bound() -> None:
    assert check_adaptive(DataProfile, 100, seed=2) == (0, 0)


@pytest.mark.slow
def test_no_policy_beats_the_bound_on_many_instances() -> None:
    assert check_adaptive(DataProfile, 360, seed=3) == (0, 0)


# --- sabotage ------------------------------------------------------------------------------


def _sabotaged_lines(edit: Callable) -> type:
    class Sabotaged(profile_bound.Lines):
        def at(self, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            reached, missed = self.trade_off(p)
            lo = np.maximum(self.c * p, 1.0 - self.big_c * (1.0 - p))
            hi = np.minimum(self.big_c * reached, 1.0 - self.c * missed)
            gain, cost = edit(self, p, reached, lo, hi)
            return gain, cost

    return Sabotaged


LINES = {
    "phi' arguments swapped": lambda s, p, g, lo, hi: (
        s.big_c * s.slope(1 - hi),
        s.c * s.slope(1 - lo),
    ),
    "G replaced by p": lambda s, p, g, lo, hi: (
        s.big_c * s.slope(1 - lo),
        s.c * s.slope(1 - np.minimum(s.big_c * p, 1 - s.c * (1 - p))),
    ),
    "factor C missing": lambda s, p, g, lo, hi: (s.slope(1 - lo), s.c * s.slope(1 - hi)),
    "factor c missing": lambda s, p, g, lo, hi: (s.big_c * s.slope(1 - lo), s.slope(1 - hi)),
    "p instead of lo": lambda s, p, g, lo, hi: (
        s.big_c * s.slope(1 - p),
        s.c * s.slope(1 - hi),
    ),
    "lo instead of hi": lambda s, p, g, lo, hi: (
        s.big_c * s.slope(1 - lo),
        s.c * s.slope(1 - np.maximum(s.c * g, 1 - s.big_c * (1 - g))),
    ),
    "G instead of hi": lambda s, p, g, lo, hi: (
        s.big_c * s.slope(1 - lo),
        s.c * s.slope(1 - g),
    ),
}
SEEN_WITHOUT_ADAPTIVITY = {"phi' arguments swapped", "G replaced by p"}


COARSE: Bound = functools.partial(DataProfile, step=0.02)  # fast, and as sound


def caught(make: Bound, fixed: bool) -> bool:
    check = check_fixed if fixed else check_adaptive
    return check(make, 40, seed=4) != (0, 0)


@pytest.mark.slow
def test_the_comparison_accepts_the_bound_itself() -> None:
    assert not caught(COARSE, fixed=True)
    assert not caught(COARSE, fixed=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", LINES)
def test_wrong_lines_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_bound, "Lines", _sabotaged_lines(LINES[name]))
    assert caught(COARSE, fixed=False)
    if name in SEEN_WITHOUT_ADAPTIVITY:
        assert caught(COARSE, fixed=True)


@pytest.mark.slow
def test_unedited_lines_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness for sabotage is not what is caught."""

    def faithful(s, p, g, lo, hi):  # type: ignore[no-untyped-def]
        return s.big_c * s.slope(1 - lo), s.c * s.slope(1 - hi)

    monkeypatch.setattr(profile_bound, "Lines", _sabotaged_lines(faithful))
    assert not caught(COARSE, fixed=False)


class WithoutInfiniteMass(DominatingPair):
    """Forgets the outputs that only D has when the profile is read."""

    def mixture(self, eps: FloatArray, kinks: FloatArray, weights: FloatArray) -> FloatArray:
        there = super().mixture(eps, kinks, weights)
        return np.maximum(there - self.infinite_mass * weights.sum(), 0.0)


@pytest.mark.slow
def test_a_missing_infinite_mass_is_caught() -> None:
    def forgetful(
        pair: DominatingPair, trials: TrialCount, bounds: tuple[float, float]
    ) -> DataProfile:
        broken = WithoutInfiniteMass(pair.losses, pair.mass, pair.infinite_mass, pair.null_mass)
        return COARSE(broken, trials, bounds)

    for check in (check_fixed, check_adaptive):
        assert check(forgetful, 60, seed=4)[0] > 0


@pytest.mark.slow
def test_the_wrong_direction_is_caught() -> None:
    def backwards(
        pair: DominatingPair, trials: TrialCount, bounds: tuple[float, float]
    ) -> DataProfile:
        return COARSE(pair.reversed(), trials, bounds)

    assert caught(backwards, fixed=True)
    assert caught(backwards, fixed=False)
