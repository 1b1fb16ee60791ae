"""RDP of selection: published formulas, our own forms, and attacks that must stay below them."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant, rdp_privacy_accountant

from optuna_dp import Binomial, Geometric, Logarithmic, NegativeBinomial, Poisson, TrialCount
from optuna_dp.accounting.rdp_curves import rdp_to_delta
from optuna_dp.attacks.comparisons import theorem1_as_printed
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.selection.event import selection_epsilon
from optuna_dp.selection.laws.poisson import poisson_rdp

FloatArray = npt.NDArray[np.float64]


ORDERS = np.array(rdp_privacy_accountant.DEFAULT_RDP_ORDERS, dtype=np.float64)


def sgd(noise: float) -> dp_event.DpEvent:
    step = dp_event.PoissonSampledDpEvent(256 / 60000, dp_event.GaussianDpEvent(noise))
    return dp_event.SelfComposedDpEvent(step, 2344)


def curve(event: dp_event.DpEvent, orders: FloatArray = ORDERS) -> FloatArray:
    return np.asarray(RdpAccountant(orders).compose(event).rdp, dtype=np.float64)


def to_epsilon(rdp: FloatArray, delta: float = 1e-5) -> float:
    return float(rdp_privacy_accountant.compute_epsilon(ORDERS, rdp, delta)[0])


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
    np.testing.assert_allclose(law.rdp(ORDERS, run), theirs, rtol=1e-6)
    theirs = curve(dp_event.RepeatAndSelectDpEvent(event, mean, math.inf))
    monotone = np.minimum.accumulate(theirs[::-1])[::-1]
    assert np.all(Poisson(mean).rdp(ORDERS, run) <= monotone * (1.0 + 1e-6))


@pytest.mark.parametrize(
    ("event", "law", "expected"),
    [
        (sgd(0.71), Logarithmic(10), 5.449),
        (sgd(0.71), Geometric(10), 6.131),
        (sgd(0.71), Geometric(100), 7.952),
        (sgd(0.71), Poisson(10), 6.195),
        (sgd(1.0), Geometric(10), 2.734),
        (sgd(1.0), Geometric(100), 3.531),
        (dp_event.GaussianDpEvent(4), Geometric(10), 2.154),
        (dp_event.GaussianDpEvent(4), Geometric(100), 2.716),
    ],
)
def test_reference_values(event: dp_event.DpEvent, law: TrialCount, expected: float) -> None:
    # The references come from a finer grid of orders than the default one.
    found = to_epsilon(law.rdp(ORDERS, curve(event)))
    assert expected - 0.001 <= found <= expected + 0.004


def test_reference_value_of_theorem_1_as_printed() -> None:
    run, bounds = curve(sgd(0.71)), (0.75, 2.0)
    printed = to_epsilon(theorem1_as_printed(ORDERS, run, Geometric(100), bounds))
    assert printed == pytest.approx(11.15, abs=0.005)
    assert to_epsilon(Geometric(100).rdp(ORDERS, run, bounds)) < printed - 0.2


@pytest.mark.parametrize("shape", [-0.7, -1e-10, 0.0, 1e-10, 0.4, 1.0, 6.0])
@pytest.mark.parametrize(("c", "big_c"), [(1.0, 1.0), (0.75, 2.0), (0.99, 1.001)])
def test_formulas_in_arbitrary_precision(shape: float, c: float, big_c: float) -> None:
    law = NegativeBinomial(shape=shape, mean=37)
    orders = np.array([1.25, 2.0, 5.5, 64.0])
    run = np.array([0.3, 0.45, 1.2, 9.0])
    tight = law.rdp(orders, run, (c, big_c))
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


@pytest.mark.parametrize("mean", [1e-6, 0.7, 1.0, 40.0])
def test_the_poisson_formula_in_arbitrary_precision(mean: float) -> None:
    orders, run, deltas = [1.25, 2.0, 64.0], [1e-9, 0.45, 9.0], [0.3, 1e-3, 1e-12]
    found = poisson_rdp(orders, run, mean, deltas)
    with mpmath.workprec(200):
        expected = [
            mpmath.log1p(mean * mpmath.exp((a - 1) * mean * d) * mpmath.expm1((a - 1) * e))
            / (a - 1)
            for a, e, d in zip(orders, run, deltas, strict=True)
        ]
    for i in range(len(orders)):
        assert found[i] == pytest.approx(float(min(expected[i:])), rel=1e-9)


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
    run, all_bounds = curve(event), BOUNDS[:1] if family is Poisson else BOUNDS
    means = [1.0, 1.0 + 1e-9, 1.5, 3.0, 10.0, 1e3, 1e5]
    for bounds in all_bounds:
        previous = np.zeros_like(run)
        for mean in means:
            now = family(mean).rdp(ORDERS, run, bounds)  # type: ignore[operator]
            assert np.all(now >= previous * (1 - 1e-12))
            assert np.all(np.diff(now) >= 0.0)
            previous = now
    law = family(7.0)  # type: ignore[operator]
    for inner, outer in itertools.combinations(all_bounds, 2):
        if outer[0] <= inner[0] and outer[1] >= inner[1]:
            small = law.rdp(ORDERS, run, inner)
            assert np.all(law.rdp(ORDERS, run, outer) >= small * (1 - 1e-12))
    rng = np.random.default_rng(3)
    for bounds in all_bounds:
        larger = run + rng.uniform(0, 0.2, run.size)
        assert np.all(
            law.rdp(ORDERS, larger, bounds) >= law.rdp(ORDERS, run, bounds) * (1 - 1e-12)
        )


def test_small_poisson_means_are_monotone_and_vanish() -> None:
    run = curve(sgd(0.71))
    previous = np.zeros_like(run)
    for mean in (1e-9, 1e-3, 0.1, 0.5, 0.999999, 1.0):
        now = Poisson(mean).rdp(ORDERS, run)
        assert np.all(now >= previous)
        previous = now
    assert to_epsilon(Poisson(1e-9).rdp(ORDERS, run)) < to_epsilon(run)


@pytest.mark.slow
def test_own_forms_are_never_larger_than_the_published_ones() -> None:
    rng = np.random.default_rng(11)
    for _ in range(200):
        event = dp_event.GaussianDpEvent(float(rng.uniform(0.3, 30)))
        run, mean = curve(event), float(np.exp(rng.uniform(-4, 6)))
        deltas = np.asarray(rdp_to_delta(ORDERS, run, np.log(ORDERS / (ORDERS - 1))))
        own = poisson_rdp(ORDERS, run, mean, deltas)
        s = ORDERS - 1
        counted = np.logaddexp(-mean, math.log(mean) + s * (run + mean * deltas)) / s
        assert np.all(own <= counted * (1 + 1e-9) + 1e-12)
        if mean >= 1:
            published = run + mean * deltas + math.log(mean) / s
            assert np.all(own <= published * (1 + 1e-9) + 1e-12)
        law = NegativeBinomial(shape=float(rng.uniform(-0.99, 5)), mean=1 + mean)
        bounds = (float(rng.uniform(0.01, 1)), float(1 + rng.exponential()))
        printed = theorem1_as_printed(ORDERS, run, law, bounds)
        assert np.all(law.rdp(ORDERS, run, bounds) <= printed * (1 + 1e-12))


@pytest.mark.parametrize("shape", [-0.9, 0.0, 1.0, 3.0])
def test_pure_limits(shape: float) -> None:
    law = NegativeBinomial(shape=shape, mean=50)
    orders = np.array([2.0, 1e3, 1e6, 1e12, math.inf])
    run = np.full(5, 0.7)
    for c, big_c in BOUNDS:
        expected = (2 + shape) * (0.7 + math.log(big_c / c))
        assert selection_epsilon(0.7, law, (c, big_c)) == pytest.approx(expected, rel=1e-14)
        found = law.rdp(orders, run, (c, big_c))
        assert found[-1] == pytest.approx(expected, rel=1e-12)
        assert found[3] == pytest.approx(expected, rel=1e-9)
    # The formula is that of this law alone: others have at most n times a run's epsilon, or none.
    assert selection_epsilon(0.7, Poisson(3)) == math.inf
    for other, runs in ((Binomial(5, 2), 5), (law.capped(60), 60)):
        assert selection_epsilon(0.7, other) == pytest.approx(0.7 * runs)


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
                found = law.rdp(orders, run, bounds)
                assert not np.any(np.isnan(found))
                assert np.all(found >= 0.0)
                assert np.all(found[1:] >= found[:-1])
                printed = theorem1_as_printed(orders, run, law, bounds)
                assert not np.any(np.isnan(printed))
    everything = Geometric(10).rdp(orders, [inf] * 7)
    assert np.all(np.isinf(everything))
    # Order 1 gets the value of the next order, and helps the minimum over b.
    found = Geometric(10).rdp([1.0, 2.0], [0.3, 50.0])
    assert found[0] == found[1] == pytest.approx(50 + 2 * math.log(10) + math.log(10))


def test_orders_may_come_in_any_sequence() -> None:
    run = curve(sgd(0.71))
    order = np.random.default_rng(0).permutation(ORDERS.size)
    for law in (Geometric(10), Poisson(10)):
        expected = law.rdp(ORDERS, run)
        np.testing.assert_array_equal(law.rdp(ORDERS[order], run[order]), expected[order])
        twice = law.rdp(np.append(ORDERS, 2.0), np.append(run, 0.0))
        assert twice[-1] == twice[np.flatnonzero(ORDERS == 2.0)[0]]


@pytest.mark.parametrize("law", [Geometric(10).capped(60), Poisson(3).capped(9), Binomial(20, 5)])
def test_other_laws_have_no_rdp_and_the_reason_is_said(law: TrialCount) -> None:
    run = curve(sgd(1.0))
    assert np.all(np.isinf(law.rdp(ORDERS, run)))
    assert np.all(np.isinf(theorem1_as_printed(ORDERS, run, law, (0.5, 2.0))))
    assert repr(law) in (law.why_no_rdp() or "")
    assert Geometric(3).why_no_rdp() is None
    assert Poisson(3).why_no_rdp() is None
    assert "density bounds" in (Poisson(3).why_no_rdp((0.5, 2.0)) or "")
    assert np.all(np.isinf(Poisson(3).rdp(ORDERS, run, (0.5, 2.0))))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Geometric(3).rdp([], []),
        lambda: Geometric(3).rdp([0.5], [1.0]),
        lambda: Geometric(3).rdp([math.nan], [1.0]),
        lambda: Geometric(3).rdp([2.0], [math.nan]),
        lambda: Geometric(3).rdp([2.0], [-0.1]),
        lambda: Geometric(3).rdp([2.0, 3.0], [0.1]),
        lambda: Geometric(3).rdp([2.0], [0.1], (1.1, 2.0)),
        lambda: poisson_rdp([2.0], [0.1], 0.0, [0.0]),
        lambda: selection_epsilon(-1.0, Geometric(3)),
        lambda: selection_epsilon(math.nan, Geometric(3)),
    ],
)
def test_bad_input_is_refused(make: object) -> None:
    with pytest.raises(InvalidArgumentError):
        make()  # type: ignore[operator]


def test_the_proof_page_exists() -> None:
    page = Path(__file__).parents[3] / "docs" / "explanation" / "rdp-of-selection.md"
    text = page.read_text(encoding="utf-8")
    for heading in ("Theorem 1", "Theorem 2", "Precondition", "Proof"):
        assert heading in text
