"""Private ranges of numeric columns: where most values of each column lie, with noise.

Features have to be of order one, and a range that is a hundred times too wide loses the training
29 points of accuracy. Where nobody knows the range, a small share of the budget finds it.

**The query** has two or three rounds. In each round every column has a histogram, and all of them
are one Gaussian query.

1. *On a log grid of the public outer range*: two bins a decade, on both sides of zero. If zero
   lies outside, distances are counted from the end of the outer range that is nearer to zero.
2. *On even bins*, within the bins that round 1 shows to hold records.
3. The same once more, where the public ``strength`` affords it.

The range is the median plus and minus three standard deviations, and these are taken as
``(q90 - q10) / 2.56``. It is clipped to the outer range.

**Guarantee.** A record is in at most one bin of each column, and a missing value in none. So
adding or removing a record moves the ``k`` counts of one round by a vector of L2 norm at most
``sqrt(k)``, and replacing one by at most ``2 sqrt(k)``. The bins are fixed by earlier rounds'
noisy counts. Each round is a Gaussian mechanism with noise ``m sqrt(k)``, and the rounds are
composed adaptively. Counts are whole numbers, so ``round(count + z) = count + round(z)``: rounded
noise is post-processing, and the gaps of floating-point numbers show nothing (Mironov, CCS 2012).
What follows the noisy counts is post-processing, too. No value of a record raises an error or a
warning.

The constants were chosen on eight public tables and twelve made-up columns, by
``examples/preparation/private_ranges.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from optuna_dp.core.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError, Text
from optuna_dp.preparation.range_query import RangeQuery
from optuna_dp.training.exact_step import rounded_gaussians

_BINS_PER_DECADE = 2
# A value nearer to the origin than 1e-8 of the outer range counts as the origin.
_DECADES = 8
# More bins have more noise together: with 20 of them 21 % are bad in place of 14 %.
_EVEN_BINS = 12
# Standard deviations of noise: a bin above the first holds records, and so does a neighbour of it
# above the second. Runs may lie apart: zeros, and values around 1000.
_SURELY_HELD, _PROBABLY_HELD = 3.0, 2.0
# The share of the records that a round leaves out on each side, so that a long tail does not keep
# the bins wide. The last round reads quantiles at 0.1 and 0.9.
_TAIL = 0.05
# Standard deviations of noise below which a bin of the last round counts as empty.
_EMPTY = 1.0
_QUANTILES = (0.1, 0.5, 0.9)
_DEVIATIONS_BETWEEN = 2.56  # from q10 to q90 of a Gaussian
_DEVIATIONS_KEPT = 3.0
# A scale below this share of the median would be lost in the rounding of double precision.
_SMALLEST_SHARE = 2.0**-40
_LARGEST, _NARROWEST = 1e100, 1e-100


def private_ranges(
    values: Sequence[FloatArray], outer: Sequence[tuple[float, float]], query: RangeQuery
) -> list[tuple[float, float]]:
    """Returns for each column a range in which most of its values lie, with noise.

    Guarantees:
        * The ranges cost ``query.event``, whatever the records are.
        * No value of a record raises an error or a warning.
        * Each range is finite, within the outer one, and its ends differ.

    Args:
        values: One array of numbers per column, shape (records,). NaN is a missing value and
            counts nowhere. Values outside the outer range, infinities too, count as its ends.
        outer: One public range ``(lower, upper)`` per column, as wide as values may possibly be;
            ends of at most 1e100 in size. A factor of 100 too much does no harm. Columns far from
            zero, as years, need ends that are near: (1900, 2100), not (0, 200000).
        query: The number of columns and the noise of each round.

    Returns:
        Ranges ``(lower, upper)``: the noisy median plus and minus three noisy standard deviations,
        clipped to the outer range.

    Raises:
        InvalidArgumentError: If the number of columns or an outer range is not allowed.
    """
    for name, columns in (("values", values), ("outer", outer)):
        if len(columns) != query.columns:
            raise InvalidArgumentError(
                name,
                Text(f"{len(columns)} columns"),
                allowed=f"it must have the query's {query.columns}",
            )
    for ends in outer:
        _check_outer(*ends)
    grids = [_log_grid(lower, upper) for lower, upper in outer]
    deviations = [noise * math.sqrt(query.columns) for noise in query.noise_multipliers]
    for deviation in deviations[:-1]:
        counts = _noisy_histograms(values, grids, deviation)
        grids = [
            _narrower_grid(column, grid, deviation)
            for column, grid in zip(counts, grids, strict=True)
        ]
    counts = _noisy_histograms(values, grids, deviations[-1])
    return [
        _range_around_median(column, grid, deviations[-1], ends)
        for column, grid, ends in zip(counts, grids, outer, strict=True)
    ]


def histogram(values: FloatArray, grid: FloatArray) -> FloatArray:
    """Returns how many values lie in each bin; a value is in at most one.

    Args:
        values: The column, shape (records,). NaN is in no bin; a value outside the grid is in its
            first or last bin.
        grid: Ends of the bins, from the lowest on, shape (bins + 1,). A bin has its lower end.
    """
    bins = len(grid) - 1
    present = values[~np.isnan(values)]
    # A value above the last end has index "bins", and one below the first has -1.
    places = np.clip(np.searchsorted(grid, present, side="right") - 1, 0, bins - 1)
    return np.bincount(places, minlength=bins).astype(np.float64)


def _noisy_histograms(
    values: Sequence[FloatArray], grids: list[FloatArray], deviation: float
) -> list[FloatArray]:
    """Returns one round's histograms with noise: whole numbers, shape (bins,) each."""
    exact = [
        histogram(np.asarray(column, dtype=np.float64), grid)
        for column, grid in zip(values, grids, strict=True)
    ]
    noise = rounded_gaussians(sum(map(len, exact)), deviation)
    ends = np.cumsum([len(counts) for counts in exact])
    return np.split(np.concatenate(exact) + noise, ends[:-1])


def _log_grid(lower: float, upper: float) -> FloatArray:
    """Returns bins that widen with the distance from zero, shape (bins + 1,)."""
    origin = min(max(0.0, lower), upper)
    largest = max(upper - origin, origin - lower)
    steps = np.arange(_DECADES * _BINS_PER_DECADE + 1)
    distances = largest * 10.0 ** (-steps / _BINS_PER_DECADE)
    ends = np.concatenate([origin - distances, origin + distances])
    inner = ends[(ends > lower) & (ends < upper)]
    return np.unique(np.concatenate([[lower], inner, [upper]]))


def _narrower_grid(counts: FloatArray, grid: FloatArray, deviation: float) -> FloatArray:
    """Returns even bins within those that hold records, a tail on each side left out.

    The grid stays as it is where no bin surely holds records. Then they are spread over many bins,
    or are too few, and a narrower grid would follow the noise.
    """
    is_sure = counts > _SURELY_HELD * deviation
    if not is_sure.any():
        return grid
    is_probable = is_sure | (counts > _PROBABLY_HELD * deviation)
    # Neighbours that agree have one number.
    runs = np.cumsum(np.diff(is_probable, prepend=False))
    is_held = is_probable & np.isin(runs, runs[is_sure])
    cumulative = _cumulative(np.where(is_held, counts, 0.0))
    first = int(np.searchsorted(cumulative, _TAIL, side="right")) - 1
    last = int(np.searchsorted(cumulative, 1.0 - _TAIL, side="left"))
    return np.linspace(grid[first], grid[last], _EVEN_BINS + 1)


def _range_around_median(
    counts: FloatArray, grid: FloatArray, deviation: float, outer: tuple[float, float]
) -> tuple[float, float]:
    """Returns the median plus and minus three standard deviations, clipped to the outer range."""
    is_held = counts > _EMPTY * deviation
    is_held[counts.argmax()] = True
    # The largest count may be negative, where there is no record.
    cumulative = _cumulative(np.where(is_held, np.maximum(counts, 1.0), 0.0))
    low, median, high = np.interp(_QUANTILES, cumulative, grid).tolist()
    scale = max((high - low) / _DEVIATIONS_BETWEEN, _SMALLEST_SHARE * abs(median))
    reach = _DEVIATIONS_KEPT * scale
    return max(median - reach, outer[0]), min(median + reach, outer[1])


def _cumulative(counts: FloatArray) -> FloatArray:
    """Returns the share of the counts below each end of a bin, from 0 to 1."""
    cumulative = np.concatenate([[0.0], np.cumsum(counts)])
    return np.asarray(cumulative / cumulative[-1])


def _check_outer(lower: float, upper: float) -> None:
    is_allowed = -_LARGEST <= lower <= upper - _NARROWEST and upper <= _LARGEST and lower < upper
    if not is_allowed:
        raise InvalidArgumentError(
            "outer",
            (lower, upper),
            allowed="it must be (lower, upper) with lower below upper, both of at most "
            f"{_LARGEST:g}",
            fix="Give the range in which values can possibly lie.",
        )
