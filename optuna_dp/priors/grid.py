"""Grids: all points of a search space that has finitely many."""

from __future__ import annotations

import itertools
import math

import numpy as np
from optuna.distributions import BaseDistribution, IntDistribution

from optuna_dp.core.value_types import ParamValue
from optuna_dp.errors import InvalidArgumentError, Text
from optuna_dp.priors.prior import from_unit, n_points, to_external
from optuna_dp.priors.space import Space


def grid_of(space: Space, limit: int) -> list[dict[str, ParamValue]]:
    """Returns all points of a space, the last parameter changing fastest.

    Args:
        space: Distributions by parameter name.
        limit: The largest number of points.

    Raises:
        InvalidArgumentError: If a parameter is continuous, or there are more points.
    """
    sizes = {}
    for name, distribution in space.items():
        points = n_points(distribution)
        if points is None:
            raise InvalidArgumentError(
                f"search_space[{name!r}]",
                distribution,
                problem="a grid needs parameters with finitely many values",
                fix="Give step=, or candidates=<number of draws>.",
            )
        sizes[name] = points
    count = math.prod(sizes.values())
    if count > limit:
        raise InvalidArgumentError(
            "search_space",
            Text(f"a grid of {count} points"),
            allowed=f"it must have at most {limit}",
            fix="Give candidates=<number of draws>.",
        )
    axes = [_values(distribution, sizes[name]) for name, distribution in space.items()]
    return [dict(zip(space, values, strict=True)) for values in itertools.product(*axes)]


def _values(distribution: BaseDistribution, count: int) -> list[ParamValue]:
    """All values of a parameter that has ``count`` of them, in order."""
    if isinstance(distribution, IntDistribution):  # A logarithmic one is not even in units.
        return list(range(distribution.low, distribution.high + 1, distribution.step))
    units = (np.arange(count) + 0.5) / count
    return [to_external(distribution, float(x)) for x in from_unit(distribution, units)]
