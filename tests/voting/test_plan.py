from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from refusals import refuses
from slow_cases import slow_if

from optuna_dp.accounting import skellam
from optuna_dp.accounting.event_json import event_from_json, event_to_json
from optuna_dp.accounting.events import compose, gaussian
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.accounting.kinds.per_client import per_client
from optuna_dp.accounting.kinds.skellam import SkellamDpEvent
from optuna_dp.errors import UnsupportedEventError
from optuna_dp.voting import VotePlan

# The paper's noise for k = 5 at delta = 1e-5, and what it costs exactly.
PAPER = [(0.1, 103.0), (0.25, 46.0), (0.5, 24.0), (1.0, 12.5), (3.0, 4.7)]
EXACT = [0.0939, 0.2265, 0.4600, 0.9375, 2.757]


def plan(**changes: object) -> VotePlan:
    arguments: dict[str, object] = {
        "clients": 50,
        "candidates": 100,
        "votes": 5,
        "epsilon": 1.0,
        "delta": 1e-5,
    }
    return VotePlan.calibrated(**{**arguments, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(("sigma", "exact"), list(zip([s for _, s in PAPER], EXACT, strict=True)))
def test_the_papers_noise_costs_what_it_costs_exactly(sigma: float, exact: float) -> None:
    guarantee = Guarantee(SkellamDpEvent(sigma**2, 5, 100), "replace_one")
    assert guarantee.epsilon(1e-5) == pytest.approx(exact, rel=5e-3)
    assert skellam.vote_epsilon(sigma**2, 10, 1e-5) == pytest.approx(exact, rel=5e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "sigma"), PAPER)
def test_calibration_beats_the_paper_and_never_overshoots(epsilon: float, sigma: float) -> None:
    found = plan(epsilon=epsilon)
    assert found.variance < (0.95 * sigma) ** 2
    assert found.guarantee().epsilon(1e-5) <= epsilon
    # It is tight too: a little less noise would be too little.
    less = SkellamDpEvent(found.variance * (1 - 1e-4), 5, 100)
    assert Guarantee(less, "replace_one").epsilon(1e-5) > epsilon


@pytest.mark.parametrize("adjacency", ["replace_one", "null_client"])
@pytest.mark.parametrize("epsilon", slow_if(lambda epsilon: epsilon != 0.7, [1e-2, 0.7, 20.0]))
@pytest.mark.parametrize(("k", "p", "attempts"), [(1, 2, 1), (5, 8, 3), (50, 100, 1)])
def test_calibration_never_overshoots(
    adjacency: str, epsilon: float, k: int, p: int, attempts: int
) -> None:
    found = plan(adjacency=adjacency, epsilon=epsilon, votes=k, candidates=p, attempts=attempts)
    assert found.guarantee(attempts).epsilon(1e-5) <= epsilon


def test_dropouts_and_collusion_leave_enough_noise() -> None:
    whole, careful = plan(), plan(max_dropout=10, max_colluding=15)
    assert careful.honest == 25
    assert careful.survivors_needed == 40
    # The noise of the honest is as much as that of everybody where nobody is lost.
    assert careful.honest * careful.share_variance >= Fraction(whole.variance) * Fraction(0.9999)
    assert careful.share_variance > 1.99 * whole.share_variance
    assert Fraction(careful.variance) <= careful.honest * careful.share_variance


def test_sensitivity_of_replacing_is_what_brute_force_finds() -> None:
    for p in range(1, 7):
        for k in range(1, p + 1):
            ballots = [set(c) for c in itertools.combinations(range(p), k)]
            worst = max(len(a ^ b) for a in ballots for b in ballots)
            assert SkellamDpEvent(1.0, k, p).changes("replace_one") == worst
            assert SkellamDpEvent(1.0, k, p).changes("null_client") == k


@pytest.mark.parametrize(("votes", "candidates"), [(4, 4), (1, 1), (5, 4)])
@pytest.mark.parametrize("adjacency", ["replace_one", "null_client"])
def test_a_vote_that_says_nothing_is_refused(votes: int, candidates: int, adjacency: str) -> None:
    """It costs nothing, so a client would answer it any number of times."""
    with refuses("candidates" if candidates == 1 else "votes"):
        plan(votes=votes, candidates=candidates, adjacency=adjacency)
    assert plan(votes=4, candidates=5).guarantee().epsilon(1e-5) > 0.9


def test_adding_or_removing_is_refused_with_the_reason() -> None:
    vote = SkellamDpEvent(100.0, 5, 100)
    with refuses("adjacency") as refused:
        plan(adjacency="add_or_remove_one")
    assert "leaves" in refused.value.fix
    for event in (vote, compose(per_client(gaussian(1.0)), vote)):
        with pytest.raises(UnsupportedEventError) as caught:
            Guarantee(event)
        assert caught.value.event == vote
        assert "leaves" in caught.value.reason


def test_the_variance_alone_leaks_when_a_client_leaves() -> None:
    """Why: shares that leave change the variance, whatever it is. Attack by the sum of squares."""
    from scipy import stats

    for n, at_least in ((50, 0.5), (100, 0.2)):
        # Sums of 100 squares of N(0, n) against N(0, n - 1): epsilon at delta 1e-5.
        thresholds = stats.chi2.isf(np.logspace(-4.99, -0.5, 200), 100)
        p = stats.chi2.sf(thresholds, 100)
        q = stats.chi2.sf(thresholds * n / (n - 1), 100)
        assert np.max(np.log((p - 1e-5) / q)) > at_least


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        ({"votes": 101}, "votes"),
        ({"votes": 0}, "votes"),
        ({"clients": 0}, "clients"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"max_dropout": 30, "max_colluding": 20}, "max_dropout + max_colluding"),
        ({"max_dropout": -1}, "max_dropout"),
        ({"adjacency": "substitute"}, "adjacency"),
        ({"attempts": 0}, "attempts"),
        ({"epsilon": 1e-7}, "epsilon"),
    ],
)
def test_bad_plans_are_refused(changes: dict[str, object], argument: str) -> None:
    with refuses(argument):
        plan(**changes)


def test_plans_survive_json() -> None:
    found = plan(max_dropout=3, attempts=2)
    assert VotePlan.from_json(found.to_json()) == found
    for broken in ({}, {**found.to_json(), "votes": 101}, {**found.to_json(), "extra": 1}, None):
        with refuses("data"):
            VotePlan.from_json(broken)
    assert event_from_json(event_to_json(found.event)) == found.event
    guarantee = found.guarantee(2)
    assert Guarantee.from_json(guarantee.to_json()).epsilon(1e-5) == guarantee.epsilon(1e-5)


def test_attempts_compose() -> None:
    once, twice = (plan().guarantee(n).epsilon(1e-5) for n in (1, 2))
    assert once < twice < 2 * once
    # Two sums of ten changed entries are one sum of twenty.
    assert twice == pytest.approx(skellam.vote_epsilon(plan().variance, 20, 1e-5), rel=1e-4)
