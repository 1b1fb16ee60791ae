"""Points of a search space as score models see them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from optuna_dp.core.arrays import FloatArray
from optuna_dp.core.value_types import Params
from optuna_dp.priors.prior import Candidates, n_points
from optuna_dp.priors.space import Space


def encoded(candidates: Candidates) -> FloatArray:
    """Points in the unit cube, for score models.

    Numbers become their position in the range (on the logarithmic axis where the parameter is
    logarithmic), choices one column each, scaled so that two different choices are at distance 1.
    Parameters with a single value have no column. A value outside the range (another worker's
    range, say) is moved to its edge; NaN means unknown and goes to the middle.

    Returns:
        Shape (N, d), d columns for d directions a score may depend on.
    """
    parts: list[FloatArray] = []
    for name, d in candidates.space.items():
        if n_points(d) == 1:
            continue
        column = candidates.columns[name]
        if isinstance(d, CategoricalDistribution):
            k = len(d.choices)
            hot = (column[:, None] == np.arange(k)).astype(np.float64)
            hot[np.isnan(column)] = 1.0 / k
            parts.append(hot * math.sqrt(0.5))
            continue
        assert isinstance(d, (FloatDistribution, IntDistribution))
        if d.log:
            low, high = math.log(d.low), math.log(d.high)
            position = np.log(np.maximum(column, d.low))
            position = (position - low) / (high - low)
        else:
            # Halves, because the width of the range itself may overflow.
            position = (0.5 * column - 0.5 * d.low) / (0.5 * d.high - 0.5 * d.low)
        position = np.where(np.isnan(position), 0.5, np.clip(position, 0.0, 1.0))
        parts.append(position[:, None])
    return np.concatenate(parts, axis=1) if parts else np.zeros((candidates.n, 0))


def encode_params(space: Space, params: Sequence[Params]) -> FloatArray:
    """:func:`encoded` for points given as dicts; missing parameters count as unknown."""
    columns = {
        name: np.array([internal_or_nan(distribution, point.get(name)) for point in params])
        for name, distribution in space.items()
    }
    return encoded(Candidates(dict(space), columns, len(params)))


def internal_or_nan(distribution: BaseDistribution, value: object) -> float:
    """Returns a value in Optuna's internal representation; NaN if the range has none such."""
    try:
        return float(distribution.to_internal_repr(value))
    except (TypeError, ValueError):
        return math.nan
