"""The smallest epsilon of a profile: what a plain bisection finds, in as few evaluations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from optuna_dp import Geometric
from optuna_dp.accounting import events
from optuna_dp.accounting.bounds import smallest_epsilon
from optuna_dp.accounting.kinds.approximate import randomized_response
from optuna_dp.accounting.run_profile import pair_of
from optuna_dp.selection.bounds.profile_bound import DataProfile

DELTA = 1e-5


def _bisected(profile, delta):
    """What smallest_epsilon does, asking at every step."""
    if profile(0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while profile(high) > delta:
        low, high = high, 2.0 * high
        if low > 1e4:
            return math.inf
    while high - low > 1e-9 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if profile(middle) <= delta else (middle, high)
    return high


@pytest.mark.parametrize(
    "profile",
    [
        *(randomized_response(e, 1e-7).delta for e in (1e-4, 0.3, 9.0)),
        DataProfile(pair_of(events.gaussian(2.0)), Geometric(10)).delta,
        lambda eps: max(1e-6, math.exp(-eps)),
        lambda eps: float(eps < math.e),
        lambda eps: 0.9 * (eps < 2.0),
        lambda eps: 1.0,
        lambda eps: 0.0,
    ],
)
@pytest.mark.parametrize("delta", [0.5, 1e-3, 1e-6, 1e-6 * (1 - 1e-15), 1e-12, 1e-300])
def test_epsilons_are_those_of_a_plain_bisection(profile, delta) -> None:
    asked = []

    def counted(eps):
        asked.append(eps)
        return float(profile(eps))

    found = smallest_epsilon(counted, delta)
    plain = _bisected(lambda eps: float(profile(eps)), delta)
    assert found == plain or found == pytest.approx(plain, rel=2e-9)
    assert found == math.inf or float(profile(found)) <= delta
    assert len(asked) < 70


def test_epsilons_keep_their_promise_where_rounding_makes_a_profile_grow() -> None:
    rng = np.random.default_rng(0)
    noise = rng.random(1000)

    def rough(eps):
        return math.exp(-eps) * (1.0 + 1e-9 * noise[int(eps * 1e12) % 1000])

    for delta in 10.0 ** -np.linspace(1.0, 9.0, 40):
        assert rough(smallest_epsilon(rough, delta)) <= delta
