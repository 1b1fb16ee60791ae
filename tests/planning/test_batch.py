"""batch_choices: its noise costs what it says, its shares are those of the limit."""

from __future__ import annotations

import math
from typing import Any

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError

DIGITS: dict[str, Any] = {"records": 1348, "epochs": 10}


def mu_of(epsilon: float, delta: float) -> float:
    """Of the Gaussian mechanism, from its profile as it is in the papers."""

    def excess(mu: float) -> float:
        first = norm.cdf(mu / 2 - epsilon / mu)
        return float(first - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta)

    return float(brentq(excess, 1e-3, 50.0))


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.3, 3.0])
@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_a_training_with_that_noise_costs_the_epsilon(epsilon: float, relation: str) -> None:
    found = odp.batch_choices(epsilon=epsilon, neighboring_relation=relation, **DIGITS)
    for row in (found.rows[0], found.rows[-1], found.favored):
        event = odp.dp_sgd(
            noise_multiplier=row.noise_multiplier,
            sample_rate=row.batch_size / 1348,
            steps=row.steps,
        )
        cost = odp.Guarantee(event, relation).epsilon(1e-5)
        assert cost == pytest.approx(epsilon, rel=0.02)


@pytest.mark.parametrize("epsilon", [0.3, 3.0])
def test_shares_are_of_what_all_records_in_every_step_have(epsilon: float) -> None:
    limit = 1348 * mu_of(epsilon, 1e-5)
    found = odp.batch_choices(epsilon=epsilon, **DIGITS)
    for row in found.rows:
        signal = row.batch_size * math.sqrt(row.steps) / row.noise_multiplier
        assert row.share == pytest.approx(signal / limit, rel=1e-3)
    shares = [row.share for row in found.rows]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize(
    ("epsilon", "small", "large"), [(1, 0.93, 0.99), (3, 0.76, 0.96), (8, 0.53, 0.90)]
)
def test_of_the_digits_as_the_documentation_says(
    epsilon: float, small: float, large: float
) -> None:
    usual = {row.batch_size: row for row in odp.batch_choices(epsilon=epsilon, **DIGITS).rows}
    more = odp.batch_choices(epsilon=epsilon, work=4, **DIGITS).rows
    assert (usual[64].steps, round(usual[64].share, 2)) == (211, small)
    assert [(r.steps, round(r.share, 2)) for r in more if r.batch_size == 256] == [(211, large)]


@pytest.mark.parametrize("records", [30, 20_000])
@pytest.mark.parametrize("epochs", [1, 3, 200])
def test_the_favored_one_spends_what_is_given_and_no_more(records: int, epochs: float) -> None:
    found = odp.batch_choices(epsilon=2.0, records=records, epochs=epochs)
    assert 1 <= found.favored.batch_size <= records
    assert found.favored.steps >= 1
    # Half a record of rounding in every step.
    most = epochs + 0.5 * found.favored.steps / records
    assert found.favored.epochs <= max(most, 16 * found.favored.steps / records)
    assert found.favored.share <= found.doubled.share
    if found.favored.epochs < 0.9 * epochs and epochs * records > 2_400:
        assert 0.98 <= found.favored.share < 0.99 or found.favored.batch_size == 16


@pytest.mark.parametrize(
    ("epsilon", "epochs", "relation"),
    [
        (0.3, 20, "add_or_remove_one"),
        (1.0, 20, "add_or_remove_one"),
        (1.0, 5, "add_or_remove_one"),
        (0.6, 20, "replace_one"),
    ],
)
def test_steps_are_as_many_as_the_rate_of_sgd_needs(
    epsilon: float, epochs: float, relation: str
) -> None:
    """With 150 steps at epsilon 1 a network on the flights lost four points to a capped rate."""
    arguments: dict[str, Any] = {"epsilon": epsilon, "neighboring_relation": relation}
    found = odp.batch_choices(records=60_000, epochs=epochs, **arguments).favored
    public = {"noise_multiplier": found.noise_multiplier, "steps": found.steps}
    rate = odp.learning_rate(batch_size=found.batch_size, noise_per_weight=0.3, **public)
    few = odp.batch_choices(records=60_000, epochs=epochs, **arguments).rows
    at_150 = min(few, key=lambda row: abs(row.steps - 150))
    if rate == 5.0:  # capped all the same: more steps would lose signal
        assert found.share < 0.97 * at_150.share
    assert found.share > 0.93 * min(at_150.share, 0.98)
    assert found.steps >= 150
    # No more than that: half the steps would be too few, or 150 are enough.
    half = odp.learning_rate(
        noise_multiplier=found.noise_multiplier / 2**0.5,
        steps=max(1, found.steps // 2),
        batch_size=found.batch_size,
    )
    assert found.steps == 150 or half == 5.0


def test_beyond_enough_no_more_computing_is_advised() -> None:
    once, much = (odp.batch_choices(epsilon=1.0, work=work, **DIGITS) for work in (4, 400))
    assert 0.98 <= once.favored.share < 0.985
    assert much.favored.batch_size == pytest.approx(once.favored.batch_size, rel=0.02)
    assert once.doubled == once.favored
    assert once.favored.epochs < 30


def test_it_prints_as_a_table() -> None:
    lines = str(odp.batch_choices(epsilon=3.0, **DIGITS)).splitlines()
    assert lines[0].split() == ["batch", "steps", "noise", "signal", "epochs"]
    assert [line.split()[0] for line in lines[1:4]] == ["16", "32", "64"]
    assert lines[-2].endswith("favored")
    assert lines[-1].endswith("with twice the computing")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", 0.0),
        ("delta", 1.0),
        ("records", 0),
        ("records", 1.5),
        ("epochs", 0.0),
        ("epochs", 1e-6),
        ("work", -1.0),
        ("neighboring_relation", "swap"),
    ],
)
def test_what_is_not_allowed_is_refused_by_name(name: str, value: Any) -> None:
    given = {"epsilon": 1.0, "records": 100, "epochs": 1.0, name: value}
    with pytest.raises(InvalidArgumentError) as refused:
        odp.batch_choices(**given)
    assert refused.value.argument == name


@pytest.mark.parametrize(
    ("given", "share", "larger"),
    [
        ({"epsilon": 1.0, "batch_size": 64}, None, None),
        ({"epsilon": 3.0, "batch_size": 64}, 76, 360),
        ({"epsilon": 8.0, "batch_size": 64}, 53, 360),
        ({"epsilon": 8.0, "batch_size": 1348}, None, None),
        ({"epsilon": 3.0}, 79, 360),
        ({"epsilon": 3.0, "work": 4}, None, None),
        ({"epsilon": 3.0, "batch_size": 64, "neighboring_relation": "replace_one"}, None, None),
    ],
)
def test_a_plan_says_what_a_larger_batch_would_gain_where_its_own_loses_much(
    given: dict[str, Any], share: int | None, larger: int | None
) -> None:
    plan = odp.plan_budget(pilots=0, **DIGITS, **given)
    for text in (repr(plan), plan._repr_html_()):
        assert (share is not None and f"has {share}% of the signal" in text) == bool(larger)
        assert (f"{larger} for 150 steps has" in text) == bool(larger)


def test_pilots_do_not_change_what_is_said_of_the_batch() -> None:
    alone, tuned = (
        repr(odp.plan_budget(epsilon=3.0, batch_size=64, **DIGITS, **searched)).split(". ")
        for searched in ({"pilots": 0}, {"candidates": 4})
    )
    assert alone[1:] == tuned[1:]
    assert len(alone) > 1


def test_a_plan_that_does_not_know_its_batch_says_nothing() -> None:
    plan = odp.plan_budget(epsilon=3.0, run=lambda s, n: odp.gaussian(s / n**0.5), steps=10)
    assert "signal" not in repr(plan)
