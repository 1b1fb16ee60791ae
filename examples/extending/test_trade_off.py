"""The trade-off curve of this folder: never below the truth, and close to it."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm
from trade_off import from_trade_off

import optuna_dp as odp
from optuna_dp.accounting.run_profile import pair_of

AT = np.array([0.0, 0.05, 0.2, 0.5, 0.9, 1.4, 2.0, 3.0, 5.0])
END = np.geomspace(1e-12, 0.5, 5000)
DENSE = np.unique(np.concatenate([[0.0], END, 1.0 - END, [1.0]]))
DELTA = 1e-5


def stick(on: np.ndarray, off: np.ndarray, epsilons: np.ndarray) -> np.ndarray:
    return np.maximum(on - np.exp(epsilons)[:, None] * off, 0.0).sum(axis=1)


def shortfall(make: Any, seed: int) -> float:
    """By how much the claim for a random pair of laws lies below the truth, at most."""
    rng = np.random.default_rng([33, seed])
    on, off = (rng.dirichlet(np.full(4, 0.7)) for _ in range(2))
    knots = np.concatenate([[0.0, -40.0, 40.0], np.log(on / off), np.log(on / off) + 1e-9])
    alphas = np.unique(np.append(rng.random(8) ** 3, 0.0))
    betas = (1.0 - stick(on, off, knots) - np.exp(knots) * alphas[:, None]).max(axis=1)
    pair = pair_of(make(alphas, betas.clip(0.0, 1.0 - alphas)))
    claims = [pair.delta(AT), pair.reversed().delta(AT)]
    return float(np.max(np.array([stick(on, off, AT), stick(off, on, AT)]) - np.array(claims)))


def joined_by_lines(alphas: np.ndarray, betas: np.ndarray) -> Any:
    """Wrong: the lines lie above the curve."""
    return from_trade_off(DENSE, np.interp(DENSE, np.append(alphas, 1.0), np.append(betas, 0.0)))


def read_one_way(alphas: np.ndarray, betas: np.ndarray) -> Any:
    """Wrong: the curve of one direction, taken for both."""
    event = from_trade_off(alphas, betas)
    return odp.from_profile(event.epsilons, event.deltas)


def test_it_is_never_below_the_truth() -> None:
    assert max(shortfall(from_trade_off, seed) for seed in range(30)) <= 1e-12


@pytest.mark.parametrize("wrong", [joined_by_lines, read_one_way])
def test_a_wrong_reading_is_caught(wrong: Any) -> None:
    assert max(shortfall(wrong, seed) for seed in range(8)) > 1e-6


def test_a_dense_curve_comes_within_a_hundredth_in_both_directions() -> None:
    gaussian = (DENSE, norm.cdf(norm.isf(DENSE) - 0.25))
    # A Gaussian on a sample: removing a record costs 16 times what adding it does.
    missed = 1.0 - 0.9 * DENSE - 0.1 * norm.sf(norm.isf(DENSE) - 1.0)
    step = odp.dp_sgd(noise_multiplier=1.0, sample_rate=0.1, steps=1)
    for curve, event in ((gaussian, odp.gaussian(4.0)), ((missed[::-1], DENSE[::-1]), step)):
        keep = np.append(np.diff(curve[0]) > 0.0, True)
        given = from_trade_off(*(side[keep].clip(0.0, 1.0) for side in curve))
        truth = odp.Guarantee(event).epsilon(DELTA)
        assert truth <= odp.Guarantee(given).epsilon(DELTA) <= 1.01 * truth


@pytest.mark.parametrize("betas", [[1.0, 1.1], [0.9, 0.95], [0.5, 0.9], [1.0, -0.1]])
def test_what_is_no_curve_is_refused(betas: list[float]) -> None:
    with pytest.raises(ValueError, match="betas fall"):
        from_trade_off([0.0, 0.2], betas)
