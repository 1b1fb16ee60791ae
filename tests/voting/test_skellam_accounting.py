from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from slow_cases import slow_if

from optuna_dp.accounting import skellam
from optuna_dp.accounting.events import compose, gaussian
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.accounting.kinds.per_client import per_client
from optuna_dp.accounting.kinds.skellam import SkellamDpEvent


@pytest.mark.parametrize("variance", [0.02, 1.0, 12.5**2, 103.0**2, 1e6])
def test_masses_are_the_bessel_functions(variance: float) -> None:
    x, f = skellam.pmf(variance)
    assert f.sum() == pytest.approx(1.0, abs=1e-13)
    assert (f * x * x).sum() == pytest.approx(variance, rel=1e-10)
    step = max(x.size // 40, 1)
    with mpmath.workdps(40):
        for value, mass in zip(x[::step].tolist(), f[::step], strict=True):
            if mass > 1e-250 and abs(value) < 1000:
                exact = mpmath.exp(-variance) * mpmath.besseli(abs(value), variance)
                assert float(mass / exact) == pytest.approx(1.0, abs=1e-11)


@pytest.mark.parametrize("variance", slow_if(lambda variance: variance > 100.0, [0.3, 4.0, 150.0]))
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 3.0])
def test_the_pair_of_one_entry_is_exact(variance: float, epsilon: float) -> None:
    with mpmath.workdps(40):
        reach = int(20 * math.sqrt(variance) + 40)
        f = {
            x: mpmath.exp(-variance) * mpmath.besseli(abs(x), variance)
            for x in range(-reach - 1, reach + 1)
        }
        bound = mpmath.exp(epsilon)
        exact = float(sum(max(f[x] - bound * f[x - 1], 0) for x in range(-reach, reach + 1)))
    pair = skellam.shift_pair(variance)
    for side in (pair, pair.reversed()):
        assert 0.0 <= float(side.delta(epsilon)) - exact < 1e-13


def test_two_entries_against_brute_force() -> None:
    variance, epsilon = 6.0, 0.5
    _, f = skellam.pmf(variance)
    shifted = np.concatenate([[0.0], f[:-1]])
    joint, other = np.multiply.outer(f, f), np.multiply.outer(shifted, shifted)
    exact = float(np.maximum(joint - math.exp(epsilon) * other, 0.0).sum())
    guarantee = Guarantee(SkellamDpEvent(variance, 1, 5), "replace_one")
    assert exact <= guarantee.delta(epsilon) <= exact * 1.001 + 1e-12


@pytest.mark.parametrize("variance", [2.0, 22.0, 12.5**2, 103.0**2])
def test_the_published_rdp_bound_is_above_the_exact_divergence(variance: float) -> None:
    """A cross-check of both: Agarwal, Kairouz & Liu, arXiv 2110.04995."""
    _, f = skellam.pmf(variance)
    own, other = np.log(f[1:]), np.log(f[:-1])
    for order in (2.0, 5.0, 17.0):
        exact = 10 * float(np.logaddexp.reduce(order * own - (order - 1) * other)) / (order - 1)
        bound = float(skellam.rdp_bound(variance, 10, [order])[0])
        assert exact <= bound <= (1.6 if variance > 20.0 else 4.0) * exact
    guarantee = Guarantee(SkellamDpEvent(variance, 5, 100), "replace_one")
    by_method = guarantee.by_method(1e-5)
    assert by_method["profile"] < by_method["rdp"] < 2.5 * by_method["profile"]


def test_at_large_variance_it_is_the_gaussian_mechanism() -> None:
    skellams = Guarantee(SkellamDpEvent(1e6, 5, 100), "replace_one").epsilon(1e-5)
    # Replacing moves a sum of sensitivity sqrt(10) = 2 (sqrt(10) / 2).
    normal = Guarantee(gaussian(1e3 / (math.sqrt(10) / 2)), "replace_one").epsilon(1e-5)
    assert skellams == pytest.approx(normal, rel=2e-3)


def test_training_composes_on_top() -> None:
    vote = Guarantee(SkellamDpEvent(160.0, 5, 100), "replace_one")
    both = vote.compose(per_client(gaussian(20.0)))
    assert vote.epsilon(1e-5) < both.epsilon(1e-5)
    assert both.epsilon(1e-5) < vote.epsilon(5e-6) + Guarantee(
        gaussian(20.0), "replace_one"
    ).epsilon(5e-6)
    training = per_client(gaussian(20.0))
    nulls = Guarantee(compose(SkellamDpEvent(160.0, 5, 100), training), "null_client")
    assert nulls.epsilon(1e-5) < both.epsilon(1e-5)
