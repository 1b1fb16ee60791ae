"""Group privacy, beside mechanisms whose groups are known exactly."""

from __future__ import annotations

import math

import pytest

import optuna_dp as odp
from optuna_dp.accounting.groups import group_epsilon, log_sum


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize("noise", [2.0, 8.0, 50.0])
def test_never_below_the_gaussian_of_the_group(size: int, noise: float) -> None:
    """For a Gaussian, a group of k has exactly the noise divided by k."""
    exact = odp.Guarantee(odp.gaussian(noise / size)).epsilon(1e-6)
    found = group_epsilon(odp.Guarantee(odp.gaussian(noise)), 1e-6, size)
    assert exact <= found * (1 + 1e-9)


def test_pure_privacy_adds_up() -> None:
    """For randomised response, a group of k has at most k times epsilon; delta hardly helps."""
    for size in (2, 5):
        found = group_epsilon(odp.Guarantee(odp.pure_dp(0.1)), 1e-9, size)
        assert found == pytest.approx(0.1 * size, rel=1e-6)


def test_a_sabotaged_sum_is_found() -> None:
    """Without the factors e^epsilon it would lie below the truth."""
    guarantee = odp.Guarantee(odp.gaussian(2.0))
    naive = 8 * guarantee.epsilon(1e-6 / 8)
    linear_in_delta = min(8 * guarantee.epsilon(1e-6), naive)
    exact = odp.Guarantee(odp.gaussian(0.25)).epsilon(1e-6)
    assert linear_in_delta < exact <= group_epsilon(guarantee, 1e-6, 8)


@pytest.mark.parametrize("epsilon", [0.0, 1e-9, 0.3, 5.0, 40.0])
def test_the_sum(epsilon: float) -> None:
    terms = math.log(math.fsum(math.exp(i * epsilon) for i in range(7)))
    assert terms <= log_sum(epsilon, 7) <= terms + 1e-9


def test_what_is_not_known_is_infinite() -> None:
    assert group_epsilon(odp.Guarantee(odp.approximate_dp(1.0, 1e-3)), 1e-5, 2) == math.inf
