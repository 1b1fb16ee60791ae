"""A selection among other releases on the same data: sound, tight where the truth is known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from refusals import refuses
from scipy.stats import norm

import optuna_dp as odp
from optuna_dp.accounting.run_profile import pair_of
from optuna_dp.attacks.attainable import attainable_pairs
from optuna_dp.attacks.selection_attack import AttackSearch
from optuna_dp.errors import InvalidArgumentError, UnsupportedEventError

DELTA = 1e-5


def gaussian_delta(distance: float, epsilon: float) -> float:
    """The profile of one Gaussian release: Balle & Wang, arXiv 1805.06530v2, Theorem 5."""
    a, b = distance / 2.0, epsilon / distance
    return float(norm.cdf(a - b) - math.exp(epsilon) * norm.cdf(-a - b))


# -- known answers -------------------------------------------------------------------------------


@pytest.mark.parametrize("noises", [(2.0, 3.0), (1.0, 1.0, 1.0), (0.8, 20.0)])
def test_gaussians_compose_to_a_gaussian(noises: tuple[float, ...]) -> None:
    whole = odp.Guarantee(odp.gaussian(noises[0])).compose(*(odp.gaussian(s) for s in noises[1:]))
    distance = math.sqrt(sum(1.0 / s**2 for s in noises))
    for epsilon in (0.5, 1.0, 3.0):
        truth = gaussian_delta(distance, epsilon)
        assert truth <= whole.delta(epsilon) <= 1.01 * truth + 1e-12


@pytest.mark.slow
def test_one_run_for_certain_composes_like_a_run() -> None:
    once = odp.selection_guarantee(odp.gaussian(2.0), odp.Geometric(1)).compose(odp.gaussian(3.0))
    distance = math.hypot(1.0 / 2.0, 1.0 / 3.0)
    truth = gaussian_delta(distance, 1.5)
    assert truth <= once.delta(1.5) <= 1.02 * truth


@pytest.mark.slow
def test_composing_with_nothing_changes_nothing() -> None:
    selection = odp.selection_guarantee(odp.gaussian(4.0), odp.Geometric(10))
    whole = selection.compose(odp.pure_dp(0.0))
    assert whole.epsilon(DELTA) == pytest.approx(selection.epsilon(DELTA), rel=1e-3)
    assert whole.epsilon(DELTA) >= selection.epsilon(DELTA) * (1.0 - 1e-6)


@pytest.mark.slow
def test_guarantees_and_events_compose_alike() -> None:
    selection = odp.selection_guarantee(odp.gaussian(4.0), odp.Geometric(10))
    by_event = selection.compose(odp.gaussian(5.0))
    by_guarantee = selection.compose(odp.Guarantee(odp.gaussian(5.0)))
    assert by_event == by_guarantee
    in_turn = selection.compose(odp.gaussian(5.0)).compose(odp.gaussian(6.0))
    at_once = selection.compose(odp.gaussian(5.0), odp.gaussian(6.0))
    assert in_turn.epsilon(DELTA) == pytest.approx(at_once.epsilon(DELTA), rel=1e-9)


# -- soundness against a hand-made convolution ---------------------------------------------------


def winner(on: np.ndarray, trials: odp.TrialCount) -> np.ndarray:
    """The exact law of the best of T draws (outputs listed best first), nothing for T = 0 last."""
    above = np.concatenate([[0.0], np.cumsum(on)])
    survive = np.array([trials.pgf(float(1.0 - min(a, 1.0))) for a in above])
    return np.append(survive[:-1] - survive[1:], trials.pmf(0))


def hockey_stick(on: np.ndarray, off: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(on - math.exp(epsilon) * off, 0.0).sum())


@pytest.mark.promise("bounds")
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_composition_dominates_explicit_mechanisms(seed: int) -> None:
    """Randomised response under every order of outputs, then a second randomised response."""
    rng = np.random.default_rng(seed)
    first, second = float(rng.uniform(0.2, 1.5)), float(rng.uniform(0.2, 1.5))
    trials = [odp.Geometric(5), odp.Poisson(3), odp.Binomial(6, 2), odp.Logarithmic(6)][seed % 4]
    selection = odp.selection_guarantee(odp.pure_dp(first), trials)
    whole = selection.compose(odp.pure_dp(second))

    def response(epsilon: float) -> np.ndarray:
        high = 1.0 / (1.0 + math.exp(-epsilon))
        return np.array([high, 1.0 - high])

    b = response(second)
    for on, off in (
        (response(first), response(first)[::-1]),
        (response(first)[::-1], response(first)),
    ):
        a, a_prime = winner(on, trials), winner(off, trials)
        for one, one_prime in ((a, a_prime), (a_prime, a)):
            p = np.outer(one, b).ravel()
            q = np.outer(one_prime, b[::-1]).ravel()
            for epsilon in (0.0, 0.5, 1.0, 2.0):
                truth = hockey_stick(p, q, epsilon)
                assert whole.delta(epsilon) >= truth * (1.0 - 1e-9)
                assert selection.delta(epsilon) >= hockey_stick(one, one_prime, epsilon) * (
                    1 - 1e-9
                )


def test_the_test_above_would_see_a_composition_that_adds_epsilons_wrongly() -> None:
    """Sabotage: the larger of the parts' profiles instead of their convolution."""
    trials = odp.Geometric(1)
    selection = odp.selection_guarantee(odp.pure_dp(1.0), trials)
    other = odp.Guarantee(odp.pure_dp(1.0))
    p = 1.0 / (1.0 + math.exp(-1.0))
    a, a_prime = winner(np.array([1 - p, p]), trials), winner(np.array([p, 1 - p]), trials)
    truth = max(
        hockey_stick(np.outer(x, [p, 1 - p]).ravel(), np.outer(y, [1 - p, p]).ravel(), epsilon)
        - max(selection.delta(epsilon), other.delta(epsilon))
        for x, y in ((a, a_prime), (a_prime, a))
        for epsilon in (0.5, 1.0, 2.0)
    )
    assert truth > 0.0


# -- between its parts and their sum -------------------------------------------------------------

PARTS: list[tuple[Any, Any]] = [
    (odp.selection_guarantee(odp.gaussian(4.0), odp.Geometric(10)), odp.gaussian(4.0)),
    (odp.selection_guarantee(odp.pure_dp(0.3), odp.Poisson(4)), odp.laplace(2.0)),
    (
        odp.selection_guarantee(odp.gaussian(4.0), odp.Geometric(3), density_bounds=(0.8, 1.5)),
        odp.gaussian(6.0),
    ),
    (
        odp.selection_guarantee(odp.gaussian(4.0), odp.Geometric(10)),
        odp.selection_guarantee(odp.gaussian(6.0), odp.Logarithmic(5)).event,
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("selection", "other"), PARTS)
def test_between_each_part_and_the_sum(selection: odp.Guarantee, other: Any) -> None:
    whole, alone = selection.compose(other), odp.Guarantee(other)
    found = whole.epsilon(DELTA)
    # Each part's bound may be a little loose, and the whole a little tighter, by their grids.
    assert found >= max(selection.epsilon(DELTA), alone.epsilon(DELTA)) * (1.0 - 1e-3)
    # A pair lies on a grid, which shows where a profile falls steeply.
    total = selection.epsilon(DELTA / 2.0) + alone.epsilon(DELTA / 2.0)
    assert found <= total * (1.0 + 2e-3)
    methods = whole.by_method(DELTA)
    assert found == min(methods.values())
    assert found <= methods["rdp"]


@pytest.mark.slow
def test_two_selections_cost_more_than_one() -> None:
    one = odp.selection_guarantee(odp.gaussian(4.0), odp.Geometric(10))
    two = one.compose(one)
    assert one.epsilon(DELTA) < two.epsilon(DELTA) < 2.0 * one.epsilon(DELTA)


@pytest.mark.slow
def test_worst_case_of_a_selection_and_a_release() -> None:
    selection = odp.selection_guarantee(odp.gaussian(4.0), odp.Geometric(10))
    other = odp.gaussian(2.0)
    worst = odp.Guarantee(odp.worst_case(selection.event, other))
    for delta in (1e-2, 1e-5, 1e-8):
        parts = max(selection.epsilon(delta), odp.Guarantee(other).epsilon(delta))
        assert worst.epsilon(delta) == pytest.approx(parts, rel=5e-3)
        assert worst.epsilon(delta) >= parts * (1.0 - 1e-3)


@pytest.mark.slow
def test_selection_among_selections() -> None:
    """A run may itself be a selection (an inner search whose winner is one candidate)."""
    inner = odp.selection_guarantee(odp.gaussian(8.0), odp.Geometric(3))
    outer = odp.selection_guarantee(inner.event, odp.Geometric(3))
    assert inner.epsilon(DELTA) < outer.epsilon(DELTA) < 3.0 * inner.epsilon(DELTA)


# -- the pair of a selection ---------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trials", "density_bounds"),
    [
        (odp.Geometric(5), (1.0, 1.0)),
        (odp.Binomial(9, 3), (1.0, 1.0)),
        pytest.param(odp.Geometric(5), (0.8, 1.5), marks=pytest.mark.slow),
    ],
)
def test_the_pair_has_the_profile_of_the_bound(
    trials: odp.TrialCount, density_bounds: tuple[float, float]
) -> None:
    guarantee = odp.selection_guarantee(odp.gaussian(4.0), trials, density_bounds=density_bounds)
    pair = pair_of(guarantee.event, "add_or_remove_one")
    sides = (pair, pair.reversed())
    for delta in (1e-3, 1e-5, 1e-8):
        found = max(side.epsilon(delta) for side in sides)
        assert found == pytest.approx(guarantee.epsilon(delta), rel=2e-3)
    # Near epsilon 0 as well, up to the chords between the points that it is made of.
    assert max(float(side.delta(0.1)) for side in sides) <= guarantee.delta(0.1) * (1.0 + 1e-6)


@pytest.mark.slow
def test_the_pair_stays_above_the_attack() -> None:
    """Near epsilon 0 above all, where it is tighter than the bound it is made from."""
    run, trials = odp.gaussian(4.0), odp.Geometric(5)
    pair = pair_of(odp.selection_guarantee(run, trials).event, "add_or_remove_one")
    (attainable,) = attainable_pairs(run)
    epsilons = np.array([0.0, 0.05, 0.1, 0.3, 0.7, 1.2, 1.7])
    for side, one_way in ((pair, attainable), (pair.reversed(), attainable.reversed())):
        search = AttackSearch(one_way, trials)
        attack = np.array([search.delta(float(epsilon)) for epsilon in epsilons])
        assert np.all(attack <= np.asarray(side.delta(epsilons)) + 1e-12)


def test_the_pair_of_a_free_selection_is_free() -> None:
    event = odp.selection_guarantee(odp.pure_dp(0.0), odp.Geometric(5)).event
    pair = pair_of(event, "add_or_remove_one")
    assert float(pair.delta(0.0)) <= 1e-9
    assert float(pair_of(event).delta(0.0)) <= 1e-9


# -- refusals ------------------------------------------------------------------------------------


def test_relations_must_agree() -> None:
    selection = odp.selection_guarantee(odp.gaussian(4.0), odp.Geometric(10))
    with refuses("other"):
        selection.compose(odp.Guarantee(odp.gaussian(4.0), "replace_one"))


def test_what_is_composed_is_checked_first() -> None:
    from dp_accounting import dp_event

    selection = odp.selection_guarantee(odp.gaussian(4.0), odp.Geometric(10))
    with pytest.raises(UnsupportedEventError):
        selection.compose(dp_event.UnsupportedDpEvent())
    with pytest.raises(InvalidArgumentError):
        selection.compose(3.0)


def test_a_whole_with_a_part_that_protects_nothing_protects_nothing() -> None:
    from dp_accounting import dp_event

    selection = odp.selection_guarantee(odp.gaussian(4.0), odp.Geometric(10))
    assert selection.compose(dp_event.NonPrivateDpEvent()).epsilon(DELTA) == math.inf
