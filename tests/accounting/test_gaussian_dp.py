"""The smallest mu whose Gaussian profile lies above a guarantee's."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from refusals import refuses

import optuna_dp as odp
from optuna_dp.accounting.gaussian_dp import smallest_mu

SGD = odp.dp_sgd(noise_multiplier=1.0, sample_rate=256 / 60000, steps=2344)


def exact_delta(mu: float, epsilon: float) -> mpmath.mpf:
    with mpmath.workdps(40):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


@pytest.mark.parametrize("noise", [0.3, 1.0, 7.0, 60.0])
@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_a_gaussian_mechanism_has_its_own(noise: float, relation: str) -> None:
    true = (2.0 if relation == "replace_one" else 1.0) / noise
    mu = odp.Guarantee(odp.gaussian(noise), relation).mu()
    assert true * (1 - 1e-6) <= mu <= true * (1 + 1e-3)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("noise", [1e-3, 1e-6])
def test_a_gaussian_with_hardly_any_noise_has_a_finite_mu(noise: float) -> None:
    assert odp.Guarantee(odp.gaussian(noise)).mu() == pytest.approx(1.0 / noise, rel=1e-9)


def test_gaussians_compose_to_one() -> None:
    mu = odp.Guarantee(odp.compose(odp.gaussian(4.0), odp.gaussian(3.0))).mu()
    assert mu == pytest.approx(5.0 / 12.0, rel=1e-3)


def test_pure_dp_against_its_closed_form() -> None:
    """Randomised response is told apart as easily at its corner: 2 Phi^-1(e^eps/(1 + e^eps))."""
    for epsilon in (0.1, 1.0, 4.0):
        with mpmath.workdps(30):
            p = 1 / (1 + mpmath.exp(-epsilon))
            true = float(2 * mpmath.sqrt(2) * mpmath.erfinv(2 * p - 1))
        assert true * (1 - 1e-9) <= odp.Guarantee(odp.pure_dp(epsilon)).mu() < true * 1.001


@pytest.mark.parametrize(
    "guarantee",
    [
        odp.Guarantee(SGD),
        odp.Guarantee(odp.bounded_range(1.0)),
        odp.Guarantee(odp.compose(odp.laplace(2.0), odp.zcdp(0.02))),
        pytest.param(
            odp.selection_guarantee(odp.gaussian(4.0), odp.Geometric(5)), marks=pytest.mark.slow
        ),
    ],
)
def test_the_curve_lies_above_the_profile_and_a_smaller_one_does_not(
    guarantee: odp.Guarantee,
) -> None:
    tail = 1e-8
    mu = guarantee.mu(tail)
    # Off the grid on which it was found. Near zero the profile is not used as it is.
    epsilons = np.linspace(0.3, 1.0, 41) * guarantee.epsilon(tail)
    for epsilon in epsilons:
        assert guarantee.delta(epsilon) <= float(exact_delta(mu, epsilon)) + tail * (1 + 1e-6)
    short = [float(exact_delta(0.9 * mu, 0.0)) + tail - guarantee.delta(0.0)]
    short += [float(exact_delta(0.9 * mu, e)) + tail - guarantee.delta(e) for e in epsilons]
    assert min(short) < 0.0
    assert guarantee.mu(1e-4) * (1 - 1e-3) <= mu <= guarantee.mu(1e-11) * (1 + 1e-3)


def test_where_outputs_may_tell_everything_there_is_none() -> None:
    guarantee = odp.Guarantee(odp.approximate_dp(0.5, 1e-6))
    assert guarantee.mu() == math.inf
    assert guarantee.mu(1e-5) < 1.0
    assert odp.Guarantee(odp.pure_dp(0.0)).mu() == 0.0


def test_it_rounds_up_on_a_coarse_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    fine = odp.Guarantee(odp.gaussian(2.0)).mu()
    monkeypatch.setattr("optuna_dp.accounting.gaussian_dp.POINTS", 12)

    def delta(epsilons: np.ndarray) -> np.ndarray:
        return np.array([float(exact_delta(0.5, e)) for e in epsilons])

    last = odp.Guarantee(odp.gaussian(2.0)).epsilon(1e-10)
    coarse = smallest_mu(delta, last, 1e-10)
    assert 0.5 * (1 - 1e-6) <= fine < coarse < 0.7


@pytest.mark.parametrize("tail", [0.0, 1.0, 1e-13, -1.0, math.nan, "x"])
def test_bad_tails(tail: float) -> None:
    with refuses("tail"):
        odp.Guarantee(odp.gaussian(2.0)).mu(tail)
