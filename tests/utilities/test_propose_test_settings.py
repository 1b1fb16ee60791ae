"""Settings of the doubling loop: stages, what is refused, and records of them that are damaged."""

from __future__ import annotations

from typing import Any

import pytest
from optuna.distributions import FloatDistribution
from optuna.samplers import RandomSampler

import optuna_dp as odp
from optuna_dp.errors import (
    InvalidArgumentError,
    PlanError,
)
from optuna_dp.utilities import DoublingPlan
from optuna_dp.utilities.choice import Choice
from optuna_dp.utilities.settings import CandidateSource, UtilitySettings
from utilities.utility_support import LOOP

PLANE = {"x": FloatDistribution(0.0, 1.0), "y": FloatDistribution(0.0, 1.0)}


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"granularity": 0.0}, "granularity"),
        ({"granularity": 1.0}, "granularity"),
        ({"lower_bound": 1.0}, "lower_bound"),
        ({"lower_bound": -0.1}, "lower_bound"),
        ({"variant": "free"}, "variant"),
        ({"max_iterations": 0}, "max_iterations"),
        ({"batch_size": 0}, "batch_size"),
        ({"candidates": 5}, "no candidates"),
        ({"search_space": None}, "needs search_space"),
        ({"proposer": "tpe"}, "proposer"),
        ({"proposer": None}, "batch_size"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], match: str) -> None:
    given = {"search_space": PLANE, **LOOP, "batch_size": 4, "proposer": RandomSampler()}
    with pytest.raises(InvalidArgumentError, match=match):
        odp.ProposeTestSampler(**{**given, **arguments})


def test_stages() -> None:
    settings = UtilitySettings(DoublingPlan(1.0, 0.5), 2, CandidateSource("proposed", 4), "X")
    assert settings.stages == 3
    assert [settings.first(s) for s in range(4)] == [0, 4, 9, 14]
    assert [settings.stage_of(n) for n in range(15)] == [0] * 4 + [1] * 5 + [2] * 5 + [3]
    assert UtilitySettings.from_json(settings.to_json()) == settings


@pytest.mark.parametrize("damage", [{"kind": "x"}, {"count": 0}, {}])
def test_corrupted_settings(damage: dict[str, Any]) -> None:
    data = UtilitySettings(DoublingPlan(1.0), 2, CandidateSource("list", 4)).to_json()
    data["candidates"] = {**data["candidates"], **damage} if damage else None
    with pytest.raises(PlanError, match="corrupted"):
        UtilitySettings.from_json(data)


@pytest.mark.parametrize(
    "damage",
    [
        {"stage": -1},
        {"answers": [0, -1]},
        {"chosen": -2},
        {"answers": [True]},
        {"answers": 0},
        {"finished": 1},
        {"nonce": None},
        {"more": 0},
    ],
)
def test_corrupted_choices(damage: dict[str, Any]) -> None:
    record = Choice("n", 0, (None, 3), 3, True).to_json()
    assert Choice.from_json(record).answers == (None, 3)
    with pytest.raises(PlanError, match="The record of the private choice is corrupted"):
        Choice.from_json({**record, **damage})
