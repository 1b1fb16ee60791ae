from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr

from optuna_dp.errors import InvalidArgumentError
from optuna_dp.voting import Skellam, chance_of_good_choice

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "dp_hype"))

from simulated_votes import simulated_sums, success_rate

SUMS = np.array([40, 35, 20, 10, 3, 0])


def test_the_bound_is_near_theorem_v_1() -> None:
    expected = 1 - 4 * ndtr(-15 / (np.sqrt(2) * 6.0))  # for normal noise, and a gap of 15
    assert chance_of_good_choice(SUMS, [0, 1], 36.0) == pytest.approx(expected, abs=0.03)
    assert chance_of_good_choice(SUMS, range(6), 36.0) == 1.0
    assert chance_of_good_choice(SUMS, [5], 36.0) == 0.0


def test_the_bound_holds_and_is_not_idle() -> None:
    noise = Skellam(36, random_bytes=np.random.default_rng(3).bytes)
    noisy = SUMS + noise.draw(20_000 * 6).reshape(-1, 6)
    rate = float((noisy.argmax(axis=1) < 2).mean())
    bound = chance_of_good_choice(SUMS, [0, 1], 36.0)
    assert bound <= rate + 0.01
    assert bound > rate - 0.25


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


@pytest.mark.parametrize("good", [[], [9], [-1]])
def test_bad_good_sets_are_refused(good: list[int]) -> None:
    with pytest.raises(InvalidArgumentError, match="good"):
        chance_of_good_choice(SUMS, good, 1.0)
