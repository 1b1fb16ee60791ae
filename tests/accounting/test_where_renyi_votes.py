"""Where a Renyi curve has a vote in a guarantee, and that little is given away elsewhere."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from dp_accounting import dp_event
from slow_cases import slow_if

import optuna_dp as odp
from optuna_dp import Logarithmic, NegativeBinomial
from optuna_dp.accounting import epsilon_methods, run_rdp
from optuna_dp.accounting.rdp_curves import DEFAULT_ORDERS

DELTAS = (1e-3, 1e-4, 1e-5, 1e-7, 1e-9, 1e-10)
TINY = 1e-13


def training(chance: random.Random) -> Any:
    return odp.dp_sgd(
        noise_multiplier=10 ** chance.uniform(-0.3, 0.8),
        sample_rate=10 ** chance.uniform(-4, 0),
        steps=int(10 ** chance.uniform(0, 4)),
    )


RUNS = {
    "gaussian": lambda chance: odp.gaussian(10 ** chance.uniform(-0.5, 1.7)),
    "pure": lambda chance: odp.pure_dp(10 ** chance.uniform(-1.7, 0.5)),
    "laplace": lambda chance: odp.laplace(10 ** chance.uniform(-0.5, 1.7)),
    "training": training,
    "training and score": lambda chance: odp.compose(training(chance), odp.gaussian(20.0)),
}


def of_the_geometric_law(kind: str, seed: int) -> odp.Guarantee:
    chance = random.Random(f"{kind}{seed}")
    return odp.selection_guarantee(
        RUNS[kind](chance),
        odp.Geometric(mean=10 ** chance.uniform(0.1, 5)),
        density_bounds=chance.choice([(1.0, 1.0), (0.75, 1.25), (0.5, 2.0), (0.1, 10.0)]),
        policy="data",
        neighboring_relation="add_or_remove_one"
        if kind == "laplace"  # dp-accounting judges no other
        else chance.choice(["add_or_remove_one", "replace_one"]),
    )


def check_that_the_curve_is_no_smaller(guarantee: odp.Guarantee) -> None:
    for delta in DELTAS:
        found = guarantee.by_method(delta)
        assert guarantee.epsilon(delta) <= found["rdp"] * (1.0 + 1e-6), (guarantee, delta)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gaussian", "pure", "laplace"])
@pytest.mark.parametrize("seed", slow_if(lambda seed: seed == 0, range(2)))
def test_for_the_geometric_law_a_curve_says_no_more(kind: str, seed: int) -> None:
    check_that_the_curve_is_no_smaller(of_the_geometric_law(kind, seed))


@pytest.mark.slow
@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.parametrize("seed", range(2, 5))
def test_for_the_geometric_law_a_curve_says_no_more_at_length(kind: str, seed: int) -> None:
    check_that_the_curve_is_no_smaller(of_the_geometric_law(kind, seed))


@pytest.fixture
def without_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in the accounting by Renyi curves: everything is free."""
    nothing = run_rdp.RdpMethod(np.array(DEFAULT_ORDERS), np.zeros(len(DEFAULT_ORDERS)))
    monkeypatch.setattr(run_rdp, "renyi_method", lambda event, relation: nothing)


@pytest.mark.usefixtures("without_cost")
def test_an_error_there_cannot_lower_the_epsilon_of_plain_selection() -> None:
    # A noise that no other test has: results are kept in caches.
    plain = odp.selection_guarantee(odp.gaussian(4.000127), odp.Geometric(10))
    assert plain.by_method(1e-5)["rdp"] == 0.0
    assert plain.epsilon(1e-5) == plain.by_method(1e-5)["data_profile"] > 1.0
    assert plain.delta(1.0) > 1e-5
    assert plain.method(1e-5) == "data_profile"


@pytest.mark.parametrize(
    "guarantee",
    [
        odp.selection_guarantee(odp.gaussian(1.0), NegativeBinomial(shape=-0.9, mean=1000)),
        odp.Guarantee(odp.rdp([2.0, 4.0, 16.0], [0.03, 0.06, 0.3])),
        odp.Guarantee(odp.worst_case(odp.zcdp(0.1), odp.zcdp(0.2))),
        odp.Guarantee(odp.compose(*[odp.worst_case(odp.gaussian(10.0), odp.pure_dp(0.1))] * 200)),
        odp.Guarantee(dp_event.SelfComposedDpEvent(odp.bounded_range(0.1), 200)),
    ],
)
def test_it_votes_where_it_says_more(guarantee: odp.Guarantee) -> None:
    found = guarantee.by_method(1e-5)
    assert guarantee.epsilon(1e-5) == min(found.values())
    assert "rdp" in epsilon_methods.epsilons_of(guarantee.event, "add_or_remove_one", 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("law", [odp.Geometric(1000), Logarithmic(mean=1000)])
def test_at_tiny_deltas_it_is_all_there_is(law: odp.TrialCount) -> None:
    guarantee = odp.selection_guarantee(odp.gaussian(2.0), law)
    found = guarantee.by_method(TINY)
    assert found["data_profile"] == math.inf
    assert guarantee.epsilon(TINY) == found["rdp"] < 20.0
    deltas = (TINY, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8)
    epsilons = [guarantee.epsilon(delta) for delta in deltas]
    assert epsilons == sorted(epsilons, reverse=True)
    for delta, epsilon in zip(deltas, epsilons, strict=True):
        assert guarantee.delta(epsilon) <= delta
