"""Utilities as whole numbers, so that their sensitivity is exact and not a matter of rounding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray, IntArray
from optuna_dp.errors import InvalidArgumentError, type_of

#: Grid points per unit of one partition's utility. A power of two, so that scaling is exact.
RESOLUTION = 1 << 20

_MOST_PARTITIONS = 1 << 36
MOST_PARTITIONS_OF_MEANS = 1 << 15


@dataclass(frozen=True, eq=False)
class Utilities:
    """Averaged utilities of all candidates, held as integers.

    A mean of k floating-point utilities can move by more than 1/k when one of them moves by 1,
    by the rounding of the sum. So every partition's utility is first rounded to a grid of
    ``1/RESOLUTION`` and the sum is taken in whole numbers.

    Attributes:
        totals: (n_candidates,) whole numbers in ``[0, unit]``.
        n_partitions: ``k``.
        sensitivity: How far one record can move any total. All totals may move, in different
            directions.

    Guarantees:
        * If two score tables differ in one column (one partition) only, every total differs by at
          most ``sensitivity``; no floating-point operation stands between the rounded scores and
          the totals.
        * Means made from such tables in double precision differ by at most ``sensitivity``
          likewise, which is one grid point larger for them.
    """

    totals: IntArray
    n_partitions: int
    sensitivity: int

    @classmethod
    def from_scores(cls, scores: npt.ArrayLike) -> Utilities:
        """Makes utilities from a table of one score per candidate and partition.

        Args:
            scores: (n_candidates, k) utilities in [0, 1]; column i comes from partition i alone.

        Raises:
            InvalidArgumentError: No candidates, fewer than two partitions, or a score outside
                [0, 1] or NaN.
        """
        table = _table("scores", scores, ndim=2)
        k = validation.whole("number of partitions (columns of scores)", table.shape[1], 2)
        _check_partitions(k, _MOST_PARTITIONS)
        _check_unit_interval("scores", table)
        grid = np.rint(table * RESOLUTION).astype(np.int64)
        return cls(grid.sum(axis=1), k, RESOLUTION)

    @classmethod
    def from_means(cls, means: npt.ArrayLike, n_partitions: int) -> Utilities:
        """Makes utilities from averages over partitions; prefer :meth:`from_scores`.

        The means must have been computed in double precision (a sum of k numbers, then one
        division). Their rounding, at most ``k * 2**-53`` each, is charged for by a larger
        sensitivity. Means in single precision are refused: their rounding is not.

        Args:
            means: (n_candidates,) averages in [0, 1].
            n_partitions: ``k``, at most 32768 here.

        Raises:
            InvalidArgumentError: As in :meth:`from_scores`, or means in single precision.
        """
        k = validation.whole("n_partitions", n_partitions, minimum=2)
        _check_partitions(k, MOST_PARTITIONS_OF_MEANS)
        if getattr(means, "dtype", np.float64) in (np.float32, np.float16):
            raise InvalidArgumentError(
                "means",
                getattr(means, "dtype", None),
                allowed="means must be computed in double precision",
                fix="Return the k utilities themselves, or convert them before averaging.",
            )
        table = _table("means", means, ndim=1)
        _check_unit_interval("means", table)
        # With e = 2**-53: two means differ by at most 1/k + 2ke, the product k*RESOLUTION*mean
        # adds k*RESOLUTION*e per side and the rounding 1/2 per side. For k <= 2**15 that is less
        # than RESOLUTION + 2; the totals are whole numbers, so RESOLUTION + 1.
        return cls(np.rint(table * (k * RESOLUTION)).astype(np.int64), k, RESOLUTION + 1)

    @property
    def n_candidates(self) -> int:
        """Number of candidates."""
        return len(self.totals)

    @property
    def unit(self) -> int:
        """The total that stands for utility 1."""
        return self.n_partitions * RESOLUTION


def validation_records_needed(n_partitions: int) -> int:
    """Validation records from which on the guarantee covers those records too.

    A score that is a mean of n_v per-record scores in [0, 1] moves by at most 1/n_v with one of
    them, and its rounded form by one grid point more, in all k partitions at once; so a total
    moves by at most ``k RESOLUTION / n_v + k``. That is within ``RESOLUTION`` from the returned
    n_v on, a little above k (docs/explanation/propose-test.md, "Whole numbers").
    """
    k = validation.whole("n_partitions", n_partitions, minimum=2)
    _check_partitions(k, RESOLUTION // 2)
    return -(-k * RESOLUTION // (RESOLUTION - k))


def _table(name: str, values: npt.ArrayLike, ndim: int) -> FloatArray:
    shape = "one row per candidate, one column per partition" if ndim == 2 else "one per candidate"
    try:
        table = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            name, type_of(values), allowed=f"it must be numbers, {shape}"
        ) from None
    if table.size == 0:
        raise InvalidArgumentError(
            name,
            table.shape,
            allowed="there must be at least one candidate",
            fix="Add a candidate.",
        )
    if table.ndim != ndim:
        raise InvalidArgumentError(name, table.shape, allowed=f"its shape must be {shape}")
    return table


def _check_partitions(k: int, limit: int) -> None:
    if k > limit:
        raise InvalidArgumentError(
            "number of partitions", k, allowed=f"it must be at most {limit}"
        )


def _check_unit_interval(name: str, table: FloatArray) -> None:
    outliers = ~((table >= 0.0) & (table <= 1.0))  # NaN is bad too
    if outliers.any():
        where = tuple(int(i) for i in np.argwhere(outliers)[0])
        raise InvalidArgumentError(
            f"{name}{list(where)}",
            float(table[where]),
            allowed="a utility must lie in [0, 1]",
            fix="Rescale the score by bounds fixed before seeing the data, and give a failed "
            "training a fixed utility such as 0.",
        )
