"""Settings of the doubling loop: what is refused, and records of them that are damaged."""

from __future__ import annotations

from typing import Any

import pytest
from refusals import refuses
from samplers.choice.utility_support import LOOP, SPACE

import optuna_dp as odp
from optuna_dp.errors import (
    PlanError,
)
from optuna_dp.mechanisms import DoublingPlan
from optuna_dp.samplers.choice.candidates import CandidateSource
from optuna_dp.samplers.choice.choice import Choice
from optuna_dp.samplers.choice.settings import UtilitySettings


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"granularity": 0.0}, "granularity"),
        ({"granularity": 1.0}, "granularity"),
        ({"lower_bound": 1.0}, "lower_bound"),
        ({"lower_bound": -0.1}, "lower_bound"),
        ({"variant": "free"}, "variant"),
        ({"max_iterations": 0}, "max_iterations"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], argument: str) -> None:
    with refuses(argument):
        odp.ProposeTestSampler(SPACE, **{**LOOP, **arguments})


@pytest.mark.parametrize("damage", [{"kind": "x"}, {"count": 0}, {}])
def test_corrupted_settings(damage: dict[str, Any]) -> None:
    settings = UtilitySettings(DoublingPlan(1.0), 2, CandidateSource("list", 4))
    data = settings.to_json()
    assert UtilitySettings.from_json(data) == settings
    data["candidates"] = {**data["candidates"], **damage} if damage else None
    with pytest.raises(PlanError):
        UtilitySettings.from_json(data)


@pytest.mark.parametrize(
    "damage",
    [
        {"answers": [0, -1]},
        {"chosen": -2},
        {"answers": [True]},
        {"answers": 0},
        {"nonce": None},
        {"more": 0},
    ],
)
def test_corrupted_choices(damage: dict[str, Any]) -> None:
    record = Choice("n", (None, 3), 3).to_json()
    assert Choice.from_json(record).answers == (None, 3)
    with pytest.raises(PlanError):
        Choice.from_json({**record, **damage})
