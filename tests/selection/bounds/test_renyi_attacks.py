"""Attacks on the Renyi curves of selection: none exceeds them, and wrong formulas are caught."""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt
import pytest
from slow_cases import slow_if

from optuna_dp import Geometric, Logarithmic, NegativeBinomial, Poisson, TrialCount
from optuna_dp.selection.event import selection_epsilon
from optuna_dp.selection.laws.poisson import poisson_rdp

FloatArray = npt.NDArray[np.float64]


def renyi(p: FloatArray, q: FloatArray, a: float) -> float:
    """D_a(p || q) of distributions on the last axis with full support; a may be inf."""
    kept = p > 0
    log_p, log_q = np.log(np.where(kept, p, 1.0)), np.log(q)
    if math.isinf(a):
        return float(np.max(np.where(kept, log_p - log_q, -np.inf)))
    terms = np.where(kept, a * log_p - (a - 1) * log_q, -np.inf)
    return float(np.logaddexp.reduce(terms, axis=-1)) / (a - 1)


def run_curve(m: FloatArray, m_prime: FloatArray, orders: FloatArray) -> FloatArray:
    """Supremum over the hyperparameters (rows) and both directions."""
    return np.array(
        [
            max(max(renyi(p, q, a), renyi(q, p, a)) for p, q in zip(m, m_prime, strict=True))
            for a in orders
        ]
    )


def released(law: TrialCount, rows: FloatArray) -> FloatArray:
    """Law of the best output under a policy that looks at the best so far (and at the data).

    rows[0] is the law of a run before anything is known, rows[1 + x] when the best so far is x.
    Outputs are 0 < 1 < ...; the last entry of the result is P[T = 0].
    """
    size = rows.shape[1]
    step = np.zeros((size, size))
    for x in range(size):
        step[x, x] = rows[1 + x, : x + 1].sum()
        step[x, x + 1 :] = rows[1 + x, x + 1 :]
    weights = weights_of(law)
    total, state = np.zeros(size), rows[0]
    for weight in weights[1:]:
        total += weight * state
        state = state @ step
    return np.append(total, weights[0])


@functools.lru_cache
def weights_of(law: TrialCount) -> FloatArray:
    last = law.quantile(1 - 1e-13) + 10
    assert law.tail(last) < 1e-12  # leaving this out cannot create a violation above 1e-9
    return law.pmf(np.arange(last + 1))


def random_rows(rng: np.random.Generator, rows: int, size: int) -> FloatArray:
    p = rng.dirichlet(np.full(size, float(rng.choice([0.3, 1.0, 5.0]))), rows) + 1e-9
    return np.asarray(p / p.sum(axis=1, keepdims=True))


def divergences(law: TrialCount, p: FloatArray, q: FloatArray, orders: FloatArray) -> FloatArray:
    one, two = released(law, p), released(law, q)
    if two[-1] == 0.0:
        one, two = one[:-1], two[:-1]
    return np.array([max(renyi(one, two, a), renyi(two, one, a)) for a in orders])


ATTACK_ORDERS = np.array([1.01, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 40.0, 200.0, math.inf])


ATTACKED = [
    NegativeBinomial(shape=-0.6, mean=3),
    Logarithmic(4),
    Geometric(1.2),
    Geometric(6),
    NegativeBinomial(shape=3.0, mean=4),
    Poisson(0.05),
    Poisson(0.6),
    Poisson(1.0),
    Poisson(4.0),
]


@pytest.mark.parametrize("law", slow_if(lambda law: law == ATTACKED[0], ATTACKED), ids=repr)
def test_selection_never_exceeds_the_formula(law: TrialCount) -> None:
    rng = np.random.default_rng(17)
    for _ in range(80):
        size, hyper = int(rng.integers(2, 5)), int(rng.integers(1, 4))
        m = random_rows(rng, hyper, size)
        tilt = rng.uniform(0, 2) if rng.random() < 0.7 else 0.02
        m_prime = m * np.exp(tilt * rng.choice([-1.0, 0.0, 1.0], (hyper, size)))
        m_prime /= m_prime.sum(axis=1, keepdims=True)
        prior = rng.dirichlet(np.ones(hyper))
        rows, rows_prime = (
            np.tile(prior @ m, (size + 1, 1)),
            np.tile(prior @ m_prime, (size + 1, 1)),
        )
        bound = law.rdp(ATTACK_ORDERS, run_curve(m, m_prime, ATTACK_ORDERS))
        found = divergences(law, rows, rows_prime, ATTACK_ORDERS)
        assert np.all(found <= bound * (1 + 1e-9) + 1e-9)


def policies(
    rng: np.random.Generator, m: FloatArray, prior: FloatArray, c: float, big_c: float, count: int
) -> list[FloatArray]:
    """Laws of a run after every best-so-far, densities at the bounds: vertices of the polytope."""
    size = m.shape[1]
    result = []
    for _ in range(count):
        rows = np.empty((size + 1, size))
        for x in range(size + 1):
            density = np.full(prior.size, c)
            left = 1.0 - c
            for i in rng.permutation(prior.size):
                extra = min(big_c - c, left / prior[i])
                density[i] += extra
                left -= extra * prior[i]
            assert abs(float(density @ prior) - 1) < 1e-9
            rows[x] = (density * prior) @ m
        result.append(rows)
    return result


@pytest.mark.parametrize("law", slow_if(lambda law: law == ATTACKED[0], ATTACKED[:5]), ids=repr)
@pytest.mark.parametrize(("c", "big_c"), [(0.75, 2.0), (0.2, 1.3), (0.9, 1.05)])
def test_adaptive_selection_never_exceeds_the_formula(
    law: TrialCount, c: float, big_c: float
) -> None:
    rng = np.random.default_rng(23)
    orders = ATTACK_ORDERS
    for case in range(8):
        size, hyper = int(rng.integers(2, 4)), int(rng.integers(2, 4))
        m = random_rows(rng, hyper, size)
        if case % 2:  # hyperparameters that determine the output: the density is all that leaks
            m = np.full((hyper, size), 1e-7)
            m[np.arange(hyper), np.arange(hyper) % size] = 1.0
            m /= m.sum(axis=1, keepdims=True)
        tilt = float(rng.choice([0.0, 0.1, 1.0]))
        m_prime = m * np.exp(tilt * rng.choice([-1.0, 1.0], (hyper, size)))
        m_prime /= m_prime.sum(axis=1, keepdims=True)
        prior = rng.dirichlet(np.full(hyper, 3.0))
        bound = law.rdp(orders, run_curve(m, m_prime, orders), (c, big_c))
        for p, q in zip(
            policies(rng, m, prior, c, big_c, 12),
            policies(rng, m_prime, prior, c, big_c, 12),
            strict=True,
        ):
            found = divergences(law, p, q, orders)
            assert np.all(found <= bound * (1 + 1e-9) + 1e-9)


def opposed_densities(law: TrialCount, c: float, big_c: float) -> FloatArray:
    """An adaptive attack: outputs are the hyperparameter; D and D' want different ones."""
    prior = np.array([(1 - c) / (big_c - c), 0.0])
    prior[1] = 1 - prior[0]
    up = np.array([prior[0] * c, 1 - prior[0] * c])
    down = np.array([prior[0] * big_c, 1 - prior[0] * big_c])
    return divergences(law, np.tile(up, (3, 1)), np.tile(down, (3, 1)), ATTACK_ORDERS)


def sliced_response(law: TrialCount, epsilon: float) -> FloatArray:
    """max over p0 of log A/A' for a block of least incriminating outputs above a thin guilty one.

    Every run is randomised response with independent coins splitting its two answers: pure DP.
    """
    p0 = np.linspace(0.0, 1.0 / (1.0 + math.exp(epsilon)), 2001)
    q0, thin = p0 * math.exp(epsilon), 1e-3
    one = law.pgf(1 - p0) - law.pgf(1 - p0 - thin * math.exp(epsilon))
    two = law.pgf(np.maximum(1 - q0, thin)) - law.pgf(np.maximum(1 - q0, thin) - thin)
    return np.log(one / two)


@pytest.mark.parametrize("shape", [-0.5, 0.0, 1.0, 3.0])
def test_the_pure_bound_is_nearly_attained_and_a_smaller_one_is_caught(shape: float) -> None:
    law = NegativeBinomial(shape=shape, mean=3000)
    bound = selection_epsilon(1.0, law)
    found = float(sliced_response(law, 1.0).max())
    assert found <= bound
    # A formula with eta for 1 + eta, or that forgets the shape, is refuted here.
    assert found > bound - 0.1 * (1 + shape)


@pytest.mark.parametrize("shape", [-0.5, 0.0, 1.0, 3.0])
def test_the_adaptive_pure_bound_is_nearly_attained(shape: float) -> None:
    """Runs that leak nothing; D and D' want opposite densities on a top block and on a target."""
    law, c, big_c = NegativeBinomial(shape=shape, mean=1e5), 0.75, 2.0
    top, target = np.geomspace(1e-4, 0.1, 200), 1e-7
    one = law.pgf(1 - c * top) - law.pgf(1 - c * top - big_c * target)
    two = law.pgf(1 - big_c * top) - law.pgf(1 - big_c * top - c * target)
    bound = selection_epsilon(0.0, law, (c, big_c))
    found = float(np.log(one / two).max())
    assert bound - 0.1 * (1 + shape) < found <= bound * (1 + 1e-6)


def test_capped_laws_break_the_formula_so_they_are_refused() -> None:
    law = Geometric(1000).capped(20)
    assert float(sliced_response(law, 1.0).max()) > 5.8  # (2 + 1) * 1 would be claimed
    assert float(sliced_response(Geometric(1000), 1.0).max()) <= 3.0


def test_the_attacks_catch_wrong_formulas() -> None:
    # No charge for adaptivity.
    law = Geometric(20)
    found = opposed_densities(law, 0.75, 2.0)
    zero = np.zeros_like(ATTACK_ORDERS)
    assert np.any(found > law.rdp(ATTACK_ORDERS, zero))
    assert np.all(found <= law.rdp(ATTACK_ORDERS, zero, (0.75, 2.0)))
    law_p = Poisson(20)
    found = opposed_densities(law_p, 0.75, 2.0)
    assert np.any(found > law_p.rdp(ATTACK_ORDERS, zero))
    # Theorem 2 without mu * delta_hat, on runs that are not close to pure.
    m, m_prime = np.array([[0.02, 0.98]]), np.array([[0.4, 0.6]])
    run = run_curve(m, m_prime, ATTACK_ORDERS)
    rows, rows_prime = np.tile(m, (3, 1)), np.tile(m_prime, (3, 1))
    law_p = Poisson(40)
    found = divergences(law_p, rows, rows_prime, ATTACK_ORDERS)
    without = poisson_rdp(ATTACK_ORDERS, run, 40, zero)
    assert np.any(found > without)
    assert np.all(found <= law_p.rdp(ATTACK_ORDERS, run))


def test_poisson_null_outcome_is_counted_exactly() -> None:
    """At eps -> 0 our form is second order in the run's divergence, as the truth is."""
    h = 1e-3
    m, m_prime = np.array([[0.5, 0.5]]), np.array([[0.5 + h, 0.5 - h]])
    orders = np.array([2.0])
    run = run_curve(m, m_prime, orders)
    for mean in (0.1, 1.0):
        found = divergences(Poisson(mean), np.tile(m, (3, 1)), np.tile(m_prime, (3, 1)), orders)
        bound = poisson_rdp(orders, run, mean, [0.0])
        assert found[0] <= bound[0]
        assert bound[0] < 3 * found[0]
