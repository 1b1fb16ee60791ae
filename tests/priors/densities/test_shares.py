"""Integer shares: exact bounds, exact sum, exact draw."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from refusals import refuses

from optuna_dp.priors.densities.shares import (
    BoundedDensity,
    enforce,
    integer_masses,
    share_limits,
    share_unit,
    uniform_masses,
)


class _EveryTicket:
    """A random source that hands out every possible ticket once."""

    def integers(self, low: int, high: int, size: int, dtype: type) -> np.ndarray:
        assert (low, size) == (0, high)
        return np.arange(high, dtype=dtype)


def test_draw_gives_each_candidate_exactly_its_share() -> None:
    shares = np.array([3, 4, 5, 4], dtype=np.int64)
    density = BoundedDensity(shares, uniform_masses(4), 4, (0.75, 1.25))
    drawn = density.draw_many(_EveryTicket(), density.total)  # type: ignore[arg-type]
    assert np.bincount(drawn).tolist() == shares.tolist()


@pytest.mark.parametrize("shares", [[2, 4, 6, 4], [3, 4, 5, 5], [4, 4, 4, 3]])
def test_a_density_outside_the_bounds_or_sum_cannot_exist(shares: list[int]) -> None:
    with pytest.raises(ValueError, match="bounds"):
        BoundedDensity(np.array(shares, dtype=np.int64), uniform_masses(4), 4, (0.75, 1.25))


def test_limits_are_inside_the_bounds_in_exact_arithmetic() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        n = int(rng.integers(1, 30))
        masses = rng.integers(1, int(10 ** rng.integers(1, 8)), size=n)
        c = float(rng.choice([rng.random(), 1e-9, 1.0, 1 / 3, 0.1]))
        big_c = float(rng.choice([1.0 + rng.random(), 1.0, 1e300, 1.1, 1 + 1e-12]))
        unit = share_unit(masses)
        low, high, total = share_limits(masses, unit, (c, big_c))
        assert total == unit * int(masses.sum()) <= 2**53
        for m, a, b in zip(masses, low, high, strict=True):
            base = int(m) * unit
            assert Fraction(c) * base <= int(a) <= base <= int(b) <= Fraction(big_c) * base


def test_renormalised_floats_would_exceed_the_bound() -> None:
    # Why shares are integers: the usual p = f / f.sum() leaves [c, C].
    rng = np.random.default_rng(1)
    bounds, naive_outside = (0.75, 1.1), 0
    for _ in range(200):
        f = np.clip(rng.exponential(size=7), *bounds)
        density = enforce(f, uniform_masses(7), bounds)
        exact = [Fraction(int(k), density.total) * 7 for k in density.shares]
        assert all(Fraction(0.75) <= ratio <= Fraction(1.1) for ratio in exact)
        p = density.ratios / density.ratios.sum()
        p = np.full(7, 0.1) if not p.sum() else p
        naive = f / f.sum() * 7
        naive_outside += bool((naive > 1.1).any() or (naive < 0.75).any())
    assert naive_outside > 100


@pytest.mark.parametrize("bounds", [(0.75, 2.0), (1e-6, 50.0), (1.0, 1.0), (0.999999, 1.000001)])
def test_enforce_accepts_any_floats_whatever(bounds: tuple[float, float]) -> None:
    rng = np.random.default_rng(2)
    odd = np.array([np.nan, np.inf, -np.inf, 1e308, -1e308, 0.0, -0.0, 5e-324])
    for n in (1, 2, 5, 100):
        for masses in (uniform_masses(n), integer_masses(list(rng.random(n) + 1e-3))):
            density = enforce(rng.choice(odd, n), masses, bounds)
            assert int(density.shares.sum()) == density.total
            assert density.ratios.min() >= bounds[0]
            assert density.ratios.max() <= bounds[1]


def test_float_ratios_of_equal_masses_add_up_exactly_in_any_order() -> None:
    density = enforce(np.linspace(0.5, 1.5, 999), uniform_masses(999), (0.5, 1.5))
    for order in (slice(None), slice(None, None, -1)):
        total = 0.0
        for f in density.ratios[order]:
            total += f
        assert total == 999.0


def test_integer_masses_keep_whole_numbers_and_stay_close_otherwise() -> None:
    assert integer_masses([2.0, 4.0, 6.0]).tolist() == [1, 2, 3]
    assert integer_masses([0.1, 0.1]).tolist() == [1, 1]
    weights = np.random.default_rng(3).random(500) + 1e-4
    masses = integer_masses(list(weights))
    np.testing.assert_allclose(masses / masses.sum(), weights / weights.sum(), rtol=1e-3)


@pytest.mark.parametrize(
    ("weights", "argument"),
    [
        ([], "weights"),
        ([0.0, 1.0], "weights[0]"),
        ([-1.0, 1.0], "weights[0]"),
        ([float("nan")], "weights[0]"),
        ([float("inf"), 1.0], "weights[0]"),
        ([1e-12, 1.0], "weights"),
    ],
)
def test_integer_masses_refuses(weights: list[float], argument: str) -> None:
    with refuses(argument):
        integer_masses(weights)
