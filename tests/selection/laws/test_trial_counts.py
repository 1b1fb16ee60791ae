"""Laws of T: probabilities, exact drawing, records."""

from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, ClassVar

import mpmath
import numpy as np
import pytest
from refusals import refuses
from selection.laws.trial_count_reference import mp_pmf

import optuna_dp as odp
from optuna_dp import Binomial, Geometric, Logarithmic, NegativeBinomial, Poisson, TrialCount
from optuna_dp.errors import InvalidArgumentError

SHAPES = (-0.9, -0.5, -1e-9, 0.0, 1e-12, 1e-3, 0.3, 0.999, 1.0, 1.5, 3.3, 20.0)


LAWS: list[TrialCount] = [
    Geometric(1),
    Geometric(20),
    Logarithmic(10),
    Geometric(gamma=0.3),
    Logarithmic(gamma=0.3),
    NegativeBinomial(shape=-0.5, mean=5),
    NegativeBinomial(shape=2.5, gamma=0.1),
    NegativeBinomial(shape=0.5, gamma=1 - 1e-9),
    Poisson(0.3),
    Poisson(12),
    Binomial(1, 1),
    Binomial(20, 5),
    Binomial(7, 7),
    Geometric(10).capped(30),
    Geometric(100).capped(1),
    Logarithmic(10).capped(7),
    Poisson(12).capped(15),
    Binomial(20, 5).capped(6),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mean", [1 + 1e-6, 1.5, 10.0, 1e6])
def test_negative_binomial_against_arbitrary_precision(shape: float, mean: float) -> None:
    law = NegativeBinomial(shape=shape, mean=mean)
    with mpmath.workprec(400):
        g, eta = mpmath.mpf(law.gamma), mpmath.mpf(law.shape)
        true_mean = (
            (1 / g - 1) / mpmath.log(1 / g) if eta == 0 else eta * (1 - g) / (g * (1 - g**eta))
        )
        assert abs(true_mean / mean - 1) < 1e-13
        total = mpmath.mpf(0)
        for k in range(1, 61):
            expected = mp_pmf(law, k)
            total += expected
            if expected > 1e-290:
                assert law.pmf(k) == pytest.approx(float(expected), rel=2e-12)
            if 1 - total > 1e-60:
                assert law.tail(k) == pytest.approx(float(1 - total), rel=2e-12)
            assert law.cdf(k) == pytest.approx(float(total), rel=1e-11)
        for s in (0.0, 1e-9, 0.3, 0.999, 1 - 1e-9, 1.0):
            q = 1 - (1 - g) * mpmath.mpf(s)
            phi = mpmath.log(q) / mpmath.log(g) if eta == 0 else (q**-eta - 1) / (g**-eta - 1)
            slope = true_mean * (g / q) ** (eta + 1)
            assert law.pgf(s) == pytest.approx(float(phi), rel=1e-11)
            assert law.pgf_derivative(s) == pytest.approx(float(slope), rel=1e-11)
        for fraction in (1e-12, 0.05, 1.0):
            q = g + (1 - g) * mpmath.mpf(fraction)
            hit = (
                1 - mpmath.log(q) / mpmath.log(g)
                if eta == 0
                else 1 - (q**-eta - 1) / (g**-eta - 1)
            )
            assert law.hit_probability(fraction) == pytest.approx(float(hit), rel=1e-11, abs=1e-10)


@pytest.mark.parametrize(
    ("law", "n", "expected"),
    [
        # From hypergeometric functions at 320 bits.
        (NegativeBinomial(shape=0.0, gamma=6e-8), 10**6, 0.13803098716316),
        (NegativeBinomial(shape=0.0, gamma=6e-8), 10**9, 8.63474479102e-30),
        (NegativeBinomial(shape=-0.5, gamma=0.01), 3000, 1.44932490707674e-17),
        (NegativeBinomial(shape=3.3, gamma=6e-8), 10**9, 4.16938934694991e-23),
        (NegativeBinomial(shape=-0.95, gamma=1e-30), 10**9, 1.44754523985996e-10),
        (NegativeBinomial(shape=0.5, gamma=0.01), 3000, 8.971455881089e-15),
    ],
)
def test_far_tails(law: TrialCount, n: int, expected: float) -> None:
    ctx = mpmath.MPContext()
    ctx.prec = 320
    assert law.tail(n) == pytest.approx(float(law.exact_tail(ctx, n)), rel=1e-11)
    # gamma is a float on both sides; the quoted value is rounded to 12 digits or more.
    assert law.tail(n) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    "law", [Poisson(0.01), Poisson(12), Poisson(400), Binomial(30, 7), Binomial(3, 3)]
)
def test_poisson_and_binomial_against_arbitrary_precision(law: TrialCount) -> None:
    top = law.maximum or int(law.mean + 12 * math.sqrt(law.mean) + 30)
    pmf = [mp_pmf(law, k) for k in range(top + 1)]
    with mpmath.workprec(400):
        total = mpmath.mpf(0)
        for k in range(top + 1):
            total += pmf[k]
            assert law.pmf(k) == pytest.approx(float(pmf[k]), rel=1e-12, abs=1e-300)
            assert law.cdf(k) == pytest.approx(float(total), rel=1e-12, abs=1e-300)
            if law.maximum is None and 1 - total > 1e-60:
                assert law.tail(k) == pytest.approx(float(1 - total), rel=1e-11)
    if law.maximum is not None:
        assert law.tail(law.maximum) == 0.0
    for s in (0.0, 0.4, 1.0):
        assert law.pgf(s) == pytest.approx(
            float(sum(p * mpmath.mpf(s) ** k for k, p in enumerate(pmf))), rel=1e-12, abs=1e-300
        )
        assert law.pgf_derivative(s) == pytest.approx(
            float(sum(k * p * mpmath.mpf(s) ** (k - 1) for k, p in enumerate(pmf) if k)),
            rel=1e-12,
            abs=1e-300,
        )


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_everything_is_consistent(law: TrialCount) -> None:
    top = law.maximum if law.maximum is not None else law.quantile(1 - 1e-13)
    k = np.arange(top + 1)
    pmf = law.pmf(k)
    assert pmf.dtype == np.float64
    assert float(pmf.sum()) == pytest.approx(1.0, abs=1e-12)
    assert float((k * pmf).sum()) == pytest.approx(law.mean, rel=1e-9)
    below, above = (np.array([of(i) for i in range(top + 1)]) for of in (law.cdf, law.tail))
    np.testing.assert_allclose(below, np.cumsum(pmf), rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(above, 1 - np.cumsum(pmf), rtol=0, atol=1e-12)
    assert law.pmf(-1) == 0.0
    assert law.cdf(-1) == 0.0
    assert law.tail(-1) == 1.0
    s = np.linspace(0, 1, 11)
    np.testing.assert_allclose(law.pgf(s), (pmf * s[:, None] ** k).sum(axis=1), atol=1e-12)
    slope = (k[1:] * pmf[1:] * s[:, None] ** (k[1:] - 1)).sum(axis=1)
    np.testing.assert_allclose(law.pgf_derivative(s), slope, rtol=1e-9, atol=1e-12)
    assert law.pgf_derivative(1.0) == pytest.approx(law.mean, rel=1e-12)
    for fraction in (0.0, 0.05, 1.0):
        expected = 1 - law.pgf(1 - fraction)
        assert law.hit_probability(fraction) == pytest.approx(expected, abs=1e-13)
    for p in (1e-9, 0.1, 0.5, 0.9, 0.999):
        q = law.quantile(p)
        assert law.cdf(q) >= p
        assert law.cdf(q - 1) < p
    assert isinstance(law.pmf(1), float)
    assert isinstance(law.pgf(0.5), float)


def test_shapes_near_zero_are_continuous() -> None:
    exact = Logarithmic(10)
    for shape in (1e-6, -1e-6, 1e-10, -1e-10, 5e-324):
        near = NegativeBinomial(shape=shape, mean=10)
        assert near.gamma == pytest.approx(exact.gamma, rel=10 * abs(shape) + 1e-13)
        for n in (1, 10, 200):
            assert near.tail(n) == pytest.approx(exact.tail(n), rel=1e3 * abs(shape) + 1e-12)


def test_mean_one_is_the_limit_in_which_t_is_one() -> None:
    for law in (Geometric(1), Logarithmic(1), NegativeBinomial(shape=-0.5, mean=1)):
        assert law.gamma == 1.0
        assert law.maximum == 1
        assert law.pmf(1) == 1.0
        assert law.sample() == 1
        assert law.quantile(1.0) == 1
        assert TrialCount.from_json(law.to_json()) == law
    near = NegativeBinomial(shape=3.0, mean=1 + 1e-12)
    assert near.tail(1) == pytest.approx(1e-12, rel=1e-3)  # gamma itself is rounded to 1e-16


def test_capped_laws() -> None:
    law = Geometric(10).capped(30)
    assert law.capped(40) is law
    assert law.capped(20) == Geometric(10).capped(20)
    assert law.mean == pytest.approx(10 * (1 - 0.9**30), rel=1e-13)
    assert law.pmf(30) == pytest.approx(0.9**29, rel=1e-13)
    assert law.pmf(31) == 0.0
    assert Binomial(5, 2).capped(5) == Binomial(5, 2)
    # A cap far out in the tail costs no memory in the generating function.
    assert Geometric(10).capped(10**6).pgf_derivative(1.0) == pytest.approx(10.0, rel=1e-12)


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_records_and_identity(law: TrialCount) -> None:
    again = TrialCount.from_json(json.loads(json.dumps(law.to_json())))
    assert again == law
    assert hash(again) == hash(law)
    assert repr(again) == repr(law)
    assert again.mean == law.mean
    assert type(again) is type(law)
    assert eval(repr(law)) == law  # repr is what a user types
    assert pickle.loads(pickle.dumps(law)) == law
    with pytest.raises(AttributeError):
        law.mean = 3.0  # type: ignore[misc]


def test_two_spellings_of_one_law_are_equal() -> None:
    assert (
        Geometric(20)
        == NegativeBinomial(shape=1, mean=20)
        == NegativeBinomial(shape=1, gamma=0.05)
    )
    assert Logarithmic(10) == NegativeBinomial(shape=-0.0, mean=10)
    assert len({Geometric(20), NegativeBinomial(shape=1, gamma=0.05)}) == 1
    assert Geometric(20) != Geometric(21)
    assert Poisson(3) != Geometric(3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: NegativeBinomial(shape=-1, mean=3),
        lambda: NegativeBinomial(shape=math.nan, mean=3),
        lambda: NegativeBinomial(shape=math.inf, mean=3),
        lambda: NegativeBinomial(shape=1),
        lambda: NegativeBinomial(shape=1, gamma=0.5, mean=2),
        lambda: NegativeBinomial(shape=1, gamma=0.0),
        lambda: NegativeBinomial(shape=1, gamma=1.0),
        lambda: NegativeBinomial(shape=1, gamma=math.nan),
        lambda: NegativeBinomial(shape=1, gamma=1e-305),
        lambda: NegativeBinomial(shape=-0.999, mean=1e6),
        lambda: Geometric(0.99),
        lambda: Geometric(math.inf),
        lambda: Geometric(),
        lambda: Geometric(None),
        lambda: Geometric(3, gamma=0.5),
        lambda: Geometric(gamma=1.0),
        lambda: Logarithmic("10"),
        lambda: Poisson(0),
        lambda: Poisson(-1),
        lambda: Poisson(math.nan),
        lambda: Poisson(1e9),
        lambda: Binomial(0, 1),
        lambda: Binomial(2.5, 1),
        lambda: Binomial(3, 3.5),
        lambda: Binomial(True, 1),
        lambda: Geometric(3).capped(0),
        lambda: Geometric(3).capped(2.5),
        lambda: Geometric(3).capped(10**9),
        lambda: Geometric(3).pgf(1.1),
        lambda: Geometric(3).pgf_derivative(np.array([0.5, math.nan])),
        lambda: Geometric(3).pmf(1.5),
        lambda: Geometric(3).pmf(np.array([1.5])),
        lambda: Geometric(3).tail(0.5),
        lambda: Geometric(3).quantile(1.0),
        lambda: Geometric(3).quantile(0.0),
        lambda: Geometric(3).hit_probability(-0.1),
        lambda: Geometric(3).invert(1 << 128),
    ],
)
def test_bad_input_is_refused(make: object) -> None:
    with pytest.raises(InvalidArgumentError):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        {},
        {"law": "zipf", "mean": 3},
        {"law": ["poisson"], "mean": 3},
        {"law": "poisson"},
        {"law": "poisson", "mean": 3, "extra": 1},
        {"law": "poisson", "mean": "3"},
        {"law": "poisson", "mean": True},
        {"law": "poisson", "mean": math.nan},
        {"law": "geometric", "shape": 1.0, "gamma": 0.05, "mean": 21.0},
        {"law": "geometric", "shape": 0.0, "gamma": 0.05, "mean": 20.0},
        {"law": "geometric", "shape": 1.0, "gamma": 0.0, "mean": 20.0},
        {"law": "geometric", "shape": 1.0, "gamma": None, "mean": 20.0},
        {"law": "negative_binomial", "shape": -1.0, "gamma": 0.5},
        {"law": "negative_binomial", "shape": 1.0},
        {"law": "binomial", "n": 3.5, "mean": 1.0},
        {"law": "capped", "n": 0, "base": {"law": "poisson", "mean": 3.0}},
        {"law": "capped", "n": 5, "base": 3},
        {
            "law": "capped",
            "n": 5,
            "base": {"law": "capped", "n": 9, "base": {"law": "poisson", "mean": 3.0}},
        },
    ],
)
def test_corrupted_records_are_refused(record: object) -> None:
    with pytest.raises(InvalidArgumentError):
        TrialCount.from_json(record)


@pytest.mark.slow
def test_importing_the_laws_is_light() -> None:
    code = (
        "import sys; from optuna_dp import Binomial, Geometric, Logarithmic, Poisson;from "
        "optuna_dp.selection.laws.capped import Capped;print([m for m in ('scipy', 'mpmath', "
        "'optuna', 'dp_accounting') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


# -- laws of one's own ---------------------------------------------------------------------------


def _of_one(**members: object) -> type[TrialCount]:
    """A class of a law of one's own, as a script would define it."""
    return type("Own", (TrialCount,), {"__module__": "script", "exact_tail": None, **members})


def test_a_law_is_charged_for_by_its_own_class_and_name() -> None:
    """A subclass would be charged for as its parent, and a namesake as whoever has the name."""
    for parent in (Geometric, Poisson, _of_one(law="the first of its name")):
        with refuses("class"):
            type("Own", (parent,), {"__module__": "script", "law": "another"})
    for law in ("poisson", "the first of its name", 7):
        with refuses("law"):
            _of_one(law=law)
    with refuses("sample"):
        _of_one(law="draws by itself", sample=lambda law, uniform_bits=None: 20)


@dataclass(frozen=True)
class Weights(TrialCount):
    """T is 1, 2, ... with these chances; a law that a user might write."""

    weights: tuple  # no type of what it holds
    law: ClassVar[str] = "weights"

    @property
    def mean(self) -> float:
        return float(np.dot(self.weights, np.arange(1, 1 + len(self.weights))))

    @property
    def maximum(self) -> int:
        return len(self.weights)

    def _pmf(self, k: np.ndarray) -> np.ndarray:
        return np.append(0.0, self.weights)[np.minimum(k, len(self.weights)).astype(int)]

    def _tail(self, n: int) -> float:
        return float(sum(self.weights[n:]))

    def _pgf(self, s: np.ndarray) -> np.ndarray:
        return np.polynomial.polynomial.polyval(s, np.append(0.0, self.weights))

    def _pgf_derivative(self, s: np.ndarray) -> np.ndarray:
        return np.polynomial.polynomial.polyval(
            s, np.array(self.weights) * np.arange(1, 1 + len(self.weights))
        )

    def exact_tail(self, ctx: Any, n: int) -> Any:
        return ctx.fsum(self.weights[n:])


@dataclass(frozen=True)
class OnlyTail(TrialCount):
    """The law of T + 2 for a binomial T, of which nothing is said but what no default can know."""

    mean: float
    law: ClassVar[str] = "only a tail"
    of: ClassVar[TrialCount] = Binomial(18, 5)

    @property
    def maximum(self) -> int:
        return 20

    def exact_tail(self, ctx: Any, n: int) -> Any:
        return self.of.exact_tail(ctx, n - 2) if n >= 2 else ctx.mpf(1)


def test_a_bounded_law_needs_its_tail_only() -> None:
    law, s = OnlyTail(7.0), np.linspace(0.0, 1.0, 11)
    k = np.arange(25)
    np.testing.assert_allclose(law.pmf(k), [*[0.0] * 2, *law.of.pmf(k[:23])], rtol=1e-12)
    assert law.tail(6) == pytest.approx(law.of.tail(4), rel=1e-12)
    assert law.cdf(6) == pytest.approx(law.of.cdf(4), rel=1e-12)
    np.testing.assert_allclose(law.pgf(s), s**2 * law.of.pgf(s), rtol=1e-12)
    slope = 2 * s * law.of.pgf(s) + s**2 * law.of.pgf_derivative(s)
    np.testing.assert_allclose(law.pgf_derivative(s), slope, rtol=1e-12)
    for u in (0, 1 << 126, 1 << 127, (1 << 128) - 1):
        assert law.invert(u) == law.of.invert(u) + 2
    attack, bound = odp.selection_guarantee(odp.gaussian(4.0), law).bounds(1e-5)
    assert 0.0 < attack <= bound <= 1.05 * attack
    assert odp.selection_guarantee(odp.pure_dp(0.1), law).epsilon(0.0) == pytest.approx(2.0)


def test_a_law_whose_mean_is_another_or_that_cannot_be_charged_for_is_refused() -> None:
    @dataclass(frozen=True)
    class Unbounded(TrialCount):
        mean: float
        law: ClassVar[str] = "unbounded, without a generating function"

        def exact_tail(self, ctx: Any, n: int) -> Any:
            return ctx.mpf(2) ** -n

    with refuses("law"):
        odp.selection_guarantee(odp.gaussian(1.0), OnlyTail(5.0))
    with pytest.raises(InvalidArgumentError, match="_pgf_derivative"):
        odp.selection_guarantee(odp.gaussian(1.0), Unbounded(1.0))


def test_a_law_that_json_does_not_give_back_is_refused_where_it_is_given() -> None:
    """A tuple becomes a list, which is not what was stored: not at the first ``.delta()``."""
    law = Weights((0.25, 0.75))
    for give in (
        lambda: odp.selection_guarantee(odp.gaussian(1.0), law),
        lambda: odp.selection_guarantee(odp.gaussian(1.0), law.capped(1)),
        lambda: odp.RandTuneSampler(trials=law),
    ):
        with pytest.raises(InvalidArgumentError, match="tuple"):
            give()


def test_a_law_that_json_gives_back_as_another_one_is_refused() -> None:
    """Its record is rounded: who reads it would charge for another law."""

    @dataclass(frozen=True)
    class Rounded(TrialCount):
        mean: float
        law: ClassVar[str] = "rounded"
        exact_tail = None

        def _pgf_derivative(self, s: np.ndarray) -> np.ndarray:
            return np.full_like(s, self.mean)

        def to_json(self) -> dict[str, Any]:
            return {"law": self.law, "mean": round(self.mean, 2)}

    assert Rounded(2.5).checked() == Rounded(2.5)
    with refuses("law"):
        odp.selection_guarantee(odp.gaussian(1.0), Rounded(2.503))
