"""Projections: optimal where they claim to be, inside the bounds always."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from refusals import refuses

from optuna_dp.errors import InvalidArgumentError
from optuna_dp.priors.densities.projection import (
    check_projection,
    project_log,
    scores_to_log_weights,
)
from optuna_dp.priors.densities.shares import (
    BoundedDensity,
    integer_masses,
    uniform_masses,
)

ODD = np.array([np.nan, np.inf, -np.inf, 0.0, -1.0, 1e308, 1e-308, 5e-324, 1.0, 1.0])


def scores_to_weights(scores: np.ndarray, beta: float) -> np.ndarray:
    weights = np.exp(scores_to_log_weights(scores, beta))
    return weights / weights.mean()


def project(weights: np.ndarray, *how: Any) -> BoundedDensity:
    with np.errstate(divide="ignore", invalid="ignore"):
        return project_log(np.log(np.where(weights > 0.0, weights, 0.0)), *how)


def assert_exact(density: BoundedDensity, bounds: tuple[float, float]) -> None:
    """Checks the promise independently of the code that makes it: in rational arithmetic."""
    masses, shares = density.masses, density.shares
    assert sum(shares.tolist()) == density.unit * sum(masses.tolist())
    ratio = shares / masses
    for i in (int(np.argmin(ratio)), int(np.argmax(ratio))):
        exact = Fraction(int(shares[i]), density.unit * int(masses[i]))
        assert Fraction(bounds[0]) <= exact <= Fraction(bounds[1])
    f = density.ratios
    assert f.min() >= bounds[0]
    assert f.max() <= bounds[1]
    assert abs(float(np.dot(masses, f)) / float(masses.sum()) - 1.0) <= 1e-12


def _cases(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        n = int(rng.choice([1, 2, 3, 5, 17, 60]))
        c = float(rng.choice([0.75, 1e-12, 1.0 - 1e-13, rng.random() + 1e-9]))
        big_c = float(rng.choice([2.0, 1.0 + 1e-13, 1e12, 1.0 + rng.random(), 1.5]))
        scores = rng.normal(size=n) * 10.0 ** rng.integers(-3, 4)
        kind = int(rng.integers(6))
        if kind == 0:
            scores = np.round(scores)  # ties
        elif kind == 1:
            odd = rng.random(n) < 0.5
            scores[odd] = rng.choice(ODD, int(odd.sum()))
        elif kind == 2:
            scores = rng.choice(ODD, n)
        elif kind == 3:
            scores *= 1e300
        log_weights = scores_to_log_weights(scores, float(rng.choice([0.0, 1.0, 50.0, 1e6])))
        masses = None
        if rng.random() < 0.3:
            masses = integer_masses(list(np.exp(2 * rng.normal(size=n))))
        method = "kl" if rng.random() < 0.5 else "l2"
        if kind == 5:  # plain weights, all sorts
            density = project(rng.choice(ODD, n), (c, big_c), method, masses)
        else:
            density = project_log(log_weights, (c, big_c), method, masses)
        assert_exact(density, (c, big_c) if big_c > 1.0 > c else (1.0, 1.0))


@pytest.mark.promise("bounds")
@pytest.mark.slow
def test_no_violation_in_two_thousand_cases() -> None:
    _cases(2_000, seed=0)


@pytest.mark.slow
def test_no_violation_in_twenty_thousand_cases() -> None:
    _cases(20_000, seed=1)


@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("method", ["l2", "kl"])
def test_agrees_with_convex_programming(method: Any, equal: bool) -> None:
    import warnings

    cp = pytest.importorskip("cvxpy")

    rng = np.random.default_rng(5)
    for _ in range(6):
        n = int(rng.integers(2, 60))
        masses = uniform_masses(n) if equal else integer_masses(list(rng.random(n) + 0.05))
        prior = masses / masses.sum()
        w = np.exp(2.0 * rng.normal(size=n))
        w /= prior @ w
        c, big_c = rng.uniform(0.05, 0.95), rng.uniform(1.05, 3.0)
        f = cp.Variable(n)
        if method == "l2":  # the square is solved to higher accuracy, with the same solution
            objective = cp.sum(cp.multiply(prior, cp.square(f - w)))
        else:
            objective = cp.sum(cp.multiply(prior, cp.rel_entr(w, f)))
        problem = cp.Problem(cp.Minimize(objective), [f >= c, f <= big_c, prior @ f == 1])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            best = problem.solve(solver=cp.CLARABEL)
        solved = f.value.copy()
        density = project(w, (c, big_c), method, masses)
        np.testing.assert_allclose(density.ratios, solved, atol=1e-3)
        f.value = density.ratios
        assert objective.value <= best + 1e-6 * max(1.0, abs(best))
        assert_exact(density, (c, big_c))


@pytest.mark.parametrize("n", [4, 101, 50_000])
@pytest.mark.parametrize("method", ["l2", "kl"])
def test_satisfies_the_optimality_conditions(method: Any, n: int) -> None:
    # Optimal if and only if w - f (or log w - log f) is one constant nu where c < f < C, at least
    # nu where f = C, and at most nu where f = c.
    rng = np.random.default_rng(6)
    w = scores_to_weights(rng.normal(size=n), 2.0)
    c, big_c = 0.6, 1.9
    f = project(w, (c, big_c), method).ratios
    dual = w - f if method == "l2" else np.log(w) - np.log(f)
    resolution = 20 * n * 2.0**-52
    inside = (f > c + resolution) & (f < big_c - resolution)
    nu = dual[inside].mean()
    assert np.ptp(dual[inside]) < resolution
    assert dual.min(where=f >= big_c - resolution, initial=np.inf) > nu - resolution
    assert dual.max(where=f <= c + resolution, initial=-np.inf) < nu + resolution


def test_too_few_positive_weights() -> None:
    f = project(np.array([1.0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), (0.5, 2.0), "kl").ratios
    assert f[0] == 2.0
    np.testing.assert_allclose(f[1:], 8.0 / 9.0, atol=1e-14)


def test_log_weights_keep_the_order_that_plain_weights_lose() -> None:
    scores = -np.arange(100.0)
    sharp = scores_to_log_weights(scores, 1e5)
    f = project_log(sharp, (0.5, 1.5), "kl").ratios
    assert (f[:50] == 1.5).all()  # the better half, although its weights underflow to zero
    assert (f[50:] == 0.5).all()


@pytest.mark.parametrize("method", ["kl", "l2"])
def test_a_weight_that_is_not_a_number_is_no_weight(method: Any) -> None:
    logs = np.array([np.nan, 0.0, -1.0, -2.0, np.nan])
    without = np.where(np.isnan(logs), -np.inf, logs)
    got = project_log(logs, (0.5, 1.5), method).ratios
    np.testing.assert_array_equal(got, project_log(without, (0.5, 1.5), method).ratios)
    assert got[0] == pytest.approx(got.min(), abs=1e-12)
    assert got[0] < got[1]


def test_equal_weights_give_the_prior_exactly() -> None:
    for method in ("l2", "kl"):
        for w in (np.ones(10), np.zeros(10), np.full(10, np.nan), np.full(10, np.inf)):
            assert (project(w, (0.5, 2.0), method).ratios == 1.0).all()  # type: ignore[arg-type]


def test_bounds_that_meet_give_the_prior() -> None:
    w = np.arange(5.0)
    for bounds in [(1.0, 1.0), (0.5, 1.0), (1.0, 2.0)]:
        assert (project(w, bounds, "kl").ratios == 1.0).all()


def test_softmax_of_odd_scores() -> None:
    np.testing.assert_array_equal(
        scores_to_weights(np.array([np.nan, 3.0, -np.inf]), 1.0), [0.0, 3.0, 0.0]
    )
    np.testing.assert_array_equal(
        scores_to_weights(np.array([np.inf, 3.0, np.inf, np.nan]), 1.0), [2.0, 0.0, 2.0, 0.0]
    )
    np.testing.assert_array_equal(scores_to_weights(np.array([np.nan, np.nan]), 1.0), [1.0, 1.0])
    np.testing.assert_array_equal(scores_to_weights(np.array([np.inf, 0.0]), 0.0), [1.0, 1.0])
    w = scores_to_weights(np.array([0.0, 1.0]), 2.0)
    assert w[1] / w[0] == pytest.approx(np.exp(2.0))
    assert scores_to_weights(np.array([1e308, -1e308]), 1e308).tolist() == [2.0, 0.0]


@pytest.mark.slow
def test_a_million_weights() -> None:
    w = scores_to_weights(np.random.default_rng(7).normal(size=10**6), 3.0)
    for method in ("kl", "l2"):
        assert_exact(project(w, (0.75, 2.0), method), (0.75, 2.0))  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["KL", None, 1.0, "c.1"])
def test_unknown_projection_is_refused(value: Any) -> None:
    with refuses("projection"):
        check_projection(value)


def test_bad_arrays_are_refused() -> None:
    with pytest.raises(InvalidArgumentError):
        project(np.zeros((2, 2)), (0.5, 2.0))
    with pytest.raises(InvalidArgumentError):
        project(np.zeros(0), (0.5, 2.0))
    with refuses("masses"):
        project(np.zeros(3), (0.5, 2.0), "kl", uniform_masses(2))
    with refuses("beta"):
        scores_to_weights(np.zeros(3), -1.0)
