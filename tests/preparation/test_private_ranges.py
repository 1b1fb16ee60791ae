"""Private ranges: what one record moves, what the query costs, and where the ranges lie.

Noise has no seed. Where it matters it is too small to move a count, or far within the bounds: a
false failure has a probability below 1e-9.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from refusals import refuses

from optuna_dp.accounting.gaussian_dp import mu_of
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.preparation import private_ranges as module
from optuna_dp.preparation.private_ranges import histogram, private_ranges
from optuna_dp.preparation.range_query import (
    STRENGTH_OF_THIRD_ROUND,
    STRENGTH_THAT_WORKS,
    RangeQuery,
)

RNG = np.random.default_rng(0)
# Of a noise this small, half a count is fifty standard deviations.
NO_NOISE = (0.01, 0.01, 0.01)
HOSTILE = {
    "empty": np.array([]),
    "missing": np.full(50, np.nan),
    "infinite": np.array([np.inf, -np.inf] * 30),
    "huge": np.array([1e308, -1e308] * 30),
    "tiny": np.full(60, 5e-324),
    "zero": np.zeros(60),
    "minus zero": np.full(60, -0.0),
    "constant": np.full(60, 7.25),
    "one record": np.array([3.0]),
    "mixed": np.array([np.nan, np.inf, -np.inf, 0.0, 1.0, 1e300, -5e-324] * 9),
    "whole numbers": np.arange(60),
    "single precision": np.linspace(-1, 1, 60, dtype=np.float32),
}
OUTER = [
    *[(0.0, 1.0), (-1.0, 1.0), (-1e100, 1e100), (0.0, 1e100), (-5.0, 0.0), (3.0, 10.0)],
    *[(-20.0, -7.0), (1e99, 1e100), (0.0, 1e-99), (-1e-99, 0.0), (1.0, 1.0 + 2.0**-52)],
    *[(1e15, 1e15 + 1.0), (-1e12 - 1.0, -1e12)],
]


def query_of(columns: int, noises: tuple[float, ...] = NO_NOISE) -> RangeQuery:
    return RangeQuery(columns=columns, records=1000, noise_multipliers=noises)


def without_noise(values: Any, outer: tuple[float, float]) -> tuple[float, float]:
    return private_ranges([values], [outer], query_of(1))[0]


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[Any], int, float]]:
    """The grids, the number of noises and their deviation of each round, as they are used."""
    used: list[tuple[list[Any], int, float]] = []
    grids: list[Any] = []

    def watched_histogram(values: Any, grid: Any) -> Any:
        grids.append(grid)
        return histogram(values, grid)

    def watched_noise(count: int, deviation: float) -> Any:
        used.append((list(grids), count, deviation))
        grids.clear()
        return noise(count, deviation)

    noise = module.rounded_gaussians
    monkeypatch.setattr(module, "histogram", watched_histogram)
    monkeypatch.setattr(module, "rounded_gaussians", watched_noise)
    return used


def test_one_record_moves_one_count_of_each_column_in_each_round(rounds: Any) -> None:
    table = np.c_[
        RNG.normal(size=40), RNG.lognormal(3, 2, 40), np.zeros(40), np.r_[np.nan, np.arange(39)]
    ]
    table[3, :] = [np.inf, -np.inf, np.nan, 1e300]
    outer = [(-100.0, 100.0), (0.0, 1e6), (-1.0, 1.0), (0.0, 30.0)]
    private_ranges(list(table.T), outer, query_of(4, (0.3, 0.3, 0.3)))
    assert len(rounds) == 3
    for grids, _, _ in rounds:
        counts = [histogram(column, grid) for column, grid in zip(table.T, grids, strict=True)]
        moves = []
        for record in range(len(table)):
            rest = np.delete(table, record, axis=0)
            moved = [
                all_counts - histogram(column, grid)
                for all_counts, column, grid in zip(counts, rest.T, grids, strict=True)
            ]
            for column, value in zip(moved, table[record], strict=True):
                assert np.abs(column).sum() == column.sum() == (0 if np.isnan(value) else 1)
            moves.append(np.concatenate(moved))
        assert max(np.linalg.norm(move) for move in moves) <= math.sqrt(4)
        replaced = [np.linalg.norm(a - b) for a, b in itertools.combinations(moves, 2)]
        assert max(replaced) <= math.sqrt(2 * 4) + 1e-12


@given(
    arrays.arrays(np.float64, st.integers(1, 12), elements=st.floats()),
    st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=8, unique=True),
)
@settings(deadline=None)
def test_a_value_is_in_one_bin_and_a_missing_one_in_none(values: Any, ends: Any) -> None:
    grid = np.sort(np.array(ends))
    alone = [histogram(value[None], grid) for value in values]
    assert [counts.sum() for counts in alone] == [0 if np.isnan(v) else 1 for v in values]
    assert np.array_equal(histogram(values, grid), np.sum(alone, axis=0))
    for value, counts in zip(values, alone, strict=True):
        if grid[0] <= value < grid[-1]:
            place = int(counts.argmax())
            assert grid[place] <= value < grid[place + 1]


@pytest.mark.promise("public-numbers")
def test_each_round_is_one_query_with_the_noise_that_its_event_says(rounds: Any) -> None:
    values = [RNG.normal(size=200) for _ in range(9)]
    query = query_of(9, (2.0, 5.0, 7.0))
    private_ranges(values, [(-100.0, 100.0)] * 9, query)
    assert [deviation for _, _, deviation in rounds] == pytest.approx([6.0, 15.0, 21.0])
    for grids, count, _ in rounds:
        assert len(grids) == 9
        assert count == sum(len(grid) - 1 for grid in grids)
    assert [event.noise_multiplier for event in query.event.events] == [2.0, 5.0, 7.0]


@pytest.mark.parametrize("noises", [(20.0, 20.0), (5.0, 9.0), (11.0, 11.0, 40.0)])
def test_the_rounds_cost_what_one_gaussian_of_mu_costs(noises: tuple[float, ...]) -> None:
    query = query_of(5, noises)
    epsilons = [
        PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-4).compose(event).get_epsilon(1e-5)
        for event in (query.event, GaussianDpEvent(1.0 / query.mu))
    ]
    assert epsilons[0] == pytest.approx(epsilons[1], rel=2e-3)
    assert mu_of(query.event, "add_or_remove_one", 1e-12) == pytest.approx(query.mu, rel=1e-3)
    # The counts move by sqrt(2 k) at most if a record is replaced, which twice sqrt(k) covers.
    assert mu_of(query.event, "replace_one", 1e-12) == pytest.approx(2 * query.mu, rel=1e-3)


@pytest.mark.parametrize("columns", [1, 9, 400])
@pytest.mark.parametrize("records", [1, 3000, 10**9])
@pytest.mark.parametrize("squared_mu", [1e-6, 0.004, 3.0])
def test_a_query_costs_its_share_and_no_more(
    columns: int, records: int, squared_mu: float
) -> None:
    query = RangeQuery.within(columns=columns, records=records, squared_mu=squared_mu)
    assert 0.999 * squared_mu <= query.mu**2 <= squared_mu
    assert query.strength == pytest.approx(records * query.mu / math.sqrt(columns))
    assert len(set(query.noise_multipliers)) == 1


@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_public_numbers_decide_on_the_third_round_and_on_use(factor: float) -> None:
    def query_of_strength(strength: float) -> RangeQuery:
        squared_mu = (strength * math.sqrt(9) / 1000) ** 2
        return RangeQuery.within(columns=9, records=1000, squared_mu=squared_mu)

    query = query_of_strength(factor * STRENGTH_OF_THIRD_ROUND)
    assert len(query.noise_multipliers) == (3 if factor > 1 else 2)
    assert query_of_strength(factor * STRENGTH_THAT_WORKS).works == (factor > 1)


COLUMNS: dict[str, tuple[Callable[[Any, int], Any], tuple[float, float]]] = {
    "ages": (lambda rng, n: rng.normal(45.0, 15.0, n), (0.0, 1e4)),
    "incomes": (lambda rng, n: rng.lognormal(10.0, 1.0, n), (0.0, 1e8)),
    "both signs": (lambda rng, n: 100.0 * rng.normal(size=n), (-1e5, 1e5)),
    "around a bin's end": (lambda rng, n: 1.0 + 0.01 * rng.normal(size=n), (0.0, 100.0)),
    "years": (lambda rng, n: rng.integers(1995, 2004, n).astype(float), (1900.0, 2100.0)),
    "years before zero": (lambda rng, n: -rng.integers(1995, 2004, n) + 0.0, (-2100.0, -1900.0)),
    "whole outer range": (lambda rng, n: rng.uniform(-3.0, 3.0, n), (-3.0, 3.0)),
    "four in five zero": (
        lambda rng, n: np.where(rng.random(n) < 0.8, 0.0, rng.lognormal(6.0, 0.7, n)),
        (0.0, 1e6),
    ),
    "half missing": (
        lambda rng, n: np.where(rng.random(n) < 0.5, np.nan, rng.normal(5.0, 1.0, n)),
        (0.0, 500.0),
    ),
    "two groups": (
        lambda rng, n: np.where(rng.random(n) < 0.5, 3.0, 1000.0) * rng.uniform(0.9, 1.1, n),
        (0.0, 1e5),
    ),
}


@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize("strength", [math.inf, 2000.0])
def test_a_range_holds_most_values_and_is_no_wider_than_needed(kind: str, strength: float) -> None:
    """At strength 2000 the noise of the last quantiles is below 1 % of the records."""
    make, outer = COLUMNS[kind]
    values = make(np.random.default_rng(1), 20_000)
    noise = 0.01 if strength == math.inf else len(values) * math.sqrt(3) / strength
    low, high = private_ranges([values], [outer], query_of(1, (noise,) * 3))[0]
    present = values[~np.isnan(values)]
    assert np.mean((low <= present) & (present <= high)) >= 0.85
    tenth, ninth = np.quantile(present, [0.1, 0.9])
    # Of a Gaussian 2.3 times.
    assert high - low <= 5.0 * (ninth - tenth)


def test_values_beyond_the_outer_range_count_as_its_ends() -> None:
    inside = RNG.uniform(0.0, 10.0, 500)
    beyond, at_ends = [np.inf, 1e9, -np.inf], [10.0, 10.0, 0.0]
    ranges = [without_noise(np.r_[inside, ends], (0.0, 10.0)) for ends in (beyond, at_ends)]
    assert ranges[0] == ranges[1]


def test_missing_values_and_the_order_of_records_change_nothing() -> None:
    values = RNG.normal(20.0, 4.0, 500)
    expected = without_noise(values, (0.0, 1e4))
    assert without_noise(np.r_[np.full(900, np.nan), values], (0.0, 1e4)) == expected
    assert without_noise(values[::-1], (0.0, 1e4)) == expected


def test_the_values_are_not_changed() -> None:
    values = np.array([np.nan, np.inf, 1.0, 500.0])
    before = values.copy()
    without_noise(values, (0.0, 10.0))
    assert np.array_equal(values, before, equal_nan=True)


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("noise", [0.001, 1.0, 1e9])
def test_no_value_raises_or_warns_and_each_range_can_be_used(
    outer: tuple[float, float], noise: float
) -> None:
    """Warnings are errors in this suite."""
    for noises in ((noise,) * 2, (noise,) * 3):
        ranges = private_ranges(
            list(HOSTILE.values()), [outer] * len(HOSTILE), query_of(len(HOSTILE), noises)
        )
        for kind, (low, high) in zip(HOSTILE, ranges, strict=True):
            assert outer[0] <= low < high <= outer[1], kind
            assert type(low) is type(high) is float


def test_a_column_that_is_almost_constant_keeps_its_value_inside() -> None:
    for value in (0.0, 7.25, 1999.0):
        low, high = without_noise(np.r_[np.full(990, value), RNG.uniform(0, 1e4, 10)], (0.0, 1e6))
        assert low <= value <= high


@pytest.mark.parametrize(
    "outer",
    [
        *[(1.0, 1.0), (2.0, 1.0), (0.0, math.inf), (-math.inf, 0.0), (math.nan, 1.0)],
        *[(0.0, math.nan), (0.0, 1e101), (-1e101, 0.0), (0.0, 1e-101)],
    ],
)
def test_an_outer_range_that_is_none_is_refused(outer: tuple[float, float]) -> None:
    with refuses("outer"):
        without_noise(np.zeros(3), outer)


def test_another_number_of_columns_than_the_query_has_is_refused() -> None:
    with refuses("values"):
        private_ranges([np.zeros(3)], [(0.0, 1.0)] * 2, query_of(2))
    with refuses("outer"):
        private_ranges([np.zeros(3)] * 2, [(0.0, 1.0)], query_of(2))


@pytest.mark.parametrize(
    "fields",
    [
        {"columns": 0},
        {"records": 0},
        {"records": 2.5},
        {"noise_multipliers": (1.0,)},
        {"noise_multipliers": (1.0, 0.0)},
        {"noise_multipliers": (1.0, math.inf)},
        {"noise_multipliers": (1.0, math.nan)},
    ],
)
def test_a_query_of_impossible_numbers_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        RangeQuery(**{"columns": 2, "records": 10, "noise_multipliers": (1.0, 1.0), **fields})


@pytest.mark.parametrize("squared_mu", [0.0, -1.0, math.inf, math.nan])
def test_a_share_that_is_no_share_is_refused(squared_mu: float) -> None:
    with refuses("squared_mu"):
        RangeQuery.within(columns=2, records=10, squared_mu=squared_mu)
