"""Logistic noise: its profile against its densities, on a grid that shares no code with it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from optuna_dp.accounting.kinds.logistic import LogisticDpEvent
from scipy.stats import logistic

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError


@pytest.mark.parametrize("scale", [0.5, 4.0, 20.0])
def test_delta_is_that_of_the_densities_and_never_below(scale: float) -> None:
    x = np.linspace(-40.0 * scale, 40.0 * scale + 1.0, 400_001)
    density, moved = logistic.pdf(x, scale=scale), logistic.pdf(x, loc=1.0, scale=scale)
    guarantee = odp.Guarantee(LogisticDpEvent(scale))
    for epsilon in (0.0, 0.3 / scale, 0.9 / scale):
        beyond = np.maximum(moved - np.exp(epsilon) * density, 0.0)
        exact = float(beyond.sum() * (x[1] - x[0]))
        assert exact * (1 - 1e-6) <= guarantee.delta(epsilon) <= 1.01 * exact


def test_the_grid_rejects_a_profile_of_more_noise() -> None:
    """The sabotaged variant: noise that is a tenth larger than what is added."""
    x = np.linspace(-160.0, 161.0, 400_001)
    density, moved = logistic.pdf(x, scale=4.0), logistic.pdf(x, loc=1.0, scale=4.0)
    exact = float(np.maximum(moved - density, 0.0).sum() * (x[1] - x[0]))
    assert odp.Guarantee(LogisticDpEvent(4.4)).delta(0.0) < exact


def test_its_guarantee_survives_being_stored() -> None:
    guarantee = odp.selection_guarantee(LogisticDpEvent(4.0), odp.Geometric(mean=5))
    stored = json.loads(json.dumps(guarantee.to_json()))
    assert odp.Guarantee.from_json(stored) == guarantee
    assert guarantee.epsilon(1e-6) <= 3 * (1 / 4.0)  # pure epsilon of the best of geometric many


def test_a_scale_that_is_not_positive_is_refused_by_name() -> None:
    with pytest.raises(InvalidArgumentError, match="scale"):
        LogisticDpEvent(0.0)
