"""Pilots and a selection compose (docs/explanation/pilots.md)."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld

import optuna_dp as odp
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.accounting.pilots import pilots_guarantee
from optuna_dp.accounting.run_profile import pair_of
from optuna_dp.errors import InvalidArgumentError, UnsupportedEventError

RATE, STEPS, DELTA = 256 / 60000, 2344, 1e-5
LAW = odp.Geometric(mean=10)

# The design notes' table: base noise, noise ratio, pilots, epsilon. Made on a grid of 1e-3.
TABLE = [
    (0.71, 2, 10, 4.642),
    (0.71, 4, 10, 4.094),
    (0.71, 4, 20, 4.244),
    (1.0, 2, 10, 2.384),
    (1.0, 4, 10, 1.857),
    (1.0, 4, 20, 2.044),
]


def sgd(noise: float) -> Any:
    return odp.dp_sgd(noise_multiplier=noise, sample_rate=RATE, steps=STEPS)


@functools.lru_cache(maxsize=2)
def selection_of(noise: float) -> DominatingPair:
    event = odp.selection_guarantee(sgd(noise), LAW).event
    return pair_of(event)


def by_dp_accounting_alone(noise: float, ratio: float, pilots: int, interval: float) -> float:
    """The composition without our composing: dp-accounting's Gaussian and its connect-the-dots.

    As the design notes have it: the larger of the two directions as one symmetric profile,
    extended to negative epsilons by delta(-e) = 1 - exp(-e) (1 - delta(e)).
    """
    count = int(12.0 / interval)
    grid = np.arange(count + 1) * interval
    selection = selection_of(noise)
    above = np.maximum(selection.delta(grid), selection.reversed().delta(grid))
    below = 1.0 - np.exp(-grid[:0:-1]) * (1.0 - above[:0:-1])
    deltas = np.concatenate([below, above])
    deltas = np.maximum.accumulate(deltas[::-1])[::-1]
    dots = pld_pmf.create_pmf_pessimistic_connect_dots(
        interval, np.arange(-count, count + 1), deltas
    )
    step = pld.from_gaussian_mechanism(
        noise * ratio, sampling_prob=RATE, value_discretization_interval=interval
    )
    both = step.self_compose(STEPS * pilots).compose(pld.PrivacyLossDistribution(dots))
    return float(both.get_epsilon_for_delta(DELTA))


@pytest.mark.parametrize(("noise", "ratio", "pilots", "printed"), TABLE[4:])
def test_the_table_is_reproduced_on_its_own_grid(
    noise: float, ratio: float, pilots: int, printed: float
) -> None:
    assert by_dp_accounting_alone(noise, ratio, pilots, 1e-3) == pytest.approx(printed, rel=0.01)


def test_the_guarantee_is_the_tables_number_on_a_fine_grid() -> None:
    """A grid of 1e-3 makes 2344 steps dearer than they are: 1.857 becomes 1.829."""
    ours = pilots_guarantee(sgd(4.0), 10, sgd(1.0), LAW).epsilon(DELTA)
    fine = by_dp_accounting_alone(1.0, 4, 10, 1e-4)
    assert ours == pytest.approx(fine, rel=2e-3)
    assert 1.80 < ours <= 1.857 * 1.01


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "ratio", "pilots", "printed"), TABLE)
def test_the_whole_table(noise: float, ratio: float, pilots: int, printed: float) -> None:
    coarse = by_dp_accounting_alone(noise, ratio, pilots, 1e-3)
    assert coarse == pytest.approx(printed, rel=0.01)
    ours = pilots_guarantee(sgd(noise * ratio), pilots, sgd(noise), LAW).epsilon(DELTA)
    assert ours == pytest.approx(by_dp_accounting_alone(noise, ratio, pilots, 1e-4), rel=2e-3)
    assert 0.97 * printed < ours < 1.01 * printed


def test_pilots_and_selection_compose_like_any_two_things() -> None:
    pilot, run = odp.gaussian(16.0), odp.gaussian(4.0)
    whole = pilots_guarantee(pilot, 4, run, LAW)
    # Four Gaussians of noise 16 are one of noise 8.
    other = odp.selection_guarantee(run, LAW).compose(odp.gaussian(8.0))
    assert whole.epsilon(DELTA) == pytest.approx(other.epsilon(DELTA), rel=1e-3)
    alone = odp.selection_guarantee(run, LAW).epsilon(DELTA)
    pilots = Guarantee(odp.gaussian(8.0)).epsilon(DELTA / 10)
    spent = odp.selection_guarantee(run, LAW).epsilon(DELTA * 0.9)
    assert alone < whole.epsilon(DELTA) < spent + pilots


def test_pure_parts_add_up() -> None:
    both = pilots_guarantee(odp.pure_dp(0.1), 5, odp.pure_dp(0.5), LAW)
    assert both.by_method(DELTA)["pure"] == pytest.approx(5 * 0.1 + 3 * 0.5)
    assert both.epsilon(DELTA) <= 2.0


def test_what_has_only_a_renyi_curve_falls_back() -> None:
    curve = odp.rdp([2.0, 4.0, 8.0, 16.0, 32.0], [0.01, 0.02, 0.04, 0.08, 0.16])
    value = pilots_guarantee(curve, 3, odp.gaussian(4.0), LAW).epsilon(DELTA)
    assert odp.selection_guarantee(odp.gaussian(4.0), LAW).epsilon(DELTA) < value < math.inf


def test_one_relation_for_the_whole_tree() -> None:
    args = (odp.gaussian(16.0), 3, odp.gaussian(4.0), LAW)
    add = pilots_guarantee(*args).epsilon(DELTA)
    replace = pilots_guarantee(*args, neighboring_relation="replace_one").epsilon(DELTA)
    assert replace > add
    doubled = (odp.gaussian(8.0), 3, odp.gaussian(2.0), LAW)
    assert replace == pytest.approx(pilots_guarantee(*doubled).epsilon(DELTA), rel=1e-3)


def test_density_bounds_around_the_frozen_prior_are_charged_on_top() -> None:
    args = (odp.gaussian(16.0), 5, odp.gaussian(4.0), odp.Geometric(mean=5))
    plain = pilots_guarantee(*args).epsilon(DELTA)
    bounded = pilots_guarantee(*args, density_bounds=(0.9, 1.25))
    assert bounded.epsilon(DELTA) > plain
    assert bounded.event.events[-1].density_bounds == (0.9, 1.25)


def test_what_cannot_be_judged_is_refused() -> None:
    from dp_accounting import dp_event

    with pytest.raises(UnsupportedEventError):
        pilots_guarantee(dp_event.UnsupportedDpEvent(), 3, odp.gaussian(4.0), LAW)
    with pytest.raises(InvalidArgumentError, match="pilots"):
        pilots_guarantee(odp.gaussian(4.0), 0, odp.gaussian(4.0), LAW)
