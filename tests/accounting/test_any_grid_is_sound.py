"""Coarser is larger, never wrong: any grid of a composition, any points at which it is read."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import optuna_dp as odp
from optuna_dp.accounting import plds, run_profile
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.errors import InvalidArgumentError

RELATION = "add_or_remove_one"
# What a fine grid says of it is above the truth by less than this.
FINE = 1e-4
COMPOSED = odp.compose(odp.laplace(2.0), odp.laplace(3.0), odp.gaussian(2.0))
AT = np.linspace(0.0, 4.0, 50)


def profile(event: Any = COMPOSED) -> DominatingPair:
    """What :func:`run_profile.pair_of` makes, without its cache."""
    parts = run_profile.parts_of(event, RELATION)
    slack = plds.fft_slack(sum(part.times for part in parts))
    return plds.pair_of_pld(run_profile.composed(parts, RELATION), slack)


USUAL = profile()


def is_at_least_the_usual_one(found: DominatingPair) -> bool:
    return all(
        bool(np.all(one.delta(AT) >= other.delta(AT) - FINE))
        for one, other in ((found, USUAL), (found.reversed(), USUAL.reversed()))
    )


def test_the_profile_here_is_the_one_of_the_library() -> None:
    assert USUAL.epsilon(1e-5) == run_profile.pair_of(COMPOSED).epsilon(1e-5)


@pytest.mark.promise("bounds")
@pytest.mark.parametrize("interval", [1e-3, 0.01, 0.37, 2.0, 50.0])
def test_no_grid_makes_a_composition_cheaper(
    monkeypatch: pytest.MonkeyPatch, interval: float
) -> None:
    monkeypatch.setattr(run_profile, "interval_for", lambda *question: interval)
    found = profile()
    assert is_at_least_the_usual_one(found)
    assert found.epsilon(1e-5) >= USUAL.epsilon(1e-5) - FINE


POINTS = [
    [0.0],
    [3.0],
    [0.0, 0.1, 600.0],
    [0.5, 1.0, 1.5],
    list(np.linspace(0.0, 2.0, 9)),
]


@pytest.mark.parametrize("points", POINTS, ids=map(str, itertools.count()))
def test_no_points_make_a_composition_cheaper(
    monkeypatch: pytest.MonkeyPatch, points: Any
) -> None:
    monkeypatch.setattr(plds, "reading_points", lambda *question: np.array(points))
    assert is_at_least_the_usual_one(profile())


@pytest.mark.parametrize("points", [[], [1.0, 0.0], [-1.0, 1.0], [math.nan], [0.5, math.nan]])
def test_what_are_no_points_is_refused(monkeypatch: pytest.MonkeyPatch, points: Any) -> None:
    monkeypatch.setattr(plds, "reading_points", lambda *question: np.array(points))
    with pytest.raises(InvalidArgumentError):
        profile()
