"""What a bound of two directions answers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from optuna_dp.accounting.bounds import ProfileMethod, smallest_epsilon

DELTA = 1e-5


class Steps:
    """A profile that is 1 up to the first edge, and then what is said from each edge on."""

    def __init__(self, *steps: tuple[float, float]) -> None:
        self._edges, self._deltas = zip(*steps, strict=True)

    def delta(self, epsilons):
        at = np.searchsorted(self._edges, epsilons, side="right")
        return np.array([1.0, *self._deltas])[at]


@pytest.mark.parametrize("turned", [False, True])
def test_the_larger_direction_counts(turned: bool) -> None:
    sides = [Steps((1.0, 0.0)), Steps((2.0, 0.0))]
    found = ProfileMethod(*(sides[::-1] if turned else sides)).epsilon(DELTA)
    assert 2.0 <= found <= 2.0 * (1.0 + 1e-8)


@pytest.mark.parametrize("turned", [False, True])
def test_one_direction_without_an_epsilon_is_enough(turned: bool) -> None:
    sides = [Steps((1.0, 0.0)), Steps((2.0, 2.0 * DELTA))]
    assert ProfileMethod(*(sides[::-1] if turned else sides)).epsilon(DELTA) == math.inf


def test_the_promise_holds_where_the_last_bit_of_the_other_direction_grows() -> None:
    second = Steps((2.0, 0.0))
    end = smallest_epsilon(second.delta, DELTA)
    for _ in range(5):
        end = math.nextafter(end, math.inf)
    first = Steps((1.0, DELTA), (1.5, math.nextafter(DELTA, 1.0)), (end, DELTA))
    method = ProfileMethod(first, second)
    assert float(method.delta(method.epsilon(DELTA))) <= DELTA
