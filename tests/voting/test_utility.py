from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from refusals import refuses
from scipy.special import ndtr
from scipy.stats import skellam
from slow_cases import slow_if

from optuna_dp.voting import (
    VotePlan,
    chance_of_gap,
    visible_gap,
)

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "dp_hype"))

from simulated_votes import simulated_sums, success_rate

SUMS = np.array([40, 35, 20, 10, 3, 0])


def union_bound(sums: np.ndarray, good: int, variance: float) -> float:
    """Theorem V.1 of arXiv 2510.04902 for Skellam noise, by scipy: the first ``good`` are good.

    Each bad candidate beats the best good one with probability at most P[Z >= gap], where Z is the
    difference of two noises.
    """
    bad = sums[good:]
    if bad.size == 0:
        return 1.0
    gap = int(sums[:good].min() - bad.max())
    return max(1.0 - bad.size * float(skellam.sf(gap - 1, variance, variance)), 0.0)


def test_the_union_bound_is_near_theorem_v_1() -> None:
    expected = 1 - 4 * ndtr(-15 / (np.sqrt(2) * 6.0))  # for normal noise, and a gap of 15
    assert union_bound(SUMS, 2, 36.0) == pytest.approx(expected, abs=0.03)


def test_simulated_votes_follow_the_papers_model() -> None:
    rng = np.random.default_rng(0)
    sums = simulated_sums(
        clients=40, candidates=20, good=4, loss_sd=0.0, votes=(1, 4, 20), repetitions=50, rng=rng
    )
    for k, found in sums.items():
        assert found.shape == (50, 20)
        assert (found.sum(axis=1) == 40 * k).all()
    assert (sums[4][:, :4] == 40).all()
    assert sums[1][:, :4].std() > 1.0  # ties fall at random
    assert success_rate(sums[4], 4, 0.0, rng)[0] == 1.0
    rate, error = success_rate(sums[20], 4, 5.0, rng)  # a vote for all is a guess
    assert rate == pytest.approx(0.2, abs=4 * max(error, 0.05))


def _shares(sums: np.ndarray, good: int, variance: float, rng: np.random.Generator) -> float:
    """How often a good candidate, one of the first, is ahead of all others; ties do not count."""
    size = (40_000, sums.size)
    noise = rng.poisson(variance / 2, size) - rng.poisson(variance / 2, size)
    noisy = sums + noise
    ahead = noisy[:, :good].max(axis=1) > noisy[:, good:].max(axis=1, initial=-(1 << 40))
    return float(ahead.mean())


@pytest.mark.parametrize(
    ("gap", "good", "bad", "variance"),
    slow_if(
        lambda gap, good, bad, variance: variance > 100.0,
        [
            (12, 1, 30, 9.0),
            (0, 3, 5, 0.5),
            (40, 1, 99, 140.0),
            (25, 8, 92, 140.0),
            (-3, 2, 4, 5.0),
        ],
    ),
)
def test_the_chance_of_a_gap_is_that_of_its_worst_votes(
    gap: int, good: int, bad: int, variance: float
) -> None:
    """By simulation, and never below Theorem V.1's union bound; other votes do no worse."""
    rng = np.random.default_rng(gap + 10)
    chance = chance_of_gap(gap, good=good, bad=bad, variance=variance)
    worst = np.array([gap] * good + [0] * bad)
    error = 6 * np.sqrt(chance * (1 - chance) / 40_000) + 1e-4  # fails once in a billion
    assert _shares(worst, good, variance, rng) == pytest.approx(chance, abs=error)
    assert union_bound(worst, good, variance) <= chance + 1e-12
    others = worst + np.concatenate([rng.integers(0, 20, good), rng.integers(-20, 1, bad)])
    others[good] = 0
    assert _shares(others, good, variance, rng) >= chance - error


@pytest.mark.slow
def test_the_visible_gap_is_the_smallest_one() -> None:
    for chance in (0.2, 0.9, 0.999):
        for good, bad, variance in ((1, 99, 140.0), (4, 9, 2.0), (1, 1, 1e5)):
            gap = visible_gap(chance, good=good, bad=bad, variance=variance)
            enough = chance_of_gap(gap, good=good, bad=bad, variance=variance)
            less = chance_of_gap(gap - 1, good=good, bad=bad, variance=variance)
            assert enough >= chance
            assert less < chance or gap == 0
    assert visible_gap(0.9, good=3, bad=0, variance=5.0) == 0
    for wrong in (0.0, 1.0):
        with refuses("chance"):
            visible_gap(wrong, good=1, bad=1, variance=1.0)


def test_a_plan_says_what_its_clients_can_see() -> None:
    def plan(clients: int, **changes: object) -> VotePlan:
        arguments = {"candidates": 100, "votes": 5, "epsilon": 1.0, "delta": 1e-5}
        return VotePlan.calibrated(clients=clients, **{**arguments, **changes})  # type: ignore[arg-type]

    few, many = plan(50), plan(200)
    # The noise is the same, so the lead in votes is too, and its part of the clients is not.
    assert few.visible_gap(0.9) == pytest.approx(many.visible_gap(0.9), abs=1)
    assert few.chance(50) < 0.95 < 0.999 < many.chance(100)
    assert plan(20).visible_gap(0.9) > 20  # twenty clients cannot, if they all agree
    assert few.chance(30, good=4) > few.chance(30)
    # Everybody may be there: then the noise of those who might be lost is in the sum too.
    careful = plan(50, max_dropout=10, max_colluding=15)
    assert careful.variance_of_sum == pytest.approx(2 * careful.variance, rel=1e-6)
    assert careful.visible_gap(0.9) > few.visible_gap(0.9)
    for good in (0, 101):
        with refuses("good"):
            few.chance(10, good=good)


@pytest.mark.parametrize(
    ("clients", "good", "rate"), [(50, 1, 0.47), (50, 4, 0.82), (200, 1, 1.0), (200, 8, 1.0)]
)
def test_the_pages_numbers_of_clients_that_suffice(clients: int, good: int, rate: float) -> None:
    """The how-to's table; a part of it, with fewer votes."""
    rng = np.random.default_rng(1)
    plan = VotePlan.calibrated(clients=clients, candidates=100, votes=5, epsilon=1.0, delta=1e-5)
    sums = simulated_sums(
        clients=clients,
        candidates=100,
        good=good,
        loss_sd=0.5,
        votes=[5],
        repetitions=400,
        rng=rng,
    )[5]
    found, _ = success_rate(sums, good, plan.variance**0.5, rng)
    assert found == pytest.approx(rate, abs=0.1)
    page = Path(__file__).parents[2] / "docs" / "how-to" / "federated.md"
    table = page.read_text().split("| clients | 1 good | 2 | 4 | 8 |")[1].splitlines()
    row = next(line for line in table if line.startswith(f"| {clients} |"))
    assert row.split(" | ")[{1: 1, 4: 3, 8: 4}[good]].rstrip(" |") == f"{rate:.2f}"
