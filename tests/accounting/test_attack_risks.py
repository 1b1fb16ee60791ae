"""What an attacker can tell of one record: no less than known attacks do, no more than a guess."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from dp_accounting import dp_event
from refusals import refuses

import optuna_dp as odp
from optuna_dp.attacks.attainable import attainable_pairs
from optuna_dp.attacks.selection_attack import AttackSearch
from optuna_dp.attacks.trade_off import attack_points

RATES = (0.0, 1e-4, 0.01, 0.05, 0.3, 0.5, 0.9, 1.0)
GAUSSIAN = odp.gaussian(noise_multiplier=1.0)
TRAINING = odp.compose(odp.dp_sgd(noise_multiplier=1.0, sample_rate=0.1, steps=20), GAUSSIAN)
LAW = odp.Geometric(mean=5)


@pytest.mark.parametrize(("relation", "mu"), [("add_or_remove_one", 1.0), ("replace_one", 2.0)])
def test_of_a_gaussian_it_is_the_exact_trade_off(relation: Any, mu: float) -> None:
    """Dong, Roth & Su: t = Phi(Phi^-1(p) + mu), and the advantage is 2 Phi(mu / 2) - 1."""
    guarantee, normal = odp.Guarantee(GAUSSIAN, relation), NormalDist()
    for rate in RATES[1:-1]:
        exact = normal.cdf(normal.inv_cdf(rate) + mu)
        assert exact <= guarantee.true_positive_rate(rate) <= exact + 2e-3
    exact = 2.0 * normal.cdf(mu / 2.0) - 1.0
    assert exact <= guarantee.advantage() <= exact + 1e-4


@pytest.mark.parametrize("delta", [0.0, 0.01])
def test_of_an_epsilon_and_a_delta_it_is_two_lines(delta: float) -> None:
    guarantee = odp.Guarantee(odp.approximate_dp(1.0, delta))
    for rate in RATES:
        lines = math.e * rate + delta, 1.0 - (1.0 - rate - delta) / math.e
        assert guarantee.true_positive_rate(rate) == pytest.approx(min(*lines, 1.0), abs=1e-9)
    exact = (math.e - 1.0 + 2.0 * delta) / (math.e + 1.0)
    assert guarantee.advantage() == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize(
    "guarantee",
    [
        odp.Guarantee(TRAINING),
        odp.Guarantee(odp.compose(GAUSSIAN, GAUSSIAN), "replace_one"),
        odp.selection_guarantee(GAUSSIAN, LAW),
        odp.selection_guarantee(odp.pure_dp(1.0), odp.Poisson(mean=4)),
        odp.selection_guarantee(GAUSSIAN, LAW, density_bounds=(0.5, 2.0)),
    ],
    ids=["training", "replaced", "selection", "pure", "density bounds"],
)
def test_no_attack_does_better_and_none_worse_than_a_guess(guarantee: odp.Guarantee) -> None:
    corners = attack_points(guarantee.judged_event, guarantee.neighboring_relation)
    assert corners[0][0] == 0.0
    assert corners[-1] == (1.0, 1.0)
    for false, true in corners:
        assert false - 1e-12 <= true <= guarantee.true_positive_rate(false)
        assert true - false <= guarantee.advantage()
    best = max(true - false for false, true in corners)
    assert best > 0.3 * guarantee.advantage()


def test_the_test_of_an_attack_is_what_its_delta_is_made_of() -> None:
    search = AttackSearch(attainable_pairs(GAUSSIAN)[0], LAW)
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        false, true = search.test(epsilon)
        assert 0.0 <= false < true <= 1.0
        assert true - math.exp(epsilon) * false == pytest.approx(search.delta(epsilon), abs=1e-12)


def test_where_nothing_is_known_an_attacker_may_know_everything() -> None:
    guarantee = odp.Guarantee(dp_event.NonPrivateDpEvent())
    assert guarantee.advantage() == 1.0
    assert guarantee.true_positive_rate(0.0) == 1.0


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan, "x", None, np.zeros(2)])
def test_a_rate_that_is_none_is_refused(rate: Any) -> None:
    with refuses("false_positive_rate"):
        odp.Guarantee(GAUSSIAN).true_positive_rate(rate)
