"""RDP of selection: published formulas, our own forms, and attacks that must stay below them."""

from __future__ import annotations

import functools
import itertools
import math
from pathlib import Path

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant, rdp_privacy_accountant

from optuna_dp.accounting.comparisons.theorem_1 import theorem1_as_printed
from optuna_dp.accounting.rdp_curves import rdp_to_delta
from optuna_dp.accounting.selection.renyi import (
    negative_binomial_rdp,
    pure_selection_epsilon,
    selection_rdp,
    why_no_rdp,
)
from optuna_dp.accounting.selection.renyi_poisson import (
    Profile,
    adaptive_poisson_rdp,
    poisson_rdp,
    poisson_rdp_any_mean,
)
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.trial_counts import (
    Binomial,
    Geometric,
    Logarithmic,
    NegativeBinomial,
    Poisson,
    TrialCount,
)

FloatArray = npt.NDArray[np.float64]
ORDERS = np.array(rdp_privacy_accountant.DEFAULT_RDP_ORDERS, dtype=np.float64)


def sgd(noise: float) -> dp_event.DpEvent:
    step = dp_event.PoissonSampledDpEvent(256 / 60000, dp_event.GaussianDpEvent(noise))
    return dp_event.SelfComposedDpEvent(step, 2344)


def curve(event: dp_event.DpEvent, orders: FloatArray = ORDERS) -> FloatArray:
    return np.asarray(RdpAccountant(orders).compose(event).rdp, dtype=np.float64)


def to_epsilon(rdp: FloatArray, delta: float = 1e-5) -> float:
    return float(rdp_privacy_accountant.compute_epsilon(ORDERS, rdp, delta)[0])


def profile_of(orders: FloatArray, rdp: FloatArray) -> Profile:
    """dp-accounting's own conversion, epsilon by epsilon."""
    return np.vectorize(lambda e: rdp_privacy_accountant.compute_delta(orders, rdp, e)[0])


def zero_delta(epsilons: FloatArray) -> FloatArray:
    return np.zeros_like(epsilons)


# ---- against dp-accounting ---------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(24))
def test_agreement_with_dp_accounting(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = float(rng.choice([0.0, 1.0, rng.uniform(0, 1), rng.uniform(1, 10)]))
    mean = float(np.exp(rng.uniform(0, np.log(1e5))))
    event = [
        sgd(float(rng.uniform(0.6, 3))),
        dp_event.GaussianDpEvent(float(rng.uniform(0.3, 30))),
        dp_event.LaplaceDpEvent(float(rng.uniform(0.2, 30))),
    ][seed % 3]
    law = NegativeBinomial(shape=shape, mean=mean)
    theirs = curve(dp_event.RepeatAndSelectDpEvent(event, mean, shape))
    run = curve(event)
    np.testing.assert_allclose(selection_rdp(ORDERS, run, law), theirs, rtol=1e-6)
    theirs = curve(dp_event.RepeatAndSelectDpEvent(event, mean, math.inf))
    delta = profile_of(ORDERS, run)
    np.testing.assert_allclose(
        poisson_rdp(ORDERS, run, mean, delta),
        theirs,
        rtol=1e-6,
    )
    monotone = np.minimum.accumulate(theirs[::-1])[::-1]
    np.testing.assert_allclose(selection_rdp(ORDERS, run, Poisson(mean)), monotone, rtol=1e-6)


@pytest.mark.parametrize(
    ("event", "law", "expected"),
    [
        (sgd(0.71), Logarithmic(10), 5.449),
        (sgd(0.71), Geometric(10), 6.131),
        (sgd(0.71), Geometric(100), 7.952),
        (sgd(0.71), Poisson(10), 6.201),
        (sgd(1.0), Geometric(10), 2.734),
        (sgd(1.0), Geometric(100), 3.531),
        (dp_event.GaussianDpEvent(4), Geometric(10), 2.154),
        (dp_event.GaussianDpEvent(4), Geometric(100), 2.716),
    ],
)
def test_reference_values(event: dp_event.DpEvent, law: TrialCount, expected: float) -> None:
    # The references come from a finer grid of orders than the default one.
    found = to_epsilon(selection_rdp(ORDERS, curve(event), law))
    assert expected - 0.001 <= found <= expected + 0.004


def test_reference_value_of_theorem_1_as_printed() -> None:
    run, bounds = curve(sgd(0.71)), (0.75, 2.0)
    printed = to_epsilon(theorem1_as_printed(ORDERS, run, Geometric(100), bounds))
    assert printed == pytest.approx(11.15, abs=0.005)
    assert to_epsilon(selection_rdp(ORDERS, run, Geometric(100), bounds)) < printed - 0.2


# ---- against arbitrary precision ---------------------------------------------------------------


@pytest.mark.parametrize("shape", [-0.7, -1e-10, 0.0, 1e-10, 0.4, 1.0, 6.0])
@pytest.mark.parametrize(("c", "big_c"), [(1.0, 1.0), (0.75, 2.0), (0.99, 1.001)])
def test_formulas_in_arbitrary_precision(shape: float, c: float, big_c: float) -> None:
    law = NegativeBinomial(shape=shape, mean=37)
    orders = np.array([1.25, 2.0, 5.5, 64.0])
    run = np.array([0.3, 0.45, 1.2, 9.0])
    tight = negative_binomial_rdp(orders, run, law, (c, big_c))
    printed = theorem1_as_printed(orders, run, law, (c, big_c))
    with mpmath.workprec(200):
        eta, gamma = mpmath.mpf(shape), mpmath.mpf(law.gamma)
        m = (1 / gamma - 1) / mpmath.log(1 / gamma) if shape == 0.0 else None
        m = m or eta * (1 - gamma) / (gamma * (1 - gamma**eta))
        lc, lbig = mpmath.log(mpmath.mpf(c)), mpmath.log(mpmath.mpf(big_c))
        pairs = [(mpmath.mpf(b), mpmath.mpf(e)) for b, e in zip(orders, run, strict=True)]
        tight_b = min((1 - 1 / b) * (e - lc) + lbig - mpmath.log(gamma) / b for b, e in pairs)
        printed_b = min((1 - 1 / b) * e - mpmath.log(gamma) / b for b, e in pairs)
        expected_tight = [
            e + lbig - lc + (lbig + mpmath.log(m)) / (a - 1) + (1 + eta) * tight_b
            for a, e in pairs
        ]
        expected_printed = [
            e
            + (1 + eta) * printed_b
            + (a / (a - 1) + 1 + eta) * (lbig - lc)
            + mpmath.log(m) / (a - 1)
            for a, e in pairs
        ]
    for i in range(orders.size):
        assert tight[i] == pytest.approx(float(min(expected_tight[i:])), rel=1e-12)
        assert printed[i] == pytest.approx(float(min(expected_printed[i:])), rel=1e-12)


# ---- shape of the curves -----------------------------------------------------------------------

BOUNDS = [(1.0, 1.0), (0.999, 1.001), (0.9, 1.25), (0.75, 1.25), (0.75, 2.0), (0.3, 5.0)]
LAW_FAMILIES = [
    lambda mean: NegativeBinomial(shape=-0.5, mean=mean),
    Logarithmic,
    Geometric,
    lambda mean: NegativeBinomial(shape=4.0, mean=mean),
    Poisson,
]


@pytest.mark.parametrize("family", LAW_FAMILIES)
@pytest.mark.parametrize("event", [sgd(1.0), dp_event.LaplaceDpEvent(2.0)])
def test_monotone_in_every_argument(family: object, event: dp_event.DpEvent) -> None:
    run = curve(event)
    means = [1.0, 1.0 + 1e-9, 1.5, 3.0, 10.0, 1e3, 1e5]
    for bounds in BOUNDS:
        previous = np.zeros_like(run)
        for mean in means:
            now = selection_rdp(ORDERS, run, family(mean), bounds)  # type: ignore[operator]
            assert np.all(now >= previous * (1 - 1e-12))
            assert np.all(np.diff(now) >= 0.0)
            previous = now
    law = family(7.0)  # type: ignore[operator]
    for inner, outer in itertools.combinations(BOUNDS, 2):
        if outer[0] <= inner[0] and outer[1] >= inner[1]:
            small = selection_rdp(ORDERS, run, law, inner)
            assert np.all(selection_rdp(ORDERS, run, law, outer) >= small * (1 - 1e-12))
    rng = np.random.default_rng(3)
    for bounds in BOUNDS:
        larger = run + rng.uniform(0, 0.2, run.size)
        assert np.all(
            selection_rdp(ORDERS, larger, law, bounds)
            >= selection_rdp(ORDERS, run, law, bounds) * (1 - 1e-12)
        )


def test_small_poisson_means_are_monotone_and_vanish() -> None:
    run = curve(sgd(0.71))
    previous = np.zeros_like(run)
    for mean in (1e-9, 1e-3, 0.1, 0.5, 0.999999, 1.0):
        now = selection_rdp(ORDERS, run, Poisson(mean))
        assert np.all(now >= previous)
        previous = now
    assert to_epsilon(selection_rdp(ORDERS, run, Poisson(1e-9))) < to_epsilon(run)


def test_own_forms_are_never_larger_than_the_published_ones() -> None:
    rng = np.random.default_rng(11)
    for _ in range(200):
        event = dp_event.GaussianDpEvent(float(rng.uniform(0.3, 30)))
        run, mean = curve(event), float(np.exp(rng.uniform(-4, 6)))
        deltas = np.asarray(rdp_to_delta(ORDERS, run, np.log(ORDERS / (ORDERS - 1))))
        own = poisson_rdp_any_mean(ORDERS, run, mean, lambda e, d=deltas: d)  # type: ignore[misc]
        s = ORDERS - 1
        counted = np.logaddexp(-mean, math.log(mean) + s * (run + mean * deltas)) / s
        assert np.all(own <= counted * (1 + 1e-9) + 1e-12)
        if mean >= 1:
            published = poisson_rdp(ORDERS, run, mean, lambda e, d=deltas: d)  # type: ignore[misc]
            assert np.all(own <= published * (1 + 1e-9) + 1e-12)
        law = NegativeBinomial(shape=float(rng.uniform(-0.99, 5)), mean=1 + mean)
        bounds = (float(rng.uniform(0.01, 1)), float(1 + rng.exponential()))
        printed = theorem1_as_printed(ORDERS, run, law, bounds)
        assert np.all(negative_binomial_rdp(ORDERS, run, law, bounds) <= printed * (1 + 1e-12))


@pytest.mark.parametrize("shape", [-0.9, 0.0, 1.0, 3.0])
def test_pure_limits(shape: float) -> None:
    law = NegativeBinomial(shape=shape, mean=50)
    orders = np.array([2.0, 1e3, 1e6, 1e12, math.inf])
    run = np.full(5, 0.7)
    for c, big_c in BOUNDS:
        expected = (2 + shape) * (0.7 + math.log(big_c / c))
        assert pure_selection_epsilon(0.7, law, (c, big_c)) == pytest.approx(expected, rel=1e-14)
        found = selection_rdp(orders, run, law, (c, big_c))
        assert found[-1] == pytest.approx(expected, rel=1e-12)
        assert found[3] == pytest.approx(expected, rel=1e-9)
    for other in (Poisson(3), Binomial(5, 2), law.capped(60)):
        assert pure_selection_epsilon(0.7, other) == math.inf


# ---- edges --------------------------------------------------------------------------------------


def test_infinities_and_order_one_never_give_nan() -> None:
    inf = math.inf
    orders = np.array([1.0, 1.0000001, 1.5, 2.0, 8.0, 256.0, inf])
    for run in (
        [inf] * 7,
        [inf, 0.1, inf, 0.3, inf, 2.0, inf],
        [0.0] * 7,
        [0.1, 0.1, 0.2, 0.3, 1.0, inf, inf],
        [0.5] * 7,
    ):
        for law in (Geometric(10), Logarithmic(1), Poisson(0.2), Poisson(1), Poisson(30)):
            for bounds in ((1.0, 1.0), (0.75, 2.0)):
                found = selection_rdp(orders, run, law, bounds)
                assert not np.any(np.isnan(found))
                assert np.all(found >= 0.0)
                assert np.all(found[1:] >= found[:-1])
                printed = theorem1_as_printed(orders, run, law, bounds)
                assert not np.any(np.isnan(printed))
    everything = selection_rdp(orders, [inf] * 7, Geometric(10))
    assert np.all(np.isinf(everything))
    # Order 1 gets the value of the next order, and helps the minimum over b.
    found = selection_rdp([1.0, 2.0], [0.3, 50.0], Geometric(10))
    assert found[0] == found[1] == pytest.approx(50 + 2 * math.log(10) + math.log(10))


def test_orders_may_come_in_any_sequence() -> None:
    run = curve(sgd(0.71))
    order = np.random.default_rng(0).permutation(ORDERS.size)
    for law in (Geometric(10), Poisson(10)):
        expected = selection_rdp(ORDERS, run, law)
        np.testing.assert_array_equal(
            selection_rdp(ORDERS[order], run[order], law), expected[order]
        )
        twice = selection_rdp(np.append(ORDERS, 2.0), np.append(run, 0.0), law)
        assert twice[-1] == twice[np.flatnonzero(ORDERS == 2.0)[0]]


@pytest.mark.parametrize("law", [Geometric(10).capped(60), Poisson(3).capped(9), Binomial(20, 5)])
def test_other_laws_have_no_rdp_and_the_reason_is_said(law: TrialCount) -> None:
    run = curve(sgd(1.0))
    assert np.all(np.isinf(selection_rdp(ORDERS, run, law)))
    assert np.all(np.isinf(theorem1_as_printed(ORDERS, run, law, (0.5, 2.0))))
    assert repr(law) in (why_no_rdp(law) or "")
    assert why_no_rdp(Geometric(3)) is None
    assert why_no_rdp(Poisson(3)) is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: selection_rdp([], [], Geometric(3)),
        lambda: selection_rdp([0.5], [1.0], Geometric(3)),
        lambda: selection_rdp([math.nan], [1.0], Geometric(3)),
        lambda: selection_rdp([2.0], [math.nan], Geometric(3)),
        lambda: selection_rdp([2.0], [-0.1], Geometric(3)),
        lambda: selection_rdp([2.0, 3.0], [0.1], Geometric(3)),
        lambda: selection_rdp([2.0], [0.1], Geometric(3), (1.1, 2.0)),
        lambda: selection_rdp(
            [2.0], [0.1], Poisson(3), run_delta=lambda e: np.full_like(e, math.nan)
        ),
        lambda: poisson_rdp([2.0], [0.1], 0.9, zero_delta),
        lambda: poisson_rdp_any_mean([2.0], [0.1], 0.0, zero_delta),
        lambda: pure_selection_epsilon(-1.0, Geometric(3)),
        lambda: pure_selection_epsilon(math.nan, Geometric(3)),
    ],
)
def test_bad_input_is_refused(make: object) -> None:
    with pytest.raises(InvalidArgumentError):
        make()  # type: ignore[operator]


def test_a_given_profile_tightens_poisson() -> None:
    run = curve(sgd(0.71))
    loose = selection_rdp(ORDERS, run, Poisson(10))
    tight = selection_rdp(
        ORDERS, run, Poisson(10), run_delta=lambda e: np.where(e > 0.1, 1e-6, 0.3)
    )
    assert np.all(tight <= loose)
    assert tight[10] < loose[10]
    useless = selection_rdp(ORDERS, run, Poisson(10), run_delta=np.ones_like)
    np.testing.assert_array_equal(useless, loose)


# ---- attacks ------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("law", ATTACKED, ids=repr)
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
        bound = selection_rdp(ATTACK_ORDERS, run_curve(m, m_prime, ATTACK_ORDERS), law)
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


@pytest.mark.parametrize("law", ATTACKED, ids=repr)
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
        bound = selection_rdp(orders, run_curve(m, m_prime, orders), law, (c, big_c))
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
    bound = pure_selection_epsilon(1.0, law)
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
    bound = pure_selection_epsilon(0.0, law, (c, big_c))
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
    assert np.any(found > selection_rdp(ATTACK_ORDERS, zero, law))
    assert np.all(found <= selection_rdp(ATTACK_ORDERS, zero, law, (0.75, 2.0)))
    law_p = Poisson(20)
    found = opposed_densities(law_p, 0.75, 2.0)
    assert np.any(found > selection_rdp(ATTACK_ORDERS, zero, law_p))
    assert np.all(found <= selection_rdp(ATTACK_ORDERS, zero, law_p, (0.75, 2.0)))
    # Theorem 6 below mean 1: its value at eps = 0 is negative, and no divergence is.
    with pytest.raises(InvalidArgumentError):
        poisson_rdp([2.0], [0.0], 0.5, zero_delta)
    # Theorem 6 without mu * delta_hat, on runs that are not close to pure.
    m, m_prime = np.array([[0.02, 0.98]]), np.array([[0.4, 0.6]])
    run = run_curve(m, m_prime, ATTACK_ORDERS)
    rows, rows_prime = np.tile(m, (3, 1)), np.tile(m_prime, (3, 1))
    law_p = Poisson(40)
    found = divergences(law_p, rows, rows_prime, ATTACK_ORDERS)
    without = poisson_rdp(ATTACK_ORDERS, run, 40, zero_delta)
    assert np.any(found > without)
    assert np.all(found <= selection_rdp(ATTACK_ORDERS, run, law_p))


def test_poisson_null_outcome_is_counted_exactly() -> None:
    """At eps -> 0 our form is second order in the run's divergence, as the truth is."""
    h = 1e-3
    m, m_prime = np.array([[0.5, 0.5]]), np.array([[0.5 + h, 0.5 - h]])
    orders = np.array([2.0])
    run = run_curve(m, m_prime, orders)
    for mean in (0.1, 1.0):
        found = divergences(Poisson(mean), np.tile(m, (3, 1)), np.tile(m_prime, (3, 1)), orders)
        bound = poisson_rdp_any_mean(orders, run, mean, zero_delta)
        assert found[0] <= bound[0]
        assert bound[0] < 3 * found[0]
    adaptive = adaptive_poisson_rdp(orders, run, 0.1, zero_delta, (1.0, 1.0))
    assert adaptive[0] > bound[0]


def test_the_proof_page_exists() -> None:
    page = Path(__file__).parents[3] / "docs" / "explanation" / "rdp-of-selection.md"
    text = page.read_text(encoding="utf-8")
    for heading in ("Theorem 1", "Theorem 2", "Theorem 3", "Precondition", "Proof"):
        assert heading in text
